"""A streaming query from one queue to another that is started again whenever it fails, each time with other partitions.

python -m python_tests.suites.spark_queues.job URLS FROM TO CHECKPOINT FIRST_PARTITIONS
"""

from __future__ import annotations

import sys

from pyspark.errors import StreamingQueryException

from recovery.pipeline.session import spark_session

PER_BATCH = 6
SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.codegen.wholeStage": "false",
}


def main(url: str, source: str, target: str, checkpoint: str, first: str) -> None:
    """For ever; each start is told on stdout."""
    spark = spark_session("from queue to queue", "local[2,3]", SETTINGS)
    partitions = int(first)
    while True:
        options = {"url": url, "queue": source, "maxMessagesPerBatch": PER_BATCH, "partitions": partitions}
        rows = spark.readStream.format("txha-queue").options(**options).load().select("body", "message_id")
        sink = rows.writeStream.format("txha-queue").options(url=url, queue=target)
        query = sink.option("checkpointLocation", checkpoint).start()
        print(f"started with {partitions} partitions", flush=True)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(f"failed: {str(error)!r}", flush=True)
        partitions = partitions % 3 + 1


if __name__ == "__main__":
    main(*sys.argv[1:])
