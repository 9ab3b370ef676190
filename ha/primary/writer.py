"""The writer: gives events their positions in the stream, gathers them into groups, and makes a frame of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ha.apply.replica import Replica
from ha.effects import Effect, Persist, Stop
from ha.messages.sizes import ENTRY_WORK, EVENT_WORK, SETTLED, entries_of, event_bytes, event_work, slices
from ha.primary.backlog import EVENT_OVERHEAD, Backlog
from ha.primary.fanout import Fanout
from ha.settings import Settings
from txobserver.ends import END_OF_STREAM, ReplicationIds, end_of_new
from txobserver.events import Event, Removal, Settle, TxDequeue
from txobserver.frames import encode_frame
from txobserver.ids import LAST_SEQUENCE

Emit = Callable[[Effect], None]


class Writer:
    """The end of the stream in one generation. Each frame is given to ``fanout``; ``backlog``: what waits.

    ``wake`` is called when there is something to flush; ``wall_ms`` is the wall clock, in milliseconds; ``at_end`` says
    why nothing new is taken any more; an ``abandoned`` one takes nothing at all.
    """

    def __init__(self, generation: int, replica: Replica, settings: Settings, emit: Emit, fanout: Fanout) -> None:
        self.generation = generation
        self.backlog = Backlog(settings.backlog_bytes)
        self.ids = ReplicationIds(generation)
        self.at_end: str | None = None
        self.abandoned = False
        self.wall_ms = 0
        self.wake: Callable[[], None] = lambda: None
        self._replica = replica
        self._settings = settings
        self._emit = emit
        self._fanout = fanout
        self._group: list[Event] = []
        self._entries = 0
        self._group_first = replica.tail.sequence + 1
        self._framed = 0

    @property
    def writing(self) -> bool:
        """Whether a frame of this writer's is on its way to the disk (``former_role_s_write_ends_late``)."""
        return self._replica.durable < self._framed

    @property
    def log_end(self) -> int:
        """The sequence of the last event that is written, or on its way to the disk."""
        return self._group_first - 1 if self._group else self._replica.tail.sequence

    @property
    def due(self) -> bool:
        """Whether a group waits, and none is on its way to the disk."""
        return bool(self._group) and not self.writing

    def append(self, event: Event) -> int:
        """Give the event its position, the next in the stream; it is written with the next group.

        A writer that has been abandoned takes nothing: late calls of clients that are being closed have no effect.
        """
        if self.abandoned:
            return 0
        if not self._group:
            self._group_first = self._replica.tail.sequence + 1
            self.wake()
        sequence = self._replica.append(self.generation, event)
        self._group.append(event)
        if type(event) is TxDequeue or type(event) is Settle:
            self._entries += entries_of(event)
        self.backlog.gathered(event_bytes(event))
        return sequence

    def settle(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages leave a queue; settlements that follow each other share one event."""
        last = self._group[-1] if self._group else None
        room = SETTLED - len(entries)
        if isinstance(last, Settle) and (last.queue, last.reason) == (queue, reason) and len(last.entries) <= room:
            last.entries.extend(entries)
            self._entries += len(entries)
            self.backlog.settled(len(entries))
            return
        for first in range(0, len(entries), SETTLED):
            self.append(Settle(queue, list(entries[first : first + SETTLED]), int(reason)))

    def flush(self) -> None:
        """Write what has gathered: at most a frame of it."""
        last = self._group_first + len(self._group) - 1
        self.at_end = end_of_new(last, self.ids)
        if last > LAST_SEQUENCE:
            self._group, self.abandoned = [], True
            self._emit(Stop(END_OF_STREAM))
            return
        events = whole = self._group
        work, left, entries = self._work(), 0, 0
        self._group = []
        if work > self._settings.frame_bytes:
            events = next(slices(whole, event_work, self._settings.frame_bytes))
            self._group = whole[len(events) :]
            left = self.backlog.gathered_bytes - sum(event_bytes(each) + EVENT_OVERHEAD for each in events)
            entries = self._entries - sum(entries_of(each) for each in events)
        self._entries = entries
        frame = encode_frame(self.generation, self._group_first, events, self.wall_ms)
        self._group_first = frame.last + 1
        self._framed = frame.last
        self._fanout.take(frame)
        self.backlog.framed(frame.last, len(frame.data), left)
        self._emit(Persist(frame))

    def _work(self) -> int:
        """What the group counts for where a frame is filled: ``event_work`` of all its events."""
        events = len(self._group)
        return self.backlog.gathered_bytes + (EVENT_WORK - EVENT_OVERHEAD) * events + ENTRY_WORK * self._entries

    def abandon(self) -> None:
        """The generation is over: what was never written is forgotten."""
        self.abandoned = True
        if self._group:
            self._replica.truncate(self._group_first - 1)
