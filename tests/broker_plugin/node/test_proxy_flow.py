"""The front door of a backup: who reads slowly slows the other side, and what is held is bounded."""

from __future__ import annotations

from typing import Any

from broker_plugin.node.descriptors import Room
from broker_plugin.node.proxy import FrontDoor, PrimarySide
from tests.support.guards import strict_guard


class Slow:
    """A transport that notes whether it is read."""

    def __init__(self) -> None:
        self.reads = True
        self.closed = False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: bytes) -> None:
        """Nothing."""

    def close(self) -> None:
        self.closed = True


def passing() -> tuple[FrontDoor, Slow, Slow]:
    """A door between a client and a primary."""
    door: Any = FrontDoor(strict_guard(), lambda: None, set(), Room(1 << 20, "clients"))
    client, primary = Slow(), Slow()
    side: Any = PrimarySide.__new__(PrimarySide)
    side.guard, side._door, side._transport, side._reached = door.guard, door, primary, True
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
    door.primary_lost()
    assert door._other is None and not client.closed


def test_what_is_held_for_a_primary_that_is_silent_is_bounded() -> None:
    door, client, _ = passing()
    door.data_received(bytes(1 << 20))
    assert client.reads
    door.data_received(b"x")
    assert not client.reads
    door.from_primary(b"answer")
    assert client.reads
    door.data_received(b"more")
    assert client.reads
