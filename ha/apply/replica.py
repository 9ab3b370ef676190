"""Replica: one node's copy of the stream, what of it may be applied, and what it leads to.

Events are taken in as they arrive (``receive``) or are made (``append``): they build TxBuffers at once, so that a
node can vote on a prepare, but touch no queue. Only what has passed the commit point is applied, in stream order, on
the primary and on backups by the same code; so queues agree wherever positions do (P7), nothing of an undecided
transaction ever reaches a queue (P9), and a log suffix that must be thrown away was never applied.

Most events are parts of transactions. They wait in their TxBuffer for the decision, and only there: to apply one of
them means to go past it.

A turn of the loop has room for so many steps (``apply``). What is due beyond that is applied in later turns, in order,
and an event that takes several turns, a decision mostly, is one step all the same (``ha.apply.applier``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable

from ha.apply.applied import Applied
from ha.apply.applier import DIVISIBLE, Applier, EventParts
from ha.apply.buffers import Buffers
from txobserver.access import Access
from txobserver.actions import SHIPPED, ActionRegistry
from txobserver.calls import KeptCalls
from txobserver.configuration import OPERATIONS, Configuration, UnknownStep, check_step
from txobserver.events import (
    Configure,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Event,
    GlobalDecision,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxEvent,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.frames import Frame
from txobserver.ids import LAST_CONFIG_ID, LAST_SEQUENCE, Position
from txobserver.outcomes import OutcomesMeta, Remembered
from txobserver.ports.store import Base, Checkpoint, Meta
from txobserver.state.contents import Contents
from txobserver.table import IllegalTransition
from txobserver.tx_buffer import TxBuffer

_WAITS: dict[type, bool] = {DtxOpen: True, TxToken: True, DtxPrepare: False, DtxDecision: False}
"""Parts of transactions that are seldom, and whether they only wait in their TxBuffer."""


UNHEARD = Applied()
ALL = 1 << 62
"""More steps than there can be"""


class GapInStream(Exception):
    """A frame does not continue the log, or its events do not follow from what is there."""


class UnknownEvents(GapInStream):
    """A whole frame holds what this version of txha does not know: a kind of event, a field, a configuration step."""


class Replica:
    """The stream as this node holds it. Sequences up to ``durable`` are on this node's disk.

    Many methods: one for each thing that every role asks of the stream, and does to it.

    ``operations``: the steps of configuration that this node knows; ``actions``: what calls may name. ``rests``: a
    checkpoint is due, and waits for the end of a decision that is being applied in parts; nothing more is applied then
    until it has begun.
    """

    def __init__(
        self,
        base: Base,
        meta: Meta,
        transactions: dict[int, list[tuple[int, TxEvent]]],
        remembered: Iterable[Remembered] = (),
        operations: Container[str] = OPERATIONS,
        actions: ActionRegistry = SHIPPED,
    ) -> None:
        self._operations = operations
        self.actions = actions
        self.contents = Contents(base, meta, remembered)
        self.history: list[Position] = list(meta.history)
        self._generation, self._sequence = meta.applied
        self.durable = meta.applied.sequence
        self.resyncing = meta.resyncing
        self._whole = not meta.resyncing
        self._snapshots = 0
        self._saved_snapshots = 0
        self._unapplied: deque[tuple[int, int, Event]] = deque()
        self._buffers = Buffers(self.contents.table, meta.applied.sequence, self.contents.leftovers)
        self._applier = Applier(self.contents, self._buffers)
        self._parts: EventParts | None = None
        self.rests = False
        self.buffers = self._buffers.open
        self._buffers.rebuild(transactions, meta.applied.sequence)

    @property
    def applied(self) -> Position:
        """The last applied event."""
        return self.contents.applied

    @property
    def in_parts(self) -> bool:
        """Whether a decision has been applied to some of what it changes: ``applied`` stands before it."""
        return self._parts is not None

    @property
    def begun(self) -> int:
        """The last sequence whose application has begun: it has passed the commit point and cannot be undone."""
        return self.contents.applied.sequence if self._parts is None else self._unapplied[0][0]

    def due(self, commit: int) -> bool:
        """Whether something up to sequence ``commit`` could be applied now, or a decision is being applied in parts."""
        if self._parts is not None:
            return True
        return bool(self._unapplied) and self._unapplied[0][0] <= commit and not self.rests and not self.resyncing

    @property
    def whole(self) -> bool:
        """Whether this node's disk holds what a prefix of the stream leads to.

        It does not from the beginning of a resync until the checkpoint that holds the whole snapshot is durable.
        """
        return self._whole

    @property
    def tail(self) -> Position:
        """The last event that is here."""
        return Position(self._generation, self._sequence)

    def append(self, generation: int, event: Event) -> int:
        """Take an event made here; returns its sequence.

        Raises UnknownStep, ValueError, IllegalTransition for one that cannot be, and its position is not given away
        then: a position without an event would be a gap in the stream (``host_asks_for_an_unknown_step``).
        """
        sequence = self._sequence + 1
        try:
            self._take(generation, sequence, event)
        except (ValueError, IllegalTransition):
            self.truncate(sequence - 1)
            raise
        return sequence

    def receive(self, frame: Frame) -> list[Event]:
        """Take the next frame of the stream; returns its events.

        Raises GapInStream, and UnknownEvents for what this version of txha does not know; it has taken nothing then.
        """
        before = self.tail
        if frame.first != before.sequence + 1 or frame.generation < before.generation:
            raise GapInStream(f"frame {frame.generation}.{frame.first} does not continue {before}")
        events = _events(frame)
        try:
            if not events or len(events) != frame.count:
                raise ValueError(f"it holds {len(events)} events")
            if frame.last > LAST_SEQUENCE:
                raise ValueError(f"its events go beyond {LAST_SEQUENCE}, the last sequence")
            generation, sequence = frame.generation, frame.first
            for event in events:
                self._take(generation, sequence, event)
                sequence += 1
        except UnknownStep as error:
            self.truncate(before.sequence)
            raise _unknown(frame, error) from None
        except (ValueError, IllegalTransition) as error:
            self.truncate(before.sequence)
            raise GapInStream(f"frame {frame.generation}.{frame.first} cannot be: {error}") from None
        return events

    def restore(self, frame: Frame) -> None:
        """Take a frame that the log held at the start; it may begin within what is applied already.

        Raises UnknownEvents for what this version of txha does not know, GapInStream for what no version writes.
        """
        for offset, event in enumerate(_events(frame)):
            if frame.first + offset > self._sequence:
                try:
                    self._take(frame.generation, frame.first + offset, event)
                except UnknownStep as error:
                    raise _unknown(frame, error) from None
        self.durable = self._sequence

    def truncate(self, last: int) -> None:
        """Forget everything after sequence ``last``, none of which is applied."""
        assert last >= self.begun, "what is applied has passed the commit point and is never cut"
        while self._unapplied and self._unapplied[-1][0] > last:
            self._unapplied.pop()
        self.history = [start for start in self.history if start.sequence <= last]
        self._generation, self._sequence = self.position_of(last)
        self.durable = min(self.durable, last)
        self._buffers.truncate(last, self.applied.sequence)

    def position_of(self, sequence: int) -> Position:
        """The position of an event of this log."""
        if self.history and sequence >= self.history[-1].sequence:
            return Position(self.history[-1].generation, sequence)
        generation = max((s.generation for s in self.history if s.sequence <= sequence), default=0)
        return Position(generation, sequence)

    def apply(self, commit: int, listener: Applied = UNHEARD, most: int = ALL) -> int:
        """Carry out what stands up to sequence ``commit``, in order, and tell the listener of it.

        About ``most`` steps, and as many more as a purge or a step of configuration takes; returns how many that room
        was taken up by, which is all of it where there is more to do. What has begun is finished, whatever ``commit``
        is. In a resync there is nothing to carry out.
        """
        if self.resyncing or most <= 0:
            return 0
        left = most
        if self._parts is not None:
            left = self._go_on(self._parts, left, listener)
            if not left:
                return most
        queue, contents, applier = self._unapplied, self.contents, self._applier
        while queue and queue[0][0] <= commit:
            sequence, generation, event = queue[0]
            steps = applier.steps(event)
            if steps > left or self.rests:
                if left < most or self.rests:
                    return most
                if isinstance(event, DIVISIBLE):
                    self._parts = applier.begin_parts(sequence, event, listener)
                    left = self._go_on(self._parts, left, listener)
                    if not left:
                        return most
                    continue
            queue.popleft()
            contents.applied = Position(generation, sequence)
            applier.apply(sequence, event, listener)
            left -= steps
        if commit > contents.applied.sequence:
            contents.applied = self.position_of(commit)
        return most - max(0, left)

    def _go_on(self, parts: EventParts, most: int, listener: Applied) -> int:
        """The next part of the decision that has begun; returns the room that is left when it is whole, else 0."""
        left = parts.go_on(most, listener)
        if left:
            self._parts = None
            sequence, generation, event = self._unapplied.popleft()
            assert isinstance(event, DIVISIBLE)
            self.contents.applied = Position(generation, sequence)
            self._applier.end_parts(sequence, event, listener)
        return left

    def begin_resync(self) -> None:
        """A primary's snapshot will overwrite this node: its prepared branches and unapplied events are dropped."""
        self.resyncing = True
        self._whole = False
        self._snapshots += 1
        if self._parts is not None:
            self._parts = None
            self._applier.drop_parts()
        self._unapplied.clear()
        self._buffers.drop_all()
        self._buffers.rebuild({}, self.applied.sequence)

    def end_resync(
        self,
        position: Position,
        history: list[Position],
        configuration: Configuration,
        transactions: dict[int, list[tuple[int, TxEvent]]],
        outcomes: OutcomesMeta,
        remembered: Iterable[Remembered],
        calls: KeptCalls,
        access: Access,
    ) -> None:
        """The snapshot is whole as of ``position``: nothing of the former log counts any more."""
        contents = self.contents
        for gone in contents.queues.numbers() - configuration.numbers():
            contents.queues.drop(gone)
        contents.configuration, contents.calls, contents.access = configuration, calls, access
        contents.applied = position
        self._generation, self._sequence = position
        self.history = list(history)
        self.durable = position.sequence
        self.resyncing = False
        self._snapshots += 1
        self._buffers.save_all()
        contents.table.outcomes.replace(outcomes, remembered)
        self._buffers.rebuild(transactions, self.applied.sequence)

    def undecided(self) -> list[TxBuffer]:
        """Transactions without a decision in this log."""
        return self._buffers.undecided()

    def decisions_ahead(self) -> list[GlobalDecision]:
        """Global decisions that have not passed the commit point."""
        return [event for _, _, event in self._unapplied if isinstance(event, GlobalDecision)]

    def checkpoint(self) -> Checkpoint:
        """Everything since the last checkpoint, as of ``applied``. Ends with ``checkpoint_written``."""
        assert self._parts is None, "a checkpoint holds a decision whole, or nothing of it"
        changes, dropped = self.contents.freeze()
        last = self.applied.sequence
        events, ended = self._buffers.changes(last)
        self._saved_snapshots = self._snapshots
        history = [start for start in self.history if start.sequence <= last]
        meta = self.contents.meta(history, self.resyncing)
        return Checkpoint(meta, changes, dropped, events, ended, *self.contents.table.outcomes.take_changes())

    def checkpoint_written(self) -> None:
        """The base shows the last checkpoint now, which nothing else uses any more."""
        self.contents.thaw()
        self._buffers.saved()
        if not self.resyncing and self._saved_snapshots == self._snapshots:
            self._whole = True

    def _take(self, generation: int, sequence: int, event: Event) -> None:
        if generation != self._generation or not self.history:
            self._begin(generation, sequence)
        self._sequence = sequence
        if type(event) is TxEnqueue or type(event) is TxOpen or type(event) is TxDequeue:
            self._buffers.take(event.tx, sequence, event)
            return
        if type(event) is TxPrepare or type(event) is TxDecision:
            self._buffers.take(event.tx, sequence, event)
        elif (waits := _WAITS.get(type(event))) is not None:
            self._buffers.take(event.tx, sequence, event)  # type: ignore[union-attr,arg-type]
            if waits:
                return
        elif type(event) is Configure:
            if event.config_id > LAST_CONFIG_ID:
                raise ValueError(f"step {event.config_id} of the configuration is behind the last one")
            check_step(event, self._operations, self.actions)
        self._unapplied.append((sequence, generation, event))

    def _begin(self, generation: int, sequence: int) -> None:
        """The first event of a generation, or the first of all."""
        if not self.history or generation > self.history[-1].generation:
            self.history.append(Position(generation, sequence))
        self._generation = generation


def _events(frame: Frame) -> list[Event]:
    """The events of a frame whose checksum matches. Raises UnknownEvents, GapInStream."""
    try:
        return frame.events()
    except ValueError as error:
        if frame.of_a_later_version():
            raise _unknown(frame, error) from None
        raise GapInStream(f"frame {frame.generation}.{frame.first} cannot be: {error}") from None


def _unknown(frame: Frame, error: ValueError) -> UnknownEvents:
    return UnknownEvents(
        f"frame {frame.generation}.{frame.first} holds what this version of txha does not know ({error})"
    )
