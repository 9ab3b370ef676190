"""Delivery tags of a channel that is lost settle nothing on the one that takes its place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiormq.exceptions import ChannelInvalidStateError
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from python_tests.suites.dtx.conftest import Desk
from python_tests.suites.dtx.cut import CuttingDoor
from recovery.dtx.errors import OperationalError, StaleDelivery
from recovery.dtx.with_aio_pika import AioDtxConnection
from recovery.dtx.with_pika import DtxConnection
from txobserver.xid import Xid

Names = tuple[str, str, str]


@pytest.fixture
def door(cluster: LocalCluster) -> Iterator[CuttingDoor]:
    with CuttingDoor(cluster.ports[0]) as door:
        yield door


class Consumer:
    """Of a queue with the inputs 1 and 2, through a door; ``got``: tags and bodies, as they come."""

    def __init__(self, door: CuttingDoor, queue: str) -> None:
        self.got: list[tuple[int, str]] = []
        self._queue = queue
        self.do = DtxConnection(door.url, on_channel=self._consume)

    def _consume(self, channel: BlockingChannel) -> None:
        channel.basic_consume(self._queue, self._delivered)

    def _delivered(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.got.append((method.delivery_tag, body.decode()))

    def take(self, count: int) -> list[tuple[int, str]]:
        """So many that come."""
        while len(self.got) < count:
            self.do.connection.process_data_events(1)
        found, self.got = sorted(self.got, key=lambda each: each[1]), []
        return found


@pytest.fixture
def consumer(desk: Desk, names: Names, door: CuttingDoor) -> Iterator[Consumer]:
    found = Consumer(door, names[0])
    yield found
    found.do.close()


def test_stale_tag_settles_no_other_message(
    desk: Desk, names: Names, door: CuttingDoor, consumer: Consumer, xid: Xid
) -> None:
    [(first, _), (second, _)] = consumer.take(2)
    consumer.do.tpc_begin(xid)
    consumer.do.channel.basic_ack(first)
    consumer.do.tpc_commit()
    desk.fill(names, "3")
    [(third, _)] = consumer.take(1)
    door.cut_off()
    with pytest.raises(StaleDelivery):  # told once, before anything is done in vain
        consumer.do.tpc_begin(xid._replace(bqual=b"2"))
    consumer.do.tpc_begin(xid._replace(bqual=b"2"))
    for stale in (first, second, third):
        for settle in (consumer.do.channel.basic_ack, consumer.do.channel.basic_nack, consumer.do.channel.basic_reject):
            with pytest.raises(AMQPError) as told:
                settle(stale)
            assert isinstance(told.value, StaleDelivery) and isinstance(told.value, OperationalError)
        with pytest.raises(StaleDelivery):
            consumer.do.channel.basic_ack(stale, multiple=True)
    again = consumer.take(2)
    assert [body for _, body in again] == ["2", "3"]
    assert not {tag for tag, _ in again} & {first, second, third}
    consumer.do.channel.basic_ack(again[0][0])
    consumer.do.tpc_commit()
    consumer.do.close()
    wait_until(lambda: desk.counts(names[0]) == [1], 20, "what was not settled in its queue", every=0.1)
    assert desk.drained(names[0]) == ["3"]


@pytest.mark.parametrize("replace", ["outcome", "close"])
def test_stale_tag_behind_a_channel_that_was_replaced_silently(
    desk: Desk, names: Names, door: CuttingDoor, consumer: Consumer, xid: Xid, replace: str
) -> None:
    """By another call than begin. "All that was delivered" (tag 0) is what the lost one had delivered."""
    [(_, _), (second, _)] = consumer.take(2)
    door.cut_off()
    if replace == "outcome":
        consumer.do.outcome(xid)
    else:
        consumer.do.close()
        consumer.do = DtxConnection(door.url, on_channel=consumer._consume, tags=consumer.do._tags)
    consumer.do.tpc_begin(xid)
    with pytest.raises(StaleDelivery):
        consumer.do.channel.basic_ack(0, multiple=True)
    with pytest.raises(StaleDelivery):
        consumer.do.channel.basic_ack(second)
    consumer.take(2)
    consumer.do.channel.basic_ack(0, multiple=True)
    consumer.do.tpc_commit()
    consumer.do.close()
    assert desk.counts(names[0]) == [0]


def test_a_lost_channel_with_nothing_left_open_is_nobody_s_matter(
    desk: Desk, names: Names, door: CuttingDoor, xid: Xid
) -> None:
    """A client that gets and acknowledges in each branch, or gets without, goes on: it holds no stale message."""
    with DtxConnection(door.url) as worker:
        for name in (b"1", b"2"):
            worker.tpc_begin(xid._replace(bqual=name))
            method, _, _ = worker.channel.basic_get(names[0])
            worker.channel.basic_ack(method.delivery_tag)
            worker.tpc_commit()
            desk.fill(names, "more")
            assert worker.channel.basic_get(names[0], auto_ack=True)[0] is not None
            door.cut_off()
    assert desk.counts(names[0]) == [0]


def test_a_lost_channel_with_a_message_that_was_got_is_told_once(
    desk: Desk, names: Names, door: CuttingDoor, xid: Xid
) -> None:
    """As one with a consumer's. "All that was delivered" is what came since, once its user has been told."""
    with DtxConnection(door.url) as worker:
        assert worker.channel.basic_get(names[0])[0] is not None
        door.cut_off()
        with pytest.raises(StaleDelivery):
            worker.tpc_begin(xid)
        worker.tpc_begin(xid)
        assert worker.channel.basic_get(names[0])[0] is not None
        worker.channel.basic_ack(0, multiple=True)
        worker.tpc_commit()
    wait_until(lambda: desk.counts(names[0]) == [1], 20, "the other one in its queue", every=0.1)


def test_a_lost_channel_of_which_everything_was_settled_at_once_is_not_told(
    desk: Desk, names: Names, door: CuttingDoor, xid: Xid
) -> None:
    """By one acknowledgement that stands for several."""
    with DtxConnection(door.url) as worker:
        worker.tpc_begin(xid)
        tags = [worker.channel.basic_get(names[0])[0].delivery_tag for _ in range(2)]
        worker.channel.basic_ack(tags[-1], multiple=True)
        worker.tpc_commit()
        door.cut_off()
        worker.tpc_begin(xid._replace(bqual=b"2"))
        worker.tpc_rollback()
    assert desk.counts(names[0]) == [0]


async def test_stale_message_of_aio_pika_settles_no_other_message(
    desk: Desk, names: Names, door: CuttingDoor, xid: Xid
) -> None:
    """Its messages belong to their channel."""
    async with AioDtxConnection(door.url) as worker:
        message = await (await worker.channel.get_queue(names[0], ensure=False)).get()
        door.cut_off()
        await worker.tpc_begin(xid)
        assert await (await worker.channel.get_queue(names[0], ensure=False)).get() is not None
        with pytest.raises(ChannelInvalidStateError):
            await message.ack()
        await worker.tpc_rollback()
    wait_until(lambda: desk.counts(names[0]) == [2], 20, "both in their queue", every=0.1)


