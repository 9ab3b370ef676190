"""Spark itself at work: from queue to queue, started again and again; batch jobs; and what it answers to mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.errors import StreamingQueryException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.examples import examples_of
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues.names import JOB, batch_of
from recovery.pipeline.queues.source import ARROW, SCHEMA
from tests.recovery.pipeline.queues.conftest import drained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.slice

PAGE = Path(__file__).parents[4] / "docs" / "spark_queues.md"


@pytest.fixture
def url(cluster: LocalCluster) -> str:
    return ",".join(cluster.urls)


def append(frame: DataFrame, url: str, queue: str) -> None:
    frame.write.format("txha-queue").mode("append").options(url=url, queue=queue).save()


def test_the_schema_is_the_one_that_spark_makes_of_it(spark: SparkSession) -> None:
    assert to_arrow_schema(StructType.fromDDL(SCHEMA)) == ARROW


def test_from_queue_to_queue(
    spark: SparkSession, cluster: LocalCluster, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    """Two starts, with other partitions: each message once, and the last batch is settled by the second."""
    channel.queue_declare("out", durable=True)
    channel.confirm_delivery()
    sent = []
    for start, partitions in enumerate((1, 3)):
        for number in range(7):
            sent.append(f"{start}.{number}")
            channel.basic_publish("", queue, sent[-1].encode(), BasicProperties(message_id=sent[-1]))
        options = {"url": url, "queue": queue, "partitions": partitions, "maxMessagesPerBatch": 4}
        stream = spark.readStream.format("txha-queue").options(**options).load()
        chosen = stream.selectExpr("body", "message_id", "'out' as routing_key")
        writer = chosen.writeStream.format("txha-queue").option("url", url)
        running = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert running.awaitTermination(60)
    assert sorted(drained(channel, "out")) == sent
    assert channel.queue_declare(queue, passive=True).method.message_count == 3, "of the last batch"
    [record] = [json.loads(body) for body in drained(channel, f"txha.spark.{running.id}")]
    assert record["batch"] == 3


def test_the_example_of_the_page(
    spark: SparkSession, cluster: LocalCluster, channel: BlockingChannel, tmp_path: Path
) -> None:
    """As it stands but for ports and places, in the session that runs here."""
    [text] = examples_of(PAGE)
    for number, port in enumerate(cluster.ports):
        text = text.replace(str(5701 + number), str(port))
    text = text.replace("/tmp/large-checkpoint", str(tmp_path))
    for name in ("orders", "large"):
        channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    for amount in (5, 5000):
        channel.basic_publish("", "orders", json.dumps({"amount": amount}).encode())
    exec(compile(text, str(PAGE), "exec"), {})
    assert drained(channel, "large") == ['{"amount": 5000}']
    channel.queue_delete("orders")


def test_a_batch_that_fails_leaves_nothing_prepared(
    spark: SparkSession, cluster: LocalCluster, url: str, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    """Two branches are prepared when the third fails, and Spark aborts without naming them. Later all are written.

    Other tests of this cluster may leave branches: only this query's are looked at.
    """
    channel.queue_declare("found", durable=True)
    channel.confirm_delivery()
    for body in ("found", "found", "missing"):
        channel.basic_publish("", queue, body.encode(), BasicProperties())
    source = spark.readStream.format("txha-queue").options(url=url, queue=queue, partitions=1)

    def run() -> str:
        rows = source.load().selectExpr("body", "cast(body as string) as routing_key")
        sink = rows.writeStream.format("txha-queue").options(url=url, rowsPerBranch=1)
        running = sink.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        running.awaitTermination(60)
        return str(running.id)

    with pytest.raises(StreamingQueryException, match="taken by no queue"):
        run()
    ours = json.loads((tmp_path / "metadata").read_bytes())["id"]
    with DtxConnection(*cluster.urls) as broker:
        batches = [batch_of(xid) for xid in broker.tpc_recover()]
    assert not [each for each in batches if each is not None and each.query == ours]
    channel.queue_declare("missing", durable=True)
    query = run()
    assert query == ours
    assert (drained(channel, "found"), drained(channel, "missing")) == (["found"] * 2, ["missing"])
    for name in ("found", "missing", f"txha.spark.{query}"):
        channel.queue_delete(name)


def test_a_batch_job_appends(spark: SparkSession, url: str, channel: BlockingChannel, queue: str) -> None:
    frame = spark.range(20).selectExpr(
        "cast(id as string) as body", "map('n', cast(id as string)) as headers", "concat('m', id) as message_id"
    )
    append(frame.repartition(3), url, queue)
    seen = {}
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        seen[got[2].decode()] = got[1]
    assert sorted(map(int, seen)) == list(range(20))
    assert seen["7"].headers == {"n": "7"} and seen["7"].message_id == "m7" and seen["7"].delivery_mode == 2


def test_a_job_that_fails_leaves_nothing(
    spark: SparkSession, cluster: LocalCluster, url: str, channel: BlockingChannel, queue: str
) -> None:
    """One partition was prepared, the other fails; what was prepared is found, since Spark does not tell of it."""
    broken = spark.range(0, 4, 1, 2).selectExpr("if(id < 3, 'x', raise_error('no')) as body")
    with pytest.raises(Exception, match="no"):
        append(broken, url, queue)
    assert drained(channel, queue) == []
    with DtxConnection(*cluster.urls) as broker:
        batches = [batch_of(xid) for xid in broker.tpc_recover()]
    assert not [each for each in batches if each is not None and each.query.startswith(JOB)]


@pytest.mark.parametrize(
    ("frame", "queue", "said"),
    [
        (lambda spark: spark.range(1), "q", "rows for a queue need a column body"),
        (lambda spark: spark.range(1).selectExpr("'a' as body", "id"), "q", "columns that no message has: id"),
        (lambda spark: spark.range(1).selectExpr("'a' as body"), "", "where shall the rows go?"),
        (lambda spark: spark.range(1).selectExpr("cast(null as string) as body"), "q", "a row has no body"),
    ],
)
def test_what_cannot_be_written(
    spark: SparkSession, url: str, frame: Callable[[SparkSession], DataFrame], queue: str, said: str
) -> None:
    with pytest.raises(Exception, match=said.replace("?", r"\?")):
        append(frame(spark), url, queue)


def test_a_queue_is_not_overwritten(spark: SparkSession, url: str) -> None:
    with pytest.raises(Exception, match="use mode append"):
        frame = spark.range(1).selectExpr("'a' as body")
        frame.write.format("txha-queue").mode("overwrite").options(url=url, queue="q").save()
