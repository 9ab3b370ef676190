"""BackupSession: the primary's end of one backup's attachment (seed 003's ReplicatingSubscription, for all events).

It sends the stream from where the backup's log ends, keeps what is in flight bounded, and knows how far the backup
has acknowledged. What stands on top of it: JoinGuard (does it count?), TxTrackers (may it be ready?).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from ha.catchup.backpressure import Backpressure
from ha.catchup.catch_up_rate import CatchUpRate
from ha.catchup.join_guard import JoinGuard
from ha.catchup.resync import Resync
from ha.catchup.throttle import Throttle
from ha.effects import Effect, ReadLog, Send
from ha.feed.recent_frames import RecentFrames
from ha.messages.stream import Commit, Entries
from ha.primary.tx_tracker import TxTrackers
from ha.settings import Settings
from txobserver.frames import Frame
from txobserver.ids import Member

UNKNOWN = 1 << 62


class BackupSession:
    """One attachment. ``acknowledged`` is the sequence up to which the backup is durable in this primary's stream.

    ``answered``: the backup has acknowledged something since it was attached. What it asked is no sign that it hears
    the answer: one that asks again and again would be taken in and waited for each time, and hold every commit up for
    ever (``asks_again_and_again_and_never_answers``).
    """

    def __init__(self, member: Member, number: int, generation: int, keep: int, guard: JoinGuard, now: float) -> None:
        self.member = member
        self.number = number
        self.generation = generation
        self.acknowledged = keep
        self.guard = guard
        self.trackers = TxTrackers()
        self.progress_at = now
        self.answered = False
        self._carries = False
        self.had = keep
        """Up to where it has had the stream, in this attachment or, if it owed something then, in the one before"""
        self._next = keep + 1
        self._in_flight: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._reading = False
        self._told = 0
        self._told_at = now
        self.resync: Resync | None = None
        self.full = False
        self.hurried = False
        """Whether it is served without rests: it does not catch up with them"""
        self.backpressure: Backpressure | None = None
        """What slows the clients: it does not catch up without rests either"""
        self._throttle = Throttle()
        self._portion_from = keep
        self._portion_bytes = 0
        self._missing = UNKNOWN
        self.rate = CatchUpRate(now)
        self.told_slow = False
        """Whether that it is too slow has been logged"""

    @property
    def past_guard(self) -> bool:
        """Whether the backup takes part: it is waited for before anything is acknowledged."""
        return self.answered and self.guard.passed(self.acknowledged)

    @property
    def sent(self) -> int:
        """The last sequence that the backup can have."""
        return self._next - 1

    @property
    def lag_bytes(self) -> int:
        """Bytes that are sent and not acknowledged."""
        return self._bytes

    def stream_from(self, sequence: int, guard: JoinGuard, now: float) -> None:
        """A snapshot as of ``sequence`` is durable at the joiner: the stream follows from there."""
        self.resync = None
        self.acknowledged = self.had = sequence
        self._set_guard(guard, now)
        self._next = sequence + 1

    def acknowledge(self, sequence: int, now: float) -> None:
        """The backup's log is durable up to ``sequence``."""
        if not self.answered:
            self.heard(now)
        if sequence > self.had:
            self.had = sequence
            self.rate.waited(now - self.progress_at)
            self.progress_at = now
        if sequence > self.acknowledged:
            self.acknowledged = sequence
            while self._in_flight and self._in_flight[0][0] <= sequence:
                size = self._in_flight.popleft()[1]
                self._bytes -= size
                self.rate.got(size)

    def heard(self, now: float) -> None:
        """The backup has acknowledged that it is attached, or what it copies."""
        self.answered = True
        if not self._carries:
            self.progress_at = now

    def carry(self, since: float, had: int) -> None:
        """It owes since then what comes behind ``had``, which it had in an attachment before. Neither to be attached
        again is progress, nor to get once more what it had."""
        self.progress_at, self.had, self._carries = min(since, self.progress_at), had, True

    def go_on(self, tail: int, now: float, fit: bool) -> bool:
        """It has got to its guard, and would hold all commits up if it counted now.

        So the guard is set anew at ``tail``, as if it had attached only now. That ends: one that is ``fit`` to be
        ready, and does not lack half as much as the last time, is served without rests from now on; and if it does not
        then, it slows the clients. Returns whether it begins to do that.
        """
        missing = tail - self.acknowledged
        late = fit and missing > self._missing // 2
        slow = late and self.hurried and self.backpressure is None
        if slow:
            self.backpressure = Backpressure(self.acknowledged, missing)
        self.hurried = self.hurried or late
        self._missing = missing
        self._set_guard(JoinGuard(tail), now)
        return slow

    def _set_guard(self, guard: JoinGuard, now: float) -> None:
        self.guard, self.rate = guard, CatchUpRate(now)

    def outrun(self, tail: int) -> bool:
        """Whether the clients have to wait for this joiner, which slows them."""
        pressure = None if self.past_guard else self.backpressure
        return pressure is not None and pressure.exceeded(self.acknowledged, tail)

    def progress(self, taken: int, full: bool, counts: bool, now: float) -> None:
        """The backup is alive, and may be ``full``.

        One that copies, or is full, may owe nothing else for as long as a checkpoint takes; but one that ``counts``
        holds the commits up, and leaves the ready set when it owes an acknowledgement for too long.
        """
        if not counts and (self.resync is not None or self.full or full):
            self.progress_at = now
        self.full = full
        if self.resync is not None:
            self.resync.progress(taken, full, now)

    def pass_over(self, seconds: float, now: float) -> None:
        """So much of the time until now is not held against the backup (``ha.watch``)."""
        self.progress_at = min(self.progress_at + seconds, now)

    def owes(self, tail: int) -> bool:
        """Whether something up to ``tail`` is owed.

        One that is full owes room: while the primary reads no clients for it, nothing new may ever come to be owed
        (``full_member_owes_nothing``). One that is attached owes the word that it knows.
        """
        return not self.answered or self.acknowledged < tail or self.full

    def owes_since(self, tail: int, now: float, timeout: float) -> bool:
        """Whether something up to ``tail`` has been owed for longer than ``timeout`` without any progress."""
        if not self.owes(tail):
            self.progress_at = now
            return False
        return now - self.progress_at > timeout

    def pump(
        self, recent: RecentFrames, durable: int, commit: int, settings: Settings, now: float, hurried: bool
    ) -> list[Effect]:
        """What can be sent now: entries up to ``durable``, the primary's own durable tail (persist, then send).

        ``hurried``: commits wait for this backup, or it does not catch up else, so it is served at full speed; others
        with rests. One that has not answered gets nothing of the stream: it may ask again, and be sent all of it once
        more, behind what is on its way already (``asks_again_behind_a_large_message``).
        """
        effects: list[Effect] = []
        if self.resync is not None:
            self.resync.go_on(now)
            return effects
        if self.full or not self.answered:
            return effects
        if not hurried and not self._next_portion(durable, settings.portion_bytes, now):
            return effects
        window = settings.window_bytes if hurried else settings.portion_bytes
        while self._next <= durable and self._bytes < window and not self._reading:
            frame = recent.starting_at(self._next)
            if frame is None:
                self._reading = True
                effects.append(ReadLog(self.member.node, self.number, self._next, window))
            else:
                effects.append(self._entries(frame, commit))
        return effects

    def _next_portion(self, durable: int, size: int, now: float) -> bool:
        """Whether a joiner may be sent something now: ``size`` bytes at a time, with rests (``throttle``)."""
        throttle = self._throttle
        if throttle.working:
            if self._portion_bytes < size:
                return True
            if self._bytes or self._reading:
                return False
            throttle.end(now, self.acknowledged - self._portion_from, durable - self.acknowledged)
        if throttle.resting(now) or self._next > durable:
            return False
        throttle.begin(now)
        self._portion_from, self._portion_bytes = self.acknowledged, 0
        return True

    def log_read(self, frames: Iterable[Frame], commit: int) -> list[Effect]:
        """Frames read from the log for this session."""
        self._reading = False
        return [self._entries(frame, commit) for frame in frames if frame.first == self._next]

    def tell_commit(self, commit: int, now: float, settings: Settings) -> list[Effect]:
        """The commit point, if no entries carried it yet, and once in a while in any case.

        A joiner in the middle of a snapshot gets no frame, only word that its attachment stands.
        """
        if self.resync is not None:
            commit = 0
        if commit <= self._told and now - self._told_at < settings.heartbeat_every:
            return []
        self._told, self._told_at = max(self._told, commit), now
        return [Send(self.member.node, Commit(self.generation, self.number, commit))]

    def _entries(self, frame: Frame, commit: int) -> Effect:
        self._next = frame.last + 1
        self._in_flight.append((frame.last, len(frame.data)))
        self._bytes += len(frame.data)
        self._portion_bytes += len(frame.data)
        self._told = max(self._told, commit)
        return Send(self.member.node, Entries(self.generation, self.number, commit, frame.data))
