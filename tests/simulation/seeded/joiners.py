"""Faults in bringing a joiner up to date."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from ha.queue_replicator import QueueReplicator
from ha.resync import Resync
from tests.simulation.seeded.planting import replace, seeded
from txobserver.contents import Contents
from txobserver.ids import Position


@seeded("P6", "P7")
def snapshot_ends_one_event_early(stack: ExitStack) -> None:
    """What the skip sets of seed 003 were for: an event reaches the joiner twice."""

    def make(original: Any) -> Any:
        def end(self: QueueReplicator, message: Any) -> None:
            original(self, message)
            generation, sequence = message.position
            message.position = Position(generation, sequence - 1)

        return end

    replace(stack, QueueReplicator, "end", make)
    _stream_from(stack, -1)


@seeded("P6", "P7")
def snapshot_ends_one_event_late(stack: ExitStack) -> None:
    """An event behind the snapshot never reaches the joiner."""

    def make(original: Any) -> Any:
        def end(self: QueueReplicator, message: Any) -> None:
            original(self, message)
            generation, sequence = message.position
            message.position = Position(generation, sequence + 1)

        return end

    replace(stack, QueueReplicator, "end", make)
    _stream_from(stack, 1)


def _stream_from(stack: ExitStack, shift: int) -> None:
    """The primary goes along: it takes the shifted end for the end."""

    def make(original: Any) -> Any:
        def end(self: Resync) -> None:
            original(self)
            assert self.ended_at is not None
            self.ended_at += shift

        return end

    replace(stack, Resync, "_end", make)


@seeded("P7", "error", rare=True)
def snapshot_with_later_configuration(stack: ExitStack) -> None:
    from txobserver.configuration import Configuration

    def make(original: Any) -> Any:
        def end(self: Resync) -> None:
            with patch.object(Configuration, "copy", lambda configuration: configuration):
                original(self)

        return end

    replace(stack, Resync, "_end", make)


@seeded("P12")
def surplus_is_not_dropped(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def snapshot(self: QueueReplicator, message: Any) -> None:
            with patch.object(Contents, "remove", lambda contents, queue, place: None):
                original(self, message)

        return snapshot

    replace(stack, QueueReplicator, "snapshot", make)
