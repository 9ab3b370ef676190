"""Rows that are large, and queues that keep nothing."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues import sink
from recovery.pipeline.queues.names import Batch
from recovery.pipeline.queues.sink import BRANCH_BYTES, Written, write
from tests.recovery.pipeline.queues.conftest import Query, drained
from txobserver.ids import MAX_OPEN_BYTES, MAX_TRANSACTION_BYTES


def written(query: Query, *bodies: str) -> Written:
    """One attempt; rows come one by one, as Spark brings them in groups."""
    return write((pa.record_batch({"body": [body]}) for body in bodies), Batch(query.id, 0), 0, 0, query.options)


def test_rows_of_more_bytes_than_a_branch_may_have(
    query: Query, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition of large rows would be rolled back whenever it is written, however often it is tried."""
    assert BRANCH_BYTES + (128 << 20) <= MAX_TRANSACTION_BYTES < MAX_OPEN_BYTES, "the last row may be as large as any"
    monkeypatch.setattr(sink, "BRANCH_BYTES", 100)
    found = written(query, "a" * 96, "b", "c" * 300, "d", "e" * 96, "f")
    assert len(found.branches) == 4
    query.commit(found)
    assert drained(channel, queue) == ["a" * 96, "b", "c" * 300, "d", "e" * 96, "f"]


def test_rows_whose_headers_are_larger_than_their_bodies(
    query: Query, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker counts them, too: a partition of such rows would be rolled back whenever it is written."""
    monkeypatch.setattr(sink, "BRANCH_BYTES", 100)
    rows = (pa.record_batch({"body": [body], "correlation_id": ["x" * 120]}) for body in "abcd")
    found = write(rows, Batch(query.id, 0), 0, 0, query.options)
    assert len(found.branches) == 4
    query.commit(found)
    assert drained(channel, queue) == [*"abcd"]


def test_a_queue_that_is_not_durable(cluster: LocalCluster, channel: BlockingChannel) -> None:
    """Its rows are there when the branch is prepared, whatever is decided."""
    name = channel.queue_declare("", exclusive=False, auto_delete=False).method.queue
    try:
        with pytest.raises(PipelineError, match="the sink needs durable ones"):
            written(Query(cluster, name), "a")
        assert written(Query(cluster, name, mandatory=False), "a").branches == ()
    finally:
        channel.queue_delete(name)
