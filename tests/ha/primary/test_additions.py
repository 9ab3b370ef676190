"""Credit: what is granted is used once, for the messages behind those that the host knows of, and for nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ha.primary.additions import MANY, Additions
from tests.support.operations import lines_of
from txobserver.events import Delivered, Message, TxEnqueue
from txobserver.ports.store import MemoryBase, Meta
from txobserver.state.contents import Contents
from txobserver.tx_buffer import TxBuffer


class GrantingHost:
    """Grants ``room`` for each group, and notes what arrives."""

    def __init__(self, additions: Additions, room: int = 0) -> None:
        self.additions = additions
        self.room = room
        self.arrived: list[tuple[int, int]] = []

    def announced(self, queue: int) -> int:
        return sum(messages for number, messages in self.arrived if number == queue)

    def on_arriving(self, queue: int, messages: int) -> None:
        before = self.announced(queue)
        self.arrived.append((queue, messages))
        if self.room:
            self.additions.grant(queue, self.room, before)


def additions(*queues: int) -> Additions:
    contents = Contents(MemoryBase(), Meta())
    for queue in queues:
        contents.queues.add(queue)
    return Additions(contents.queues)


def raised(found: Additions, host: GrantingHost, queue: int, *offsets: int) -> list[Delivered]:
    for offset in offsets:
        found.add([queue], offset)
    return list(found.end(host))  # type: ignore[arg-type]


def test_without_credit_nothing_is_raised_and_the_host_is_told_once() -> None:
    found = additions(1)
    host = GrantingHost(found)
    assert raised(found, host, 1, 10, 11) == [] and host.arrived == [(1, 2)]
    assert raised(found, host, 1) == [] and host.arrived == [(1, 2)]


def test_what_is_granted_ahead_is_used_once() -> None:
    found = additions(1)
    host = GrantingHost(found)
    found.grant(1, 3, 0)
    assert raised(found, host, 1, 10, 11) == [Delivered(1, 11)]
    assert raised(found, host, 1, 12, 13) == [Delivered(1, 12)]
    assert raised(found, host, 1, 14) == []


def test_what_is_granted_at_the_last_moment_counts() -> None:
    found = additions(1)
    host = GrantingHost(found, room=1)
    assert raised(found, host, 1, 10, 11) == [Delivered(1, 10)]
    assert raised(found, host, 1, 12, 13) == [Delivered(1, 12)]


def test_what_has_arrived_unseen_by_the_host_has_used_its_part() -> None:
    """P3: of the five that the host speaks of, three had come before it was told: no more than two are left."""
    found = additions(1)
    host = GrantingHost(found)
    assert raised(found, host, 1, 10, 11, 12) == []
    found.grant(1, 5, 0)
    assert raised(found, host, 1, 13, 14, 15) == [Delivered(1, 14)]
    found.grant(1, 4, 2)
    assert raised(found, host, 1, 16) == []


def test_a_grant_takes_the_place_of_the_one_before() -> None:
    found = additions(1)
    host = GrantingHost(found)
    found.grant(1, 5, 0)
    found.grant(1, 1, 0)
    assert raised(found, host, 1, 10, 11) == [Delivered(1, 10)]
    found.grant(1, 5, 2)
    found.grant(1, 0, 2)
    assert raised(found, host, 1, 12) == []


def test_each_queue_has_credit_of_its_own() -> None:
    found = additions(1, 2)
    host = GrantingHost(found)
    found.grant(2, 5, 0)
    found.add([1, 2], 10)
    assert list(found.end(host)) == [Delivered(2, 10)] and host.arrived == [(1, 1), (2, 1)]  # type: ignore[arg-type]


def test_what_comes_while_no_client_is_served_uses_no_credit() -> None:
    found = additions(1)
    found.grant(1, 1, 0)
    found.add([1], 10)
    assert list(found.end(None)) == []
    assert raised(found, GrantingHost(found), 1, 11) == [Delivered(1, 11)]


@pytest.mark.parametrize(
    ("messages", "announced", "why"),
    [
        (-1, 0, "no message or more, not for -1"),
        (1, 3, "2 messages of queue 1 have been announced, and not 3"),
        (1, -1, "and not -1"),
    ],
)
def test_credit_that_cannot_be_is_refused(messages: int, announced: int, why: str) -> None:
    found = additions(1)
    host = GrantingHost(found)
    raised(found, host, 1, 8, 9)
    found.grant(1, 1, 2)
    with pytest.raises(ValueError, match=why):
        found.grant(1, messages, announced)
    assert raised(found, host, 1, 10, 11) == [Delivered(1, 10)]


def test_credit_of_no_queue_is_not_kept_and_nothing_is_announced_for_it() -> None:
    found = additions(1)
    host = GrantingHost(found)
    found.grant(7, 1, 0)
    assert raised(found, host, 7, 10) == [] and host.arrived == []
    found.grant(1, 1, 0)
    assert raised(found, host, 1, 11) == [Delivered(1, 11)]
    found.queue_deleted(1)
    assert found._limits == found._announced == {}


def great(queues: Sequence[int], count: int) -> TxBuffer:
    """A transaction that is announced by counts."""
    buffer = TxBuffer(7, 1)
    for at in range(count):
        buffer.add(2 + at, TxEnqueue(7, at, tuple(queues), Message("", "", b"", b"")))
    assert buffer.steps > MANY
    return buffer


@pytest.mark.parametrize(
    ("credit", "marked"),
    [(1, 10), (2, 11), (3, 11), (2 + MANY, 11), (3 + MANY, 11), (4 + MANY, 20), (5 + MANY, 21), (9 + MANY, 21)],
)
def test_a_great_transaction_uses_credit_and_is_not_marked(credit: int, marked: int) -> None:
    """What stands before it is marked without it, what stands behind it only if there is credit for all of it."""
    found = additions(1, 2)
    host = GrantingHost(found)
    found.grant(1, credit, 0)
    for offset in (10, 11):
        found.add([1], offset)
    found.committed(great([1, 2], MANY + 1))
    for offset in (20, 21):
        found.add([1], offset)
    assert list(found.end(host)) == [Delivered(1, marked)]  # type: ignore[arg-type]
    assert host.arrived == [(1, MANY + 5), (2, MANY + 1)], "each queue once, with all that comes"


def test_the_cost_of_a_great_transaction_does_not_grow_with_it() -> None:
    costs = []
    for count in (MANY + 1, 3 * MANY):
        found, buffer = additions(1), great([1], count)
        costs.append(lines_of(lambda f=found, b=buffer: f.committed(b)))  # type: ignore[misc]
    assert costs[0] == costs[1]
