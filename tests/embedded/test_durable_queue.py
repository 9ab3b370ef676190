"""Durable queues: what may be handed out and when, the window on the store, and the model they must agree with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker_plugin.embedded.channel import Got
from broker_plugin.embedded.durable_queue import DurableQueue, WindowLimits
from broker_plugin.embedded.queue_operations import QueueState
from tests.embedded.harness import Client, Harness
from txobserver.events import Delivered, Removal, Settle
from txobserver.store import Entry


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.declare("q")
    return client


def queue_of(harness: Harness) -> DurableQueue:
    queue = harness.broker.topology.queues["q"]
    assert isinstance(queue, DurableQueue)
    return queue


def got(answer: Got | None) -> Got:
    assert answer is not None
    return answer


class TestVisibility:
    """PROTOCOL, "A transaction", 4: nothing is seen before the commit point."""

    def test_not_counted_before_the_commit_point(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"m")
        harness.turn()
        states: list[QueueState] = []
        harness.broker.queue_operations.declare_passive(harness.client().channel, "q", states.append)
        answers = harness.client().ask_get("q")
        harness.turn()
        assert states[0].messages == 0 and answers == [None]
        harness.settle()
        assert harness.client().count("q") == 1

    def test_not_delivered_before_the_commit_point(self, harness: Harness, client: Client) -> None:
        consumer = harness.client()
        consumer.channel.consume("q", "c", False, False, {})
        client.publish("q", b"m")
        harness.turn()
        assert consumer.deliveries == []
        harness.ledger.commit()
        harness.turn()
        assert consumer.bodies == [b"m"]

    def test_the_mark_comes_with_the_message_when_a_consumer_waits(self, harness: Harness, client: Client) -> None:
        client.channel.consume("q", "c", False, False, {})
        client.publish("q", b"1", b"2")
        harness.turn()
        harness.ledger.commit()
        assert [type(event) for event in harness.ledger.log[-3:]][-1] is Delivered
        harness.turn()
        assert client.bodies == [b"1", b"2"]
        assert not harness.ledger.busy, "one round was enough"

    def test_nothing_is_handed_out_beyond_the_mark(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        harness.settle()
        client.channel.consume("q", "c", False, False, {})
        harness.turn()
        assert client.deliveries == [], "the mark has been asked for, but not told"
        harness.ledger.commit()
        harness.turn()
        assert client.bodies == [b"1", b"2"]

    def test_no_more_is_marked_than_consumers_can_take(self, harness: Harness, client: Client) -> None:
        client.channel.qos(1, False)
        client.channel.consume("q", "c", False, False, {})
        for _ in range(3):
            client.publish("q", b"a", b"b")
            harness.ledger.flush()
        harness.settle()
        marks = [event.place for event in harness.ledger.log if isinstance(event, Delivered)]
        assert len(marks) == 1 and client.bodies == [b"a"]

    def test_a_mark_is_asked_for_once(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        harness.settle()
        client.channel.consume("q", "c", False, False, {})
        for _ in range(3):
            queue_of(harness).wake()
            harness.turn()
        harness.settle()
        assert len([event for event in harness.ledger.log if isinstance(event, Delivered)]) == 1

    def test_get_waits_for_the_mark(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1")
        harness.settle()
        answers = client.ask_get("q")
        harness.turn()
        assert answers == []
        harness.ledger.commit()
        harness.turn()
        assert [got(answer).message.body for answer in answers] == [b"1"]

    def test_a_channel_finds_what_it_published_itself(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"mine")
        answers = client.ask_get("q")
        harness.turn()
        assert answers == [], "the publish has no outcome yet"
        harness.settle()
        assert [got(answer).message.body for answer in answers] == [b"mine"]


class TestRedelivery:
    """P3: what may have been handed out is redelivered, what no consumer could have been sent is not."""

    def test_after_a_take_over(self, harness: Harness, client: Client) -> None:
        client.channel.qos(2, False)
        client.channel.consume("q", "c", False, False, {})
        client.publish("q", b"1", b"2", b"3")
        harness.settle()
        assert client.bodies == [b"1", b"2"]
        harness.take_over()
        reader = harness.client()
        flags = [(got(a).message.body, got(a).redelivered) for a in [reader.get("q") for _ in range(3)]]
        assert flags == [(b"1", True), (b"2", True), (b"3", False)]

    def test_given_back_messages_stand_at_their_old_places(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2", b"3")
        tags = [got(client.get("q")).delivery_tag for _ in range(2)]
        client.channel.reject(tags[1], False, True)
        client.channel.reject(tags[0], False, True)
        flags = [(got(a).message.body, got(a).redelivered) for a in [client.get("q") for _ in range(3)]]
        assert flags == [(b"1", True), (b"2", True), (b"3", False)]

    def test_what_was_settled_but_not_committed_comes_again(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1")
        answer = got(client.get("q"))
        client.channel.ack(answer.delivery_tag, False)
        harness.turn()
        assert harness.ledger.busy
        harness.take_over()
        again = got(harness.client().get("q"))
        assert again.message.body == b"1" and again.redelivered

    def test_no_ack_is_marked_before_it_is_handed_out(self, harness: Harness, client: Client) -> None:
        client.channel.consume("q", "c", True, False, {})
        client.publish("q", b"1")
        harness.turn()
        harness.ledger.commit()
        harness.turn()
        assert client.bodies == [b"1"]
        harness.take_over()
        again = got(harness.client().get("q"))
        assert again.redelivered, "it had been sent to a consumer"


class TestSettling:
    """Settlements of one turn share one event."""

    def test_one_event_for_a_turn(self, harness: Harness, client: Client) -> None:
        client.channel.consume("q", "c", False, False, {})
        client.publish("q", *[b"%d" % n for n in range(50)])
        harness.settle()
        before = len(harness.ledger.log)
        for delivery in client.deliveries:
            client.channel.ack(delivery.tag, False)
        harness.settle()
        settles = [event for event in harness.ledger.log[before:] if isinstance(event, Settle)]
        assert len(settles) == 1 and len(settles[0].entries) == 50
        assert client.count("q") == 0

    def test_a_message_removed_while_ready_is_not_handed_out(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        harness.settle()
        first = harness.ledger.contents.ids(queue_of(harness).number)[0]
        harness.ledger.settle(queue_of(harness).number, [first], Removal.EXPIRED)
        harness.settle()
        assert client.count("q") == 1
        assert client.drain("q") == [b"2"]


class TestPurge:
    """queue.purge takes what is ready, and the count is what was really removed."""

    def purge(self, harness: Harness, client: Client) -> int:
        counts: list[int] = []
        harness.broker.queue_operations.purge(client.channel, "q", counts.append)
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
        harness.broker.queue_operations.purge(client.channel, "q", counts.append)
        client.channel.reject(held.delivery_tag, False, True)
        harness.settle()
        assert counts == [1]
        assert client.drain("q") == [b"1"]

    def test_nothing_is_handed_out_meanwhile(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        harness.settle()
        counts: list[int] = []
        harness.broker.queue_operations.purge(client.channel, "q", counts.append)
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
        harness.broker.queue_operations.purge(client.channel, "q", counts.append)
        consumer = harness.client()
        consumer.channel.consume("q", "c", False, False, {})
        harness.turn()
        assert consumer.deliveries == [], "its mark was told long ago"
        harness.settle()
        assert counts == [1] and consumer.deliveries == []

    def test_what_arrives_meanwhile_is_not_marked(self, harness: Harness, client: Client) -> None:
        counts: list[int] = []
        harness.broker.queue_operations.purge(client.channel, "q", counts.append)
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


class CountingContent:
    """Counts what a queue reads from its content."""

    def __init__(self, harness: Harness) -> None:
        self._content = harness.ledger.contents
        self.pages = 0
        self.read = 0
        queue_of(harness)._content = self  # type: ignore[assignment]

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        found = self._content.page(queue, after, limit)
        self.pages += 1
        self.read += len(found)
        return found

    def get(self, queue: int, place: int) -> Entry | None:
        self.read += 1
        return self._content.get(queue, place)


class TestWindow:
    """Memory holds a bounded part of a queue, and reading it costs what is read."""

    @pytest.fixture
    def deep(self) -> Iterator[tuple[Harness, Client]]:
        harness = Harness(WindowLimits(10, 10_000))
        client = harness.client()
        client.declare("q")
        client.publish("q", *[b"%d" % n for n in range(200)])
        harness.settle()
        yield harness, client

    def test_memory_is_bounded(self, deep: tuple[Harness, Client]) -> None:
        harness, client = deep
        assert len(queue_of(harness)._window) == 10
        assert client.count("q") == 200

    def test_bytes_bound_it_too(self) -> None:
        harness = Harness(WindowLimits(1000, 50))
        client = harness.client()
        client.declare("q")
        client.publish("q", *[b"x" * 20] * 30)
        harness.settle()
        assert len(queue_of(harness)._window) == 3
        assert client.drain("q") == [b"x" * 20] * 30

    def test_every_message_is_read_once(self, deep: tuple[Harness, Client]) -> None:
        harness, client = deep
        content = CountingContent(harness)
        assert client.drain("q") == [b"%d" % n for n in range(200)]
        assert content.read <= 200

    def test_counting_and_acknowledging_read_nothing(self, deep: tuple[Harness, Client]) -> None:
        harness, client = deep
        content = CountingContent(harness)
        answer = got(client.get("q"))
        client.channel.ack(answer.delivery_tag, False)
        client.publish("q", b"more")
        assert client.count("q") == 200
        assert content.read <= 20

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


class QueueMachine(RuleBasedStateMachine):
    """A durable queue with a tiny window against a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = Harness(WindowLimits(3, 40))
        self.client = self.harness.client()
        self.client.declare("q")
        self.ready: list[tuple[int, bool]] = []
        self.held: dict[int, int] = {}
        self.next = 0

    @rule(count=st.integers(1, 6))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.client.publish("q", b"%d" % self.next)
            self.ready.append((self.next, False))
            self.next += 1
        self.harness.settle()

    @rule(no_ack=st.booleans())
    def get(self, no_ack: bool) -> None:
        answer = self.client.get("q", no_ack)
        if not self.ready:
            assert answer is None
            return
        number, redelivered = self.ready.pop(0)
        assert answer is not None
        assert (int(answer.message.body), answer.redelivered) == (number, redelivered)
        assert answer.remaining == len(self.ready)
        if not no_ack:
            self.held[answer.delivery_tag] = number

    @precondition(lambda self: self.held)
    @rule(data=st.data(), requeue=st.booleans(), multiple=st.booleans())
    def settle(self, data: st.DataObject, requeue: bool, multiple: bool) -> None:
        tag = data.draw(st.sampled_from(sorted(self.held)))
        tags = [each for each in self.held if each <= tag] if multiple else [tag]
        numbers = [self.held.pop(each) for each in tags]
        if requeue:
            self.client.channel.reject(tag, multiple, True)
            self.ready = sorted([*self.ready, *((number, True) for number in numbers)])
        else:
            self.client.channel.ack(tag, multiple)
        self.harness.settle()

    @rule()
    def purge(self) -> None:
        counts: list[int] = []
        self.harness.broker.queue_operations.purge(self.client.channel, "q", counts.append)
        self.harness.settle()
        assert counts == [len(self.ready)]
        self.ready = []

    @rule()
    def take_over(self) -> None:
        mark = self.harness.ledger.contents.summary(queue_of(self.harness).number).mark
        ids = self.harness.ledger.contents.ids(queue_of(self.harness).number)
        self.harness.take_over()
        self.client = self.harness.client()
        everything = sorted([number for number, _ in self.ready] + list(self.held.values()))
        assert len(ids) == len(everything)
        self.ready = [(number, place <= mark) for number, (place, _) in zip(everything, ids, strict=True)]
        self.held = {}

    @rule()
    def consume_everything(self) -> None:
        consumer = self.harness.client()
        consumer.channel.consume("q", "c", False, False, {})
        self.harness.settle()
        assert [(int(d.body), d.redelivered) for d in consumer.deliveries] == self.ready
        consumer.channel.close()
        self.harness.settle()
        self.ready = [(number, True) for number, _ in self.ready]

    @invariant()
    def count_and_window(self) -> None:
        assert self.client.count("q") == len(self.ready)
        queue = queue_of(self.harness)
        assert len(queue._window) <= 3
        assert queue._window_bytes == sum(len(entry[2].body) for entry in queue._window)


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestQueueMachine = QueueMachine.TestCase
