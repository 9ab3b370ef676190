"""What the session that we make is set to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.pipeline.queues.options import QueueSourceOptions, SinkOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_query_whose_python_does_not_answer_is_not_waited_for_for_ever(spark: SparkSession) -> None:
    """But for longer than source and sink wait for a broker that is lost: to wait is what they are there for."""
    jvm = spark._jvm
    assert jvm is not None
    seconds = jvm.org.apache.spark.network.util.JavaUtils.timeStringAsSec(
        spark.conf.get("spark.sql.streaming.stopTimeout")
    )
    assert seconds > QueueSourceOptions(queue="q").patience + SinkOptions().patience
