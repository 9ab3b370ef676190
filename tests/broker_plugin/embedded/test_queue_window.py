"""The window that a durable queue keeps on its store, and purging through it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_plugin.embedded.queues.durable_queue import WindowLimits
from tests.broker_plugin.embedded.harness import Client, Harness, got, properties, queue_of
from tests.broker_plugin.embedded.local_ledger import LocalLedger
from txobserver.events import Delivered
from txobserver.ports.store import Asked, MemoryBase, Page


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.declare("q")
    return client


class TestPurge:
    """queue.purge takes what is ready, and the count is what was really removed."""

    def purge(self, harness: Harness, client: Client) -> int:
        counts: list[int] = []
        harness.broker.operations.queues.purge(client.channel, "q", counts.append)
        harness.settle()
        return counts[0]

    def test_what_is_in_hands_is_spared(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2", b"3")
        held = got(client.get("q"))
        assert self.purge(harness, client) == 2
        client.channel.reject(held.delivery_tag, False, True)
        assert client.drain("q") == [b"1"]

    def test_given_back_while_the_purge_is_on_its_way(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        held = got(client.get("q"))
        counts: list[int] = []
        harness.broker.operations.queues.purge(client.channel, "q", counts.append)
        client.channel.reject(held.delivery_tag, False, True)
        harness.settle()
        assert counts == [1]
        assert client.drain("q") == [b"1"]

    def test_nothing_is_handed_out_meanwhile(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        harness.settle()
        counts: list[int] = []
        harness.broker.operations.queues.purge(client.channel, "q", counts.append)
        consumer = harness.client()
        consumer.channel.consume("q", "c", False, False, {})
        harness.settle()
        assert counts == [2] and consumer.deliveries == []
        client.publish("q", b"3")
        harness.settle()
        assert consumer.bodies == [b"3"]

    def test_what_may_be_handed_out_is_not_meanwhile(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1")
        client.channel.reject(got(client.get("q")).delivery_tag, False, True)
        counts: list[int] = []
        harness.broker.operations.queues.purge(client.channel, "q", counts.append)
        consumer = harness.client()
        consumer.channel.consume("q", "c", False, False, {})
        harness.turn()
        assert consumer.deliveries == [], "its mark was told long ago"
        harness.settle()
        assert counts == [1] and consumer.deliveries == []

    def test_what_arrives_meanwhile_is_not_marked(self, harness: Harness, client: Client) -> None:
        counts: list[int] = []
        harness.broker.operations.queues.purge(client.channel, "q", counts.append)
        consumer = harness.client()
        consumer.channel.consume("q", "c", False, False, {})
        client.publish("q", b"1")
        harness.turn()
        harness.ledger.commit(2)
        assert not any(isinstance(event, Delivered) for event in harness.ledger.log)
        assert not harness.ledger.busy
        harness.settle()
        assert consumer.bodies == [b"1"]

    def test_with_a_window_that_is_not_complete(self) -> None:
        harness = Harness(WindowLimits(2, 1000))
        client = harness.client()
        client.declare("q")
        client.publish("q", *[b"%d" % n for n in range(10)])
        held = got(client.get("q"))
        assert self.purge(harness, client) == 9
        client.publish("q", b"new")
        client.channel.reject(held.delivery_tag, False, True)
        assert client.drain("q") == [b"0", b"new"]


class CountingBase(MemoryBase):
    """Counts the messages that are read."""

    count = 0

    def read(self, asked: Asked) -> Page:
        page = super().read(asked)
        self.count += len(page.entries)
        return page


class TestWindow:
    """Memory holds a bounded part of a queue, and reading it costs what is read."""

    @pytest.fixture
    def base(self) -> CountingBase:
        return CountingBase()

    @pytest.fixture
    def deep(self, base: CountingBase) -> Iterator[tuple[Harness, Client]]:
        """Two hundred messages in the base."""
        harness = Harness(WindowLimits(10, 10_000), LocalLedger(base=base))
        client = harness.client()
        client.declare("q")
        client.publish("q", *[b"%d" % n for n in range(200)])
        harness.settle()
        harness.take_over()
        yield harness, harness.client()

    def test_memory_is_bounded(self, deep: tuple[Harness, Client]) -> None:
        harness, client = deep
        client.get("q")
        assert len(queue_of(harness)._window) == 9
        assert client.count("q") == 199

    def test_bytes_bound_it_too(self) -> None:
        harness = Harness(WindowLimits(1000, 50))
        client = harness.client()
        client.declare("q")
        client.publish("q", *[b"x" * 20] * 30)
        harness.settle()
        assert len(queue_of(harness)._window) == 3
        assert client.drain("q") == [b"x" * 20] * 30

    def test_headers_are_bytes_too(self) -> None:
        """Messages without a body may have headers as large as a frame: 4000 of them were held for each queue."""
        harness = Harness(WindowLimits(1000, 5_000))
        client = harness.client()
        client.declare("q")
        for _ in range(30):
            client.channel.publish("", "q", False, properties({"large": "x" * 1000}), b"")
        harness.settle()
        assert len(queue_of(harness)._window) == 5
        assert harness.ledger.contents.dirty_bytes > 30 * 1000
        assert client.drain("q") == [b""] * 30

    def test_every_message_is_read_once(self, deep: tuple[Harness, Client], base: CountingBase) -> None:
        _, client = deep
        assert client.drain("q") == [b"%d" % n for n in range(200)]
        assert base.count == 200

    def test_counting_and_acknowledging_read_nothing(self, deep: tuple[Harness, Client], base: CountingBase) -> None:
        _, client = deep
        answer = got(client.get("q"))
        client.channel.ack(answer.delivery_tag, False)
        client.publish("q", b"more")
        assert client.count("q") == 200
        assert base.count == 10

    def test_a_consumer_with_everything_in_hands_keeps_no_bodies(self, deep: tuple[Harness, Client]) -> None:
        harness, client = deep
        client.channel.consume("q", "c", False, False, {})
        harness.settle()
        assert len(client.deliveries) == 200
        queue = queue_of(harness)
        assert not queue._window and all(isinstance(rid, int) for rid in queue._out.values())
        client.channel.recover()
        harness.settle()
        assert client.bodies[200:] == client.bodies[:200]
