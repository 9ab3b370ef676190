"""Faults in bringing a joiner up to date."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from ha.backup.progress_reports import ProgressReports
from ha.catchup.queue_replicator import QueueReplicator
from ha.catchup.resync import Resync
from ha.catchup.snapshot_end import Ending
from ha.messages.copying import SnapshotConfiguration, SnapshotEnd, SnapshotPart
from tests.simulation.seeded.planting import replace, seeded
from txobserver.configuration import Configuration
from txobserver.ids import Position
from txobserver.state.queues import Queues


@seeded("P6", "P7", first=9)
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


@seeded("P6", "P7", first=19)
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
    """It is sent as it is when its turn comes, which is behind the queues."""

    def make(original: Any) -> Any:
        def parts(self: Ending) -> Iterator[tuple[SnapshotPart, int]]:
            for part, size in original(self):
                if isinstance(part, SnapshotEnd):
                    yield from self._declared()
                if not isinstance(part, SnapshotConfiguration):
                    yield part, size

        return parts

    def shared(original: Any) -> Any:
        def init(self: Ending, *of_a_joiner: Any) -> None:
            with patch.object(Configuration, "copy", lambda configuration: configuration):
                original(self, *of_a_joiner)

        return init

    replace(stack, Ending, "parts", make)
    replace(stack, Ending, "__init__", shared)


@seeded("P12", first=3)
def surplus_is_not_dropped(stack: ExitStack) -> None:
    def make(original: Any) -> Any:
        def snapshot(self: QueueReplicator, message: Any) -> None:
            with patch.object(Queues, "remove", lambda queues, queue, offset: None):
                original(self, message)

        return snapshot

    replace(stack, QueueReplicator, "snapshot", make)


@seeded("P12", rare=True)
def slow_checkpoints_make_a_resync_begin_anew(stack: ExitStack) -> None:
    """A joiner says nothing while a checkpoint is written: the primary takes it for silent, and all begins anew."""
    replace(stack, ProgressReports, "speak", lambda original: lambda self, session, now: self.tell_fullness(session))
