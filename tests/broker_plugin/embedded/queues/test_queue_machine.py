"""A durable queue with a tiny window against a plain list, through take-overs too."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.embedded.harness import Harness, queue_of
from tests.support.examples import examples
from txobserver.message_size import size_of

pytestmark = pytest.mark.fuzz


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
        self.harness.broker.operations.queues.purge(self.client.channel, "q", counts.append)
        self.harness.settle()
        assert counts == [len(self.ready)]
        self.ready = []

    @rule()
    def take_over(self) -> None:
        watermark = self.harness.ledger.contents.queues.summary(queue_of(self.harness).number).watermark
        ids = self.harness.ledger.contents.messages.ids(queue_of(self.harness).number)
        self.harness.take_over()
        self.client = self.harness.client()
        everything = sorted([number for number, _ in self.ready] + list(self.held.values()))
        assert len(ids) == len(everything)
        self.ready = [(number, offset <= watermark) for number, (offset, _) in zip(everything, ids, strict=True)]
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
        assert len(queue._supply.window) <= 3
        assert queue._supply.window_bytes == sum(size_of(entry[2]) for entry in queue._supply.window)


QueueMachine.TestCase.settings = examples(60, stateful_step_count=30)
TestQueueMachine = QueueMachine.TestCase
