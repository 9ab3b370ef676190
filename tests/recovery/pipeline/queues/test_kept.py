"""An empty queue is no missing record: while a client holds the record, it is neither made again nor deleted."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from recovery.dtx.errors import OperationalError
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.batch_decisions import BatchDecisions, RecordElsewhere
from recovery.pipeline.queues.kept import MAKING, KeptRecord
from recovery.pipeline.queues.names import LONGEST, Batch, record_queue, settled_queue
from recovery.pipeline.queues.settle import COMMITTED, ELSEWHERE, settle
from tests.recovery.pipeline.queues.conftest import Query, drained


def looked_at(channel: BlockingChannel, queue: str) -> int:
    """Take the record out, as any tool does that shows a message; to be put back by its tag."""
    method, _, _ = channel.basic_get(queue)
    assert method is not None
    return int(method.delivery_tag)


def decided(query: Query, batch: int, *names: str) -> None:
    """By a driver that is killed then."""
    with BatchDecisions(query.options.hosts, query.id, 20) as driver:
        driver.decide(batch, names, first=batch == 0)


def test_batch_0_is_not_decided_twice_while_its_record_is_looked_at(
    query: Query, channel: BlockingChannel, queue: str
) -> None:
    """Its queue is empty then, as it was before the decision."""
    decided(query, 0, *query.write(0, "a").branches)
    record = looked_at(channel, record_queue(query.id))
    with (
        BatchDecisions(query.options.hosts, query.id, 0.3) as driver,
        pytest.raises(RecordElsewhere, match="put it back"),
    ):
        driver.decide(0, query.write(0, "a").branches, first=True)
    channel.basic_nack(record)
    query.commit(query.write(0, "a"))
    query.commit(query.write(1, "b"))
    assert sorted(drained(channel, queue)) == ["a", "b"]
    assert channel.queue_declare(record_queue(query.id), passive=True).method.message_count == 1


def test_settle_spark_leaves_a_record_that_is_looked_at(query: Query, channel: BlockingChannel, queue: str) -> None:
    """Decided, and one of two branches is committed: without the record the next writing would be another decision."""
    first, second = query.write(0, "a"), query.write(0, "b", partition=1)
    names = [*first.branches, *second.branches]
    decided(query, 0, *names)
    with DtxConnection(*query.options.hosts) as broker:
        broker.tpc_commit(Batch(query.id, 0).branch(names[0]))
    record = looked_at(channel, record_queue(query.id))
    hosts = query.options.hosts
    found = {each.branch: each.state for each in settle(hosts, (query.id,), 0.3) if each.query == query.id}
    assert found == {names[1]: ELSEWHERE}
    channel.basic_nack(record)
    assert channel.queue_declare(record_queue(query.id), passive=True).method.message_count == 1
    found = {each.branch: each.state for each in settle(hosts, (), 20) if each.query == query.id}
    assert found == {names[1]: COMMITTED}
    query.commit(query.write(0, "a", "b"))
    assert sorted(drained(channel, queue)) == ["a", "b"]


def test_looking_makes_no_queue(query: Query, channel: BlockingChannel, queue: str, cluster: LocalCluster) -> None:
    with BatchDecisions(query.options.hosts, query.id, 20) as driver:
        assert driver.record() is None
    connection = pika.BlockingConnection(pika.URLParameters(cluster.urls[0]))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        connection.channel().queue_declare(record_queue(query.id), passive=True)
    connection.close()


@pytest.mark.parametrize("how_far", ["begun", "declared", "published", "looked at"])
def test_a_record_whose_making_was_broken_off(query: Query, channel: BlockingChannel, queue: str, how_far: str) -> None:
    """Nothing can have been decided; and what was made by then is held by a client, maybe."""
    name = record_queue(query.id)
    channel.queue_declare(MAKING + name, durable=True)
    if how_far != "begun":
        channel.queue_declare(name, durable=True)
    if how_far in ("published", "looked at"):
        channel.confirm_delivery()
        channel.basic_publish("", name, b"")
    tag = looked_at(channel, name) if how_far == "looked at" else None
    query.commit(query.write(0, "a"))
    assert drained(channel, queue) == ["a"]
    if tag is not None:
        channel.basic_nack(tag)
    assert channel.queue_declare(name, passive=True).method.message_count == 1
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        channel.connection.channel().queue_declare(MAKING + name, passive=True)


class Died(Exception):
    """The driver has."""


def test_a_driver_dies_before_the_record_is_in_its_queue(
    query: Query, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue is there, and empty, and no client has the record: the next driver can tell."""
    name, publish = record_queue(query.id), BlockingChannel.basic_publish

    def dies(at: BlockingChannel, exchange: str, key: str, *arguments: object, **options: object) -> None:
        if key == name:
            raise Died
        publish(at, exchange, key, *arguments, **options)

    written = query.write(0, "a")
    with monkeypatch.context() as patched:
        patched.setattr(BlockingChannel, "basic_publish", dies)
        with BatchDecisions(query.options.hosts, query.id, 20) as driver, pytest.raises(Died):
            driver.decide(0, written.branches, first=True)
    assert channel.queue_declare(name, passive=True).method.message_count == 0
    with BatchDecisions(query.options.hosts, query.id, 1) as driver:
        driver.decide(0, written.branches, first=True)
    query.commit(query.write(0, "a"))
    assert drained(channel, queue) == ["a"]


def test_a_record_that_was_taken_out_for_good(query: Query, channel: BlockingChannel, queue: str) -> None:
    """Nothing is decided without it, and what stands in the error is what helps."""
    query.commit(query.write(0, "a"))
    channel.basic_get(record_queue(query.id), auto_ack=True)
    written = query.write(1, "b")
    with (
        BatchDecisions(query.options.hosts, query.id, 0.3) as driver,
        pytest.raises(OperationalError, match="delete the q"),
    ):
        driver.decide(1, written.branches, first=False)
    channel.queue_delete(record_queue(query.id))
    with pytest.raises(PipelineError, match="has no record"):
        query.commit(written)
    query.abort(1, written)
    with DtxConnection(*query.options.hosts) as broker:
        assert all(query.id.encode() not in xid.gtrid for xid in broker.tpc_recover())


def test_names_that_a_queue_can_have() -> None:
    for queue in ("q", "q" * LONGEST, "ü" * (LONGEST // 2)):
        assert len((MAKING + settled_queue(queue)).encode()) <= LONGEST
    assert settled_queue("q" * LONGEST) != settled_queue("q" * (LONGEST - 1) + "r")
    assert KeptRecord(settled_queue("q.new")).name != MAKING + settled_queue("q")
