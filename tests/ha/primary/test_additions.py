"""Credit: what is granted is used once, for the first messages that come, and for nothing else."""

from __future__ import annotations

import pytest

from ha.primary.additions import Additions
from txobserver.events import Delivered
from txobserver.ports.ledger import MOST_CREDIT
from txobserver.ports.store import MemoryBase, Meta
from txobserver.state.contents import Contents


class GrantingHost:
    """Grants ``room`` for each group, and notes what arrives."""

    def __init__(self, additions: Additions, room: int = 0) -> None:
        self.additions = additions
        self.room = room
        self.arrived: list[tuple[int, int]] = []

    def on_arriving(self, queue: int, messages: int) -> None:
        self.arrived.append((queue, messages))
        if self.room:
            self.additions.grant(queue, self.room)


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
    found.grant(1, 2)
    found.grant(1, 1)
    assert raised(found, host, 1, 10, 11) == [Delivered(1, 11)]
    assert raised(found, host, 1, 12, 13) == [Delivered(1, 12)]
    assert raised(found, host, 1, 14) == []


def test_what_is_granted_at_the_last_moment_counts() -> None:
    found = additions(1)
    assert raised(found, GrantingHost(found, room=1), 1, 10, 11) == [Delivered(1, 10)]


def test_each_queue_has_credit_of_its_own() -> None:
    found = additions(1, 2)
    host = GrantingHost(found)
    found.grant(2, 5)
    found.add([1, 2], 10)
    assert list(found.end(host)) == [Delivered(2, 10)] and host.arrived == [(1, 1), (2, 1)]  # type: ignore[arg-type]


def test_what_comes_while_no_client_is_served_uses_no_credit() -> None:
    found = additions(1)
    found.grant(1, 1)
    found.add([1], 10)
    assert list(found.end(None)) == []
    assert raised(found, GrantingHost(found), 1, 11) == [Delivered(1, 11)]


@pytest.mark.parametrize("messages", [0, -1])
def test_no_credit_is_refused(messages: int) -> None:
    found = additions(1)
    found.grant(1, 1)
    with pytest.raises(ValueError, match=f"one message or more, not for {messages}"):
        found.grant(1, messages)
    assert raised(found, GrantingHost(found), 1, 10, 11) == [Delivered(1, 10)]


def test_credit_is_bounded_and_that_of_no_queue_is_not_kept() -> None:
    found = additions(1)
    for _ in range(3):
        found.grant(1, MOST_CREDIT)
    found.grant(7, 1)
    assert found._credit == {1: MOST_CREDIT}
    found.queue_deleted(1)
    assert found._credit == {}

