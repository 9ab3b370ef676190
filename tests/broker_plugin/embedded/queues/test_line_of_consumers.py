"""The line of a queue's consumers: nothing costs in proportion to their number."""

from __future__ import annotations

from typing import Any

import pytest

from broker_plugin.embedded.queues.subscriber import Subscriber
from tests.broker_plugin.embedded.harness import Harness, queue_of

pytestmark = pytest.mark.plain


class Counted(Subscriber):
    """Counts with how many others it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return self is other

    __hash__ = object.__hash__

    def capacity(self) -> int:
        return 0

    def deliver(self, taken: Any) -> None:
        raise AssertionError("it takes none")

    def gone(self) -> None:
        """Nothing to do."""


def test_a_consumer_is_found_without_a_look_at_the_others() -> None:
    """``twenty_thousand_consumers_go``: each was searched for in the line of all."""
    harness = Harness()
    harness.client().declare("q")
    queue, line = queue_of(harness), [Counted() for _ in range(500)]
    for consumer in line:
        queue.add_consumer(consumer, False)
    Counted.compared = 0
    for consumer in reversed(line):
        queue.remove_consumer(consumer)
    assert Counted.compared < len(line), "only where two hash alike"
    assert not queue.consumers


class Patient(Counted):
    """Takes so many messages, and counts how often any is asked for its room."""

    asked = 0

    def __init__(self, room: int) -> None:
        self.room = room
        self.taken = 0

    def capacity(self) -> int:
        Patient.asked += 1
        return self.room - self.taken

    def deliver(self, taken: Any) -> None:
        self.taken += 1


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("room", [0, 1])
def test_a_message_costs_the_same_however_many_consumers_are_full_or_idle(durable: bool, room: int) -> None:
    """``ten_thousand_full_consumers``: each message looked at all of them, full or idle: 3 ms for 10,000."""
    harness = Harness()
    client = harness.client()
    client.declare("q", durable=durable)
    queue, many = harness.broker.topology.queues["q"], [Patient(room) for _ in range(500)]
    for consumer in many:
        queue.add_consumer(consumer, False)
    harness.settle()
    Patient.asked = 0
    for _ in range(20):
        client.publish("q", b"m")
        harness.settle()
    assert Patient.asked <= 20 * 8
    assert sum(consumer.taken for consumer in many) == 20 * room
    first = many[0]
    first.room = first.taken + 30
    queue.may_take(first)
    harness.settle()
    assert first.taken == room + (0 if room else 20), "who has room again is served"
