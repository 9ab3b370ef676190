"""Rows for queues that are not durable, beside rows for others: what a take-over leaves of them."""

from __future__ import annotations

from pathlib import Path

import pika
import pyarrow as pa
import pytest
from pika.exceptions import ChannelClosedByBroker

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.names import Batch
from recovery.pipeline.queues.sink import Written, write
from tests.recovery.pipeline.queues.conftest import SETTINGS, Query, drained

pytestmark = pytest.mark.slice

DURABLE, TRANSIENT, FANOUT = "durable", "transient", "both"
ROWS = (("one", "", DURABLE), ("two", "", TRANSIENT), ("three", FANOUT, ""))
"""Bodies, exchanges, routing keys"""


def declare(url: str) -> None:
    """An exchange that leads to a durable queue and to one that is not."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.exchange_declare(FANOUT, "fanout", durable=True)
        for queue in (DURABLE, TRANSIENT):
            channel.queue_declare(queue, durable=queue == DURABLE)
            channel.queue_bind(queue, FANOUT)


def rows_to(query: Query, number: int, *rows: tuple[str, str, str]) -> Written:
    """By one task."""
    bodies, exchanges, keys = map(list, zip(*rows, strict=True))
    batch = pa.record_batch({"body": bodies, "exchange": exchanges, "routing_key": keys})
    return write(iter([batch]), Batch(query.id, number), 0, 0, query.options)


def found(url: str, queue: str) -> list[str]:
    """Taken out."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, passive=True)
        return drained(channel, queue)


@pytest.mark.timeout(300)
def test_the_rows_of_a_transient_queue_end_with_it(tmp_path: Path) -> None:
    """A take-over takes the queue and what was to come into it, nothing of others; and the next batch fails."""
    with LocalCluster(tmp_path / "cluster", 2, *SETTINGS) as cluster:
        url, backup = cluster.urls[0], cluster.backups()[0]
        declare(url)
        query = Query(cluster, DURABLE)
        with pytest.raises(PipelineError, match="only to queues that are not durable"):
            rows_to(query, 0, ROWS[1])
        assert found(url, TRANSIENT) == ["two"], "so it comes again"
        query.commit(rows_to(query, 0, *ROWS))
        assert (found(url, DURABLE), found(url, TRANSIENT)) == (["one", "three"], ["two", "three"])
        prepared = rows_to(query, 1, *ROWS)
        cluster.promote(backup)
        wait_until(lambda: cluster.primary() == backup and cluster.all_ready(), 60, "another primary")
        query.commit(prepared)
        assert found(url, DURABLE) == ["one", "three"]
        with pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
            found(url, TRANSIENT)
        with pytest.raises(PipelineError, match="1 rows were taken by no queue"):
            rows_to(query, 2, *ROWS)
