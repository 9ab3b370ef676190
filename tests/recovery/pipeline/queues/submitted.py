"""What the tests submit to a standalone cluster: a stream from a log or a queue into a queue, or a batch of rows.

spark-submit tests/recovery/pipeline/queues/submitted.py log|queue|rows URLS QUEUE FROM CHECKPOINT PARTITIONS
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

PER_BATCH = 12


def main(kind: str, urls: str, queue: str, source: str, checkpoint: str, partitions: int) -> None:
    """Until nothing is left. ``source``: a directory of a node, a queue, or how many rows.

    Nothing of ours is imported: Spark finds the formats in the package by their modules' names.
    """
    spark = SparkSession.builder.getOrCreate()
    if kind == "rows":
        rows = spark.range(0, int(source), 1, partitions).selectExpr("cast(id as string) as body")
        rows.write.format("txha-queue").mode("append").options(url=urls, queue=queue).save()
        return
    if kind == "log":
        log = spark.readStream.format("txha").options(kind="publish", maxEventsPerBatch=PER_BATCH).load(source)
        stream = log.repartition(partitions)
    else:
        options = {"url": urls, "queue": source, "maxMessagesPerBatch": PER_BATCH, "partitions": partitions}
        stream = spark.readStream.format("txha-queue").options(**options).load()
    sink = stream.select("body").writeStream.format("txha-queue").options(url=urls, queue=queue)
    sink.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:6], int(sys.argv[6]))
