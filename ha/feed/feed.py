"""Feed: what has passed the commit point on this node, for all who follow it: readers of the log, replicants, doors.

Promise: a reader that goes by its cursor gets every event once, in the order of the stream, whichever node it asks, and
nothing that a take-over could throw away. Where an operator has accepted the loss of what it was given, it is told so,
and gets nothing else.

API: a cursor is the position of the last event that was read. ``read`` answers with frames (``Passed``), or says that
they are to be read from this node's log (``OnDisk``), or that the cursor is on another history (``Parted``). Who waits
for more is told by ``watch``.

Algorithm: every node keeps the newest frames of its log in memory, whatever its role is, as its log is changed
(``changes``). What has passed the commit point is what the replica has applied. A reader that is further behind reads
the log, so a slow one costs no memory; frames are shared with the primary's fanout.

Why a cursor outlives a take-over: what has passed the commit point is on every member that may become primary, so no
later generation begins before it, and two logs that have the same generation at one sequence are the same up to there.
So a cursor (generation, sequence) is good on any node that has this generation there, or has not come so far. Only the
accepted loss of data lets a later generation begin at or before what has passed: then the generations differ.

What would break a simpler version: a cursor that is a sequence alone goes on over such a loss as if nothing had been;
what is written and has not passed is cut off at a take-over (``cut``), and another event gets its sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ha.apply.replica import Replica
from ha.effects import Persist, ResetLog, Truncate, WriteCheckpoint
from ha.feed.recent_frames import RecentFrames
from txobserver.frames import Frame
from txobserver.ids import LAST_SEQUENCE, Position

BEGINNING = Position(0, 0)
"""The cursor of a reader that has read nothing"""


class Passed(NamedTuple):
    """Frames in order, which have passed the commit point; none if there is nothing new.

    The first one may begin before the cursor. ``after``: the cursor behind them.
    """

    frames: list[Frame]
    after: Position


class OnDisk(NamedTuple):
    """The events from ``first`` to ``last`` have passed the commit point, and are read from this node's log."""

    first: int
    last: int


class Parted(NamedTuple):
    """The event at the cursor is lost: an operator has accepted that, and this node's history goes on without it.

    ``generation``: of the event at its sequence here, or of the last one that has passed, if that is before it.
    """

    generation: int


Reading = Passed | OnDisk | Parted


class Feed:
    """Of one node, for as long as its process lives. Cursors of generation 0 name no history: none is compared.

    ``replica`` is asked what has passed; at most ``limit_bytes`` of frames, or one frame, are kept in memory.
    """

    def __init__(self, replica: Replica, limit_bytes: int) -> None:
        self._replica = replica
        self._recent = RecentFrames(limit_bytes)
        self._watchers: list[Callable[[], None]] = []
        self._told = replica.applied

    @property
    def commit(self) -> int:
        """The sequence up to which this node knows that nothing will be cut; it knows of less than the primary."""
        return self._replica.applied.sequence

    # -- who follows

    def read(self, after: Position, max_bytes: int, last: int = LAST_SEQUENCE) -> Reading:
        """What stands behind ``after``: frames with events up to ``last``, ``max_bytes`` of them, or one frame."""
        if (generation := self.parted(after)) is not None:
            return Parted(generation)
        commit = self.commit
        first, last = after.sequence + 1, min(last, commit)
        if first > last:
            return Passed([], after)
        frames = self._recent.read(first, last, max_bytes)
        if not frames:
            return OnDisk(first, last)
        frames[-1] = up_to(frames[-1], commit)
        return Passed(frames, frames[-1].position)

    def parted(self, position: Position) -> int | None:
        """None if the event at this position is on this node's history, or may come; else ``Parted.generation``.

        To be asked again of the last event of what was read from the log: a copy of the queues may have ended
        meanwhile, with which this node has gone over to another history.
        """
        if not position.generation:
            return None
        commit = self.commit
        here = self._replica.position_of(min(position.sequence, commit)).generation
        if position.sequence <= commit:
            return None if here == position.generation else here
        return None if here <= position.generation else here

    def watch(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call this at the end of each turn in which something has passed; returns what ends that."""
        self._watchers.append(call)

        def end() -> None:
            if call in self._watchers:
                self._watchers.remove(call)

        return end

    # -- the log of this node

    def changes(self, write: Persist | Truncate | ResetLog | WriteCheckpoint) -> None:
        """The node's store is given this to do, in this order."""
        if type(write) is Persist:
            self._recent.add(write.frame)
        elif type(write) is Truncate:
            self._recent.cut(write.last)
        elif type(write) is ResetLog:
            self._recent.cut(0)

    def tell(self) -> None:
        """At the end of each turn: tell the watchers if something has passed since the last one, or was thrown away.

        A copy of the queues may end at the very sequence that had passed before, in another generation
        (``copy_ends_where_the_lost_history_did``): a reader who was told of nothing would wait for what never comes.
        """
        applied = self._replica.applied
        if applied != self._told:
            self._told = applied
            for call in list(self._watchers):
                call()


def up_to(frame: Frame, commit: int) -> Frame:
    """What of this frame has passed; its first event has."""
    return frame if frame.last <= commit else frame.part(frame.first, commit)
