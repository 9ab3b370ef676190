"""The window that a durable queue keeps on its store, and purging through it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.supply import FIRST_PAGE
from broker_plugin.embedded.queues.windows import OVERHEAD, WindowLimits
from tests.broker_plugin.embedded.harness import Client, Harness, got, properties, queue_of
from tests.broker_plugin.embedded.local_ledger import LocalLedger
from tests.broker_plugin.embedded.queues.test_pages import SMALL, asked, consumer, stored, until
from txobserver.events import Delivered, Removal
from txobserver.message_size import size_of
from txobserver.ports.store import Asked, MemoryBase, Page


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
        assert consumer.deliveries == [], "its watermark was told long ago"
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
        assert len(queue_of(harness)._supply.window) == 9
        assert client.count("q") == 199

    def test_bytes_bound_it_too(self) -> None:
        harness = Harness(WindowLimits(1000, 50))
        client = harness.client()
        client.declare("q")
        client.publish("q", *[b"x" * 20] * 30)
        harness.settle()
        assert len(queue_of(harness)._supply.window) == 3
        assert client.drain("q") == [b"x" * 20] * 30

    def test_headers_are_bytes_too(self) -> None:
        """Messages without a body may have headers as large as a frame: 4000 of them were held for each queue."""
        harness = Harness(WindowLimits(1000, 5_000))
        client = harness.client()
        client.declare("q")
        for _ in range(30):
            client.channel.publish("", "q", False, properties({"large": "x" * 1000}), b"")
        harness.settle()
        assert len(queue_of(harness)._supply.window) == 5
        assert harness.ledger.contents.dirty_bytes > 30 * 1000
        assert client.drain("q") == [b""] * 30

    def test_many_queues_hold_no_more_than_they_may_together(self) -> None:
        """Each window held 8 MiB, so a thousand queues held 8 GiB: whether clients took anything from them or not."""
        limits, bodies = WindowLimits(1000, 2_000, together=40_000, least=1_000), [b"%0100d" % n for n in range(60)]
        harness = Harness(limits)
        names = [f"q{number}" for number in range(40)]
        client = harness.client()
        most = limits.together + 5 * limits.bytes + len(names) * (limits.least + OVERHEAD + 200)

        def held() -> int:
            queues = cast("list[DurableQueue]", [harness.broker.topology.queues[name] for name in names])
            found = [message for queue in queues for _, _, message in queue._supply.window]
            found += [message for queue in queues for message in queue._supply.given_back.loaded.values()]
            weight = sum(size_of(message) + OVERHEAD for message in found)
            assert queues[0]._supply._windows.held == weight, "what is counted is what is there"
            return weight

        for name in names:
            client.declare(name)
            client.publish(name, *bodies)
        harness.settle()
        assert limits.together < held() < most, "without consumers"
        harness.take_over()
        takers = [harness.client() for _ in names]
        for name, taker in zip(names, takers, strict=True):
            taker.channel.qos(2, False)
            taker.channel.consume(name, "", False, False, {})
        harness.settle()
        assert limits.together // 2 < held() < most, "with consumers that do not go on"
        for taker in takers[::2]:
            taker.channel.close()
        harness.settle()
        assert held() < most
        takers[::2] = [harness.client() for _ in takers[::2]]
        for name, taker in zip(names[::2], takers[::2], strict=True):
            taker.channel.consume(name, "", False, False, {})
        harness.settle()
        assert [taker.bodies for taker in takers[::2]] == [bodies] * 20, "each goes on with what it may hold"
        for _ in bodies:
            for taker in takers[1::2]:
                taker.channel.ack(0, True)
            harness.settle()
        assert [taker.bodies for taker in takers[1::2]] == [bodies] * 20 and held() == 0

    @pytest.mark.parametrize("end", ["purge", "delete"])
    def test_what_a_queue_held_is_free_when_it_is_emptied(self, harness: Harness, client: Client, end: str) -> None:
        client.publish("q", *[b"x" * 100] * 50)
        harness.settle()
        windows = queue_of(harness)._supply._windows
        assert windows.held == 50 * (OVERHEAD + size_of(queue_of(harness)._supply.window[0][2]))
        operations = harness.broker.operations
        if end == "purge":
            operations.queues.purge(client.channel, "q", lambda count: None)
        else:
            operations.deletions.delete(client.channel, "q", False, False, lambda count: None)
        harness.settle()
        assert windows.held == 0

    @pytest.mark.parametrize("state", ["asked for", "given back", "removed"])
    def test_what_a_queue_held_is_free_however_it_goes(self, state: str) -> None:
        """A page on its way, what was read to go out again, and what leaves the window though no consumer held it.

        What stays counted is held for ever: in the end all queues have ``least`` only.
        """
        harness, _ = stored(*[b"%0100d" % n for n in range(30)])
        queue, windows = queue_of(harness), queue_of(harness)._supply._windows
        client = asked(harness)
        assert windows.held > 0 == len(queue._supply.window)
        late = harness.ledger.reader.pages.copy()
        if state == "asked for":
            harness.ledger.reader.pages.clear()
        else:
            late.clear()
        if state == "given back":
            until(harness, lambda: len(client.deliveries) == 30)
            assert windows.held == 0 and not queue._supply.given_back.loaded
            client.channel.close()
            client = consumer(harness, prefetch=1)
            until(harness, lambda: len(client.deliveries) == 1)
            assert queue._supply.given_back.loaded
        if state == "removed":
            client.channel.close()
            until(harness, lambda: not harness.ledger.reader.pages)
            offset, rid, message = queue._supply.window[1]
            before = windows.held
            harness.ledger.settle(queue.number, [(offset, rid)], Removal.ACKED)
            until(harness, lambda: all(each[0] != offset for each in queue._supply.window))
            assert windows.held == before - size_of(message) - OVERHEAD
        harness.broker.operations.deletions.delete(harness.client().channel, "q", False, False, lambda count: None)
        while not queue.deleted:
            harness.turn()
            harness.ledger.commit()
        assert (windows.held > 0) == (state == "asked for")
        harness.ledger.reader.pages += late
        harness.settle()
        harness.ledger.reader.step()
        assert windows.held == 0

    def test_every_message_is_read_once(self, deep: tuple[Harness, Client], base: CountingBase) -> None:
        _, client = deep
        assert client.drain("q") == [b"%d" % n for n in range(200)]
        assert base.count == 200

    def test_no_more_is_read_than_may_be_held(self, base: CountingBase) -> None:
        """Small messages are mostly overhead: of a page of as many as their bytes allow, most were read for nothing."""
        harness = Harness(WindowLimits(1000, 8_000, together=0, least=6_100), LocalLedger(base=base))
        client = harness.client()
        client.declare("q")
        client.publish("q", *SMALL * 10)
        harness.settle()
        harness.take_over()
        client = harness.client()
        assert client.drain("q") == SMALL * 10
        assert base.count <= 200 + FIRST_PAGE, "only the first page is asked for without knowing their size"

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
        assert not queue._supply.window and all(isinstance(rid, int) for rid in queue._out.values())
        client.channel.recover()
        harness.settle()
        assert client.bodies[200:] == client.bodies[:200]
