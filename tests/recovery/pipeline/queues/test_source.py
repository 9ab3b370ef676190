"""Each message is in one batch, and in the same one when that is read again; it is settled behind Spark's commit."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.names import settled_queue
from recovery.pipeline.queues.options import QueueSourceOptions
from recovery.pipeline.queues.places import Offset, offset_of, packed, settled_by, settled_record, unpacked
from recovery.pipeline.queues.queue_intake import QueueIntake
from recovery.pipeline.queues.source import QueueReader
from txobserver.xid import Xid

Open = Callable[..., QueueReader]
PLACES = st.frozensets(st.integers(0, (1 << 63) - 1))


@pytest.fixture
def opened(cluster: LocalCluster, queue: str) -> Iterator[Open]:
    """Readers of the queue, stopped in the end, and in the middle by another start."""
    readers: list[QueueReader] = []

    def start(**options: Any) -> QueueReader:
        for each in readers:
            each.stop()
        given = {"url": ",".join(cluster.urls), "queue": queue, "patience": 10, **options}
        readers.append(QueueReader(QueueSourceOptions.model_validate(given)))
        return readers[-1]

    yield start
    for each in readers:
        each.stop()


def fill(channel: BlockingChannel, queue: str, *bodies: str, properties: BasicProperties | None = None) -> None:
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body.encode(), properties)


def plan(reader: QueueReader, start: dict[str, Any], limit: int = 100) -> dict[str, Any]:
    """A batch that is not empty."""
    while (end := reader.latestOffset(start, ReadMaxRows(limit))) == start:
        continue
    return end


def bodies(reader: QueueReader, start: dict[str, Any], end: dict[str, Any]) -> list[list[str]]:
    """What the tasks read."""
    parts = [list(reader.read(each)) for each in reader.partitions(start, end)]
    return [[body.decode() for batch in part for body in batch.column("body").to_pylist()] for part in parts]


def left(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


@given(PLACES)
def test_places_as_text(places: frozenset[int]) -> None:
    assert unpacked(packed(places)) == places


@given(st.text(), PLACES, PLACES)
def test_offsets_as_spark_keeps_them(queue: str, taken: frozenset[int], earlier: frozenset[int]) -> None:
    assert offset_of(Offset(queue, taken, earlier).as_json()) == Offset(queue, taken, earlier)


@given(st.text(), PLACES)
def test_records_of_what_was_settled(queue: str, places: frozenset[int]) -> None:
    assert settled_by(settled_record(queue, places)) == places


@pytest.mark.parametrize("body", [b"x", b"{}", b"[]", b'{"settled": "AAAA"}', b'{"settled": 1}'])
def test_another_message_in_the_place_of_the_record(body: bytes) -> None:
    assert settled_by(b"") == frozenset()
    with pytest.raises(PipelineError, match="source's record is none"):
        settled_by(body)


def test_places_one_after_the_other_are_short() -> None:
    assert len(packed(range(1 << 40, (1 << 40) + (10_000 << 20), 1 << 20))) < 500


def test_batches_in_order_and_settled_when_committed(opened: Open, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, *"abcdefg")
    reader = opened()
    start = reader.initialOffset()
    first = plan(reader, start, 4)
    assert bodies(reader, start, first) == [["a", "b"], ["c", "d"]]
    second = plan(reader, first, 4)
    assert bodies(reader, first, second) == [["e", "f"], ["g"]]
    assert reader.latestOffset(second, ReadAllAvailable()) == second
    reader.commit(first)
    reader.stop()
    assert left(channel, queue) == 3


def test_a_batch_is_read_again_with_other_partitions(opened: Open, channel: BlockingChannel, queue: str) -> None:
    """Its offset was logged, then the driver died."""
    fill(channel, queue, *"abcde")
    reader = opened()
    start = reader.initialOffset()
    end = plan(reader, start, 4)
    again = opened(partitions=3)
    assert bodies(again, start, end) == [["a", "b"], ["c", "d"]]
    after = plan(again, end)
    assert bodies(again, end, after) == [["e"]]


def test_what_was_committed_and_not_settled_is_not_read_again(
    opened: Open, channel: BlockingChannel, queue: str
) -> None:
    fill(channel, queue, *"abcd")
    reader = opened()
    first = plan(reader, reader.initialOffset(), 2)
    second = plan(reader, first, 2)
    fill(channel, queue, "e")
    again = opened()
    third = plan(again, second)
    assert bodies(again, second, third) == [["e"]]
    again.commit(third)
    again.stop()
    assert left(channel, queue) == 0


def test_the_last_batch_is_settled_by_the_next_start(opened: Open, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, *"ab")
    reader = opened()
    end = plan(reader, reader.initialOffset())
    again = opened()
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(end, ReadMaxRows(10)) == end
    again.stop()
    assert left(channel, queue) == 0


def test_a_message_that_comes_back_behind_later_ones(
    opened: Open, channel: BlockingChannel, queue: str, cluster: LocalCluster
) -> None:
    """Its place lies before an offset that is committed; it was in no batch."""
    fill(channel, queue, *"abc")
    with DtxConnection(*cluster.urls) as other:
        xid = Xid(1, uuid.uuid4().bytes, b"")
        other.tpc_begin(xid)
        method, _, _ = other.channel.basic_get(queue)
        other.channel.basic_ack(method.delivery_tag)
        other.tpc_prepare()
        reader = opened()
        first = plan(reader, reader.initialOffset())
        assert bodies(reader, reader.initialOffset(), first) == [["b"], ["c"]]
        reader.commit(first)
        other.tpc_rollback()
    again = opened()
    second = plan(again, first)
    assert bodies(again, first, second) == [["a"]]


def test_a_settlement_that_is_taken_back_behind_later_batches(
    opened: Open, channel: BlockingChannel, queue: str, cluster: LocalCluster
) -> None:
    """Of a message that Spark has committed: that it did not come while later ones did is no sign that it is gone."""
    fill(channel, queue, *"abc")
    reader = opened()
    first = plan(reader, reader.initialOffset(), 1)
    reader.stop()
    with DtxConnection(*cluster.urls) as dying:
        xid = Xid(1, uuid.uuid4().bytes, b"")
        dying.tpc_begin(xid)
        method, _, body = dying.channel.basic_get(queue)
        assert body == b"a"
        dying.channel.basic_ack(method.delivery_tag)
        dying.tpc_prepare()
        again = opened()
        at = first
        for expected in "bc":
            after = plan(again, at, 1)
            assert bodies(again, at, after) == [[expected]]
            again.commit(at)
            at = after
        again.commit(at)
        dying.tpc_rollback()
    last = opened()
    last.prepareForTriggerAvailableNow()
    assert last.latestOffset(at, ReadMaxRows(10)) == at
    last.stop()
    assert left(channel, queue) == 0


def test_what_was_settled_is_known_to_the_next_start(opened: Open, channel: BlockingChannel, queue: str) -> None:
    """And is no more looked for: offsets do not grow from start to start."""
    at = opened().initialOffset()
    for _ in range(5):
        fill(channel, queue, *"ab")
        reader = opened()
        for _ in range(2):
            after = plan(reader, at, 1)
            reader.commit(at)
            at = after
        assert len(offset_of(at).earlier) <= 2
    reader.commit(at)
    again = opened()
    assert again.latestOffset(at, ReadMaxRows(10)) == at
    assert again._intake is not None and again._intake.settlements.done == set()
    record = settled_by(channel.basic_get(settled_queue(queue))[2])
    assert record <= offset_of(at).done


def test_nothing_is_settled_while_the_record_is_looked_at(opened: Open, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, *"abc")
    reader = opened()
    first = plan(reader, reader.initialOffset(), 1)
    second = plan(reader, first, 1)
    reader.commit(first)
    looked_at, _, _ = channel.basic_get(settled_queue(queue))
    third = plan(reader, second, 1)
    reader.commit(second)
    assert bodies(reader, second, third) == [["c"]]
    reader.stop()
    assert left(channel, queue) == 2
    channel.basic_nack(looked_at.delivery_tag)
    again = opened()
    again.prepareForTriggerAvailableNow()
    assert again.latestOffset(third, ReadMaxRows(10)) == third
    again.stop()
    assert left(channel, queue) == 0


class Died(Exception):
    """The driver has."""


def test_a_settlement_and_its_record_are_one(
    opened: Open, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies right behind the commit: what has left the queue stands in the record."""
    fill(channel, queue, "a")
    reader = opened()
    first, commit = plan(reader, reader.initialOffset()), DtxConnection.tpc_commit

    def dies(broker: DtxConnection, xid: Xid | None = None) -> None:
        commit(broker, xid)
        raise Died

    with monkeypatch.context() as patched, pytest.raises(Died):
        patched.setattr(DtxConnection, "tpc_commit", dies)
        reader.commit(first)
    assert left(channel, queue) == 0
    method, _, record = channel.basic_get(settled_queue(queue))
    assert method is not None and settled_by(record) == offset_of(first).taken


