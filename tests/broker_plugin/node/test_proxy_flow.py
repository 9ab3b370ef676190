"""The front door of a backup: who reads slowly slows the other side, and what is held is bounded."""

from __future__ import annotations

from typing import Any

import pytest

from broker_plugin.amqp.protocol.codec import PROTOCOL_HEADER
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.node.descriptors import Room
from broker_plugin.node.passing import PrimarySide
from broker_plugin.node.proxy import HELD_BYTES, MOST_HELD, FrontDoor
from tests.support.arrivals import arrivals
from tests.support.guards import strict_guard


class Slow:
    """A transport that notes whether it is read."""

    def __init__(self) -> None:
        self.reads = True
        self.closed = self.aborted = False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes) -> None:
        """Nothing."""

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


def passing() -> tuple[FrontDoor, Slow, Slow]:
    """A door between a client and a primary."""
    door: Any = FrontDoor(strict_guard(), lambda: None, set(), Room(1 << 20, "clients"), Logins({}), arrivals())
    client, primary = Slow(), Slow()
    side: Any = PrimarySide.__new__(PrimarySide)
    side.guard, side._door, side._transport, side._reached = door.guard, door, primary, True
    side._introduction = None
    door._transport, door._other = client, side
    return door, client, primary


def test_who_reads_slowly_slows_the_other_side() -> None:
    door, client, primary = passing()
    door.pause_writing()
    assert client.reads and not primary.reads
    door.resume_writing()
    assert primary.reads
    door._other.pause_writing()
    assert primary.reads and not client.reads
    door._other.resume_writing()
    assert client.reads


def test_a_primary_that_ends_behind_its_client_has_nobody_to_tell() -> None:
    door, client, _ = passing()
    door._transport = None
    door.primary_lost(reached=True)
    assert door._other is None and not client.closed


def test_what_is_held_for_a_primary_that_is_silent_is_bounded() -> None:
    door, client, _ = passing()
    door.data_received(bytes(HELD_BYTES))
    assert client.reads
    door.data_received(b"x")
    assert not client.reads
    door.from_primary(b"answer")
    assert client.reads
    door.data_received(b"more")
    assert client.reads


@pytest.mark.parametrize("amqp", [True, False])
def test_a_stranger_who_says_much_to_a_node_without_a_primary(amqp: bool) -> None:
    """``strangers_who_wait_for_a_primary``: a mebibyte was kept for each of a thousand that had not logged in."""
    room = Room(1 << 20, "clients")
    door: Any = FrontDoor(strict_guard(), lambda: None, set(), room, Logins({}), arrivals(), amqp)
    door._transport = client = Slow()
    door.data_received(PROTOCOL_HEADER)
    assert client.reads
    door.data_received(bytes(HELD_BYTES))
    assert not client.reads and not client.aborted
    door.data_received(bytes(MOST_HELD))
    assert client.aborted is amqp and len(door._held) == (0 if amqp else len(PROTOCOL_HEADER) + HELD_BYTES + MOST_HELD)
