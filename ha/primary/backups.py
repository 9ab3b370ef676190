"""Backups: what the primary's backups report, and what they are sent (PROTOCOL, "A joiner", "Failover").

``Joins`` attaches them, ``Attachments`` knows them and who of them counts, ``Silence`` takes the silent and the gone
out of the ready set, ``Fanout`` sends the stream; here reports are taken, and ``ready`` granted.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.replica import Replica
from ha.catchup.join_guard import JoinGuard
from ha.effects import Effect, LogLine, Send
from ha.log_events import (
    BackupLeaves,
    BackupReady,
    ClientsSlowed,
    JoinerTooSlow,
    OutOfReadySet,
    TransactionCancelled,
)
from ha.membership.record_keeper import RecordKeeper
from ha.messages.attaching import Granted, Join, Leave, Progress
from ha.messages.copying import Missing
from ha.messages.stream import Ack, Cancel
from ha.messages.wire import Peer
from ha.primary.attachments import Attachments
from ha.primary.backup_session import BackupSession
from ha.primary.fanout import Fanout
from ha.primary.joins import Joins
from ha.primary.primary import Primary
from ha.primary.silence import Silence
from ha.settings import Settings
from txobserver.frames import Frame
from txobserver.ids import Member

SOON = 0.5
"""Seconds in which a joiner must have all that it lacks, by what it got before, to count: commits wait for it then"""
LOG_TOO_SHORT = "the log no longer holds what comes next; if that happens again, raise store.retention_seconds"


class Backups:
    """The backups of one generation. ``linked`` tells which peers can be reached now."""

    def __init__(
        self,
        primary: Primary,
        attachments: Attachments,
        fanout: Fanout,
        replica: Replica,
        keeper: RecordKeeper,
        settings: Settings,
        linked: set[str],
        emit: Callable[[Effect], None],
        now: float,
    ) -> None:
        self.attachments = attachments
        self.sessions = attachments.sessions
        self.fanout = fanout
        common = (attachments, primary.point, replica, keeper, settings)
        self._joins = Joins(*common, emit)
        self._silence = Silence(*common, fanout, linked, emit, now)
        self.watch = self._silence.watch
        self._primary = primary
        self._replica = replica
        self._keeper = keeper
        self._settings = settings
        self._emit = emit

    # -- what backups report

    def take(self, node: str, message: Peer, log_first: int, now: float) -> None:
        """A message of this backup."""
        if isinstance(message, Join):
            self._joins.join(node, message, log_first, now)
        elif (taken := _TAKEN.get(type(message))) is not None:
            taken(self, node, message, now)

    def acknowledged(self, node: str, ack: Ack, now: float) -> None:
        """A backup's log is durable up to there."""
        session = self.attachments.current(node, ack.session)
        if session is None:
            self.attachments.refuse(node, ack.session, "this attachment has ended")
        elif session.resync is None and ack.sequence > session.sent:
            self.attachments.refuse(node, ack.session, "it acknowledges what was never sent")
            self.attachments.detach(node, now)
        elif session.resync is None:
            counts = session.past_guard or session.member in self._keeper.counted()
            session.acknowledge(ack.sequence, now)
            if session.past_guard and not counts:
                self._judge_at_guard(node, session, now)
            session.trackers.acknowledged(session.acknowledged, session.past_guard)
        elif session.resync.ended_at is None:
            session.heard(now)
            session.resync.store_marked(now)
        elif ack.sequence == session.resync.ended_at:
            self.attachments.copies.remove(session.resync)
            session.stream_from(ack.sequence, JoinGuard(self._replica.tail.sequence), now)
            session.heard(now)
            session.trackers.acknowledged(ack.sequence, session.past_guard)

    def _judge_at_guard(self, node: str, session: BackupSession, now: float) -> None:
        """A joiner that has got to its guard counts from now on, unless all commits would wait for what it lacks, or
        for a disk or a network that is too slow for a member of the ready set (``a_joiner_whose_disk_is_sick``)."""
        settings, tail = self._settings, self._replica.tail.sequence
        missing, most = tail - session.acknowledged, int(min(settings.window_bytes, session.rate.gets_in(SOON, now)))
        fit = session.rate.slowest <= settings.prepare_timeout / 2
        little = missing <= settings.small_lag and self.fanout.bytes_behind(session.acknowledged, most) <= most
        if not missing or (fit and little):
            return
        if not fit and not session.told_slow:
            session.told_slow = True
            self._emit(LogLine(JoinerTooSlow(node, session.rate.slowest, settings.prepare_timeout)))
        if session.go_on(tail, now, fit):
            self._emit(LogLine(ClientsSlowed(node, missing)))

    def missing(self, node: str, message: Missing, now: float) -> None:
        """A joiner says what it lacks."""
        session = self.attachments.current(node, message.session)
        if session is not None and session.resync is not None:
            session.progress_at = now
            session.resync.missing(message, now)

    def progress(self, node: str, message: Progress, now: float) -> None:
        """A backup is alive, and says whether it has room."""
        session = self.attachments.current(node, message.session)
        if session is None:
            self.attachments.refuse(node, message.session, "this attachment has ended")
        else:
            session.progress(message.taken, message.full, self.attachments.holds_up(session), now)

    def leave(self, node: str, message: Leave, now: float) -> None:
        """A backup's own store is the reason: it fails one transaction, not all that follow."""
        session = self.attachments.current(node, message.session)
        if session is not None:
            self._emit(LogLine(BackupLeaves(node, message.reason)))
            self.attachments.detach(node, now)
            self.attachments.left[node] = message.reason
            self._keeper.remove(session.member, now)

    def cancel(self, node: str, message: Cancel, now: float) -> None:
        """A backup cannot prepare a transaction."""
        if self.attachments.current(node, message.session) is not None:
            self._emit(LogLine(TransactionCancelled(message.tx, node, message.reason)))
            self._primary.decisions.cancel(message.tx, message.reason)

    def log_read(self, node: str, number: int, frames: list[Frame], now: float) -> None:
        """Frames that a lagging session asked for; none when the log no longer holds them."""
        session = self.attachments.current(node, number)
        if session is None:
            return
        if frames:
            self.fanout.log_read(session, frames, self._primary.point.sequence)
        else:
            self._joins.must_resync.add(session.member)
            self.attachments.refuse(node, number, LOG_TOO_SHORT)
            self.attachments.detach(node, now)

    # -- what follows from it

    def pump(self, now: float) -> None:
        """Send what is durable here to each backup that has room for it."""
        self.attachments.full = self.fanout.send(self._primary.point.sequence, now)

    def tell_commit(self, now: float) -> None:
        """Carry the commit point to backups that no entries carried it to."""
        self.fanout.tell_commit(self._primary.point.sequence, now)

    def grant(self, now: float) -> None:
        """Joiners past their guards, in step and with clear trackers become ready.

        A decision that has begun to be applied is in step too: it cannot be undone here
        (``granted_without_the_decision_that_has_begun``).
        """
        begun = max(self._primary.point.sequence, self._replica.begun)
        for session in self.sessions.values():
            in_step = session.past_guard and session.acknowledged >= begun
            if in_step and session.trackers.clear and not self._keeper.is_ready(session.member):
                self._keeper.add(session.member, now)

    def record_stored(self, before: tuple[Member, ...], log_first: int, now: float) -> None:
        """The record has changed: tell the new members, let go of the old, take up joins that waited for it."""
        ready = self._keeper.record.ready
        for node, session in list(self.sessions.items()):
            if session.member in ready and session.member not in before:
                self._emit(LogLine(BackupReady(node)))
                self._emit(Send(node, Granted(session.generation, session.number)))
            elif session.member in before and session.member not in ready:
                self.attachments.refuse(node, session.number, "taken out of the ready set")
                self.attachments.detach(node, now)
        for member in sorted(set(before) - set(ready)):
            self._emit(LogLine(OutOfReadySet(member.node)))
        self._joins.take_up(log_first, now)

    def tick(self, now: float) -> None:
        """Time has passed: take the silent and the gone out of the ready set, and tell the others the commit point."""
        self._silence.tick(now)
        self.tell_commit(now)


_TAKEN: dict[type, Callable[..., None]] = {
    Ack: Backups.acknowledged,
    Missing: Backups.missing,
    Progress: Backups.progress,
    Cancel: Backups.cancel,
    Leave: Backups.leave,
}