@pytest.mark.parametrize("strict", [True, False])
def test_messages_that_are_gone_when_a_batch_is_read_again(
    opened: Open, channel: BlockingChannel, queue: str, strict: bool
) -> None:
    fill(channel, queue, *"abc")
    reader = opened()
    start = reader.initialOffset()
    end = plan(reader, start)
    reader.stop()
    channel.basic_get(queue, auto_ack=True)
    again = opened(failOnDataLoss=strict)
    if strict:
        with pytest.raises(PipelineError, match=r"1 of 3 messages .* failOnDataLoss"):
            again.partitions(start, end)
    else:
        assert bodies(again, start, end) == [["b"], ["c"]]


def test_all_that_is_there_now(opened: Open, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, *"abcde")
    reader = opened(maxMessagesPerBatch=2)
    reader.prepareForTriggerAvailableNow()
    at, sizes = reader.initialOffset(), []
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        sizes.append(end["count"])
        fill(channel, queue, "later")
        at = end
    assert sizes == [2, 2, 1]


def test_all_that_is_there_now_of_a_queue_longer_than_the_prefetch(
    opened: Open, channel: BlockingChannel, queue: str
) -> None:
    """What is on its way is counted, and the rest stays in the queue until its batch."""
    channel.tx_select()
    for number in range(2000):
        channel.basic_publish("", queue, str(number).encode())
    channel.tx_commit()
    reader = opened(max_messages_per_batch=50)
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(50))
    assert reader._left == 2000 - 50
    assert reader._intake is not None and reader._intake._here.count <= 200
    assert len(offset_of(first).taken) == 50


def test_a_connection_that_is_lost_between_plan_and_commit(opened: Open, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, *"abc")
    reader = opened()
    start = reader.initialOffset()
    end = plan(reader, start, 2)
    intake = reader._intake
    assert isinstance(intake, QueueIntake)
    intake._broker.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    assert bodies(reader, start, end) == [["a"], ["b"]]
    after = plan(reader, end)
    assert bodies(reader, end, after) == [["c"]]
    reader.commit(end)
    reader.commit(after)
    reader.stop()
    assert left(channel, queue) == 0


def test_heartbeats_go_on_behind_a_lost_connection(
    opened: Open, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the connection meanwhile finds it closed, again and again, until a call needs another."""
    monkeypatch.setattr("recovery.pipeline.queues.queue_intake.BEAT", 0.01)
    reader = opened()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(1)) == start
    intake = reader._intake
    assert isinstance(intake, QueueIntake)
    beats: list[bool] = []

    class Beats(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            beats.append(intake._broker.connection.is_open)
            return super().wait(timeout)

    intake._closed = Beats()
    intake._broker.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: beats[-2:] == [False, False], 30, "two beats without a connection")
    fill(channel, queue, "a")
    assert bodies(reader, start, plan(reader, start)) == [["a"]]
    wait_until(lambda: beats[-2:] == [True, True], 30, "two beats of the next connection")


def test_properties_arrive_as_they_were_published(opened: Open, channel: BlockingChannel, queue: str) -> None:
    given = BasicProperties(message_id="m", headers={"n": 1, "t": "x"}, priority=3)
    fill(channel, queue, "a", properties=given)
    fill(channel, queue, "b", properties=BasicProperties())
    reader = opened(partitions=1)
    start = reader.initialOffset()
    end = plan(reader, start, 2)
    while end["count"] < 2:
        end = plan(reader, start, 2)
    [partition] = reader.partitions(start, end)
    [batch] = reader.read(partition)
    rows = batch.to_pylist()
    assert rows[0]["message_id"] == "m" and dict(rows[0]["headers"]) == {"n": "1", "t": "x"}
    found = BasicProperties()
    found.decode(rows[0]["properties"])
    assert found == given
    assert rows[1]["headers"] is None and rows[1]["properties"] == b"\x00\x00"
    assert rows[0]["place"] < rows[1]["place"] and rows[0]["routing_key"] == queue


def test_a_queue_is_consumed_alone(opened: Open, channel: BlockingChannel, queue: str) -> None:
    channel.basic_consume(queue, lambda *delivered: None)
    reader = opened(patience=0.2)
    with pytest.raises(PipelineError, match="has another consumer"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_queue_that_is_deleted(opened: Open, channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, "a")
    reader = opened()
    end = plan(reader, reader.initialOffset())
    channel.queue_delete(queue)
    with pytest.raises(PipelineError, match="was deleted"):
        plan(reader, end)


def test_what_cannot_be_read(opened: Open, queue: str, channel: BlockingChannel) -> None:
    missing = opened(queue="nowhere")
    with pytest.raises(PipelineError, match="there is no queue nowhere"):
        missing.latestOffset(missing.initialOffset(), ReadAllAvailable())
    with pytest.raises(PipelineError, match="give the query its own"):
        missing.latestOffset(Offset(queue).as_json(), ReadAllAvailable())
