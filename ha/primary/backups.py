"""Backups: the primary's view of everyone who follows it (PROTOCOL, "A joiner", "Failover").

It attaches joiners, sends them the stream, says up to where the stream is durable on every node that counts, takes
the silent and the gone out of the ready set, and grants ``ready``.

Who counts: every member that the record lists or may list (RecordKeeper), and every joiner past its QueueGuard. A
member that is listed and not attached holds everything up: that is the wait of a new primary for its expected backups,
and it ends with the member attached and in step, or out of the ready set.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ha.apply.replica import Replica
from ha.catchup.history import common_sequence
from ha.catchup.queue_guard import QueueGuard
from ha.catchup.resync import Resync
from ha.effects import Effect, LogLine, Send
from ha.membership.record_keeper import RecordKeeper
from ha.messages.wire import Ack, Cancel, Follow, Granted, Join, Leave, Missing, Peer, Progress, Refused
from ha.primary.primary import Primary
from ha.primary.session import Session
from ha.primary.watch import Watch
from ha.settings import Settings
from txobserver.frames import Frame
from txobserver.ids import Member, id_text
from txobserver.tx_buffer import TxBuffer

NEVER = 1 << 62
LOG_TOO_SHORT = "the log no longer holds what comes next; if that happens again, raise store.retention_seconds"


class Backups:
    """Sessions of one generation's backups. ``linked`` tells which peers can be reached now."""

    def __init__(
        self,
        primary: Primary,
        replica: Replica,
        keeper: RecordKeeper,
        settings: Settings,
        linked: set[str],
        emit: Callable[[Effect], None],
        now: float,
    ) -> None:
        self.sessions: dict[str, Session] = {}
        self._primary = primary
        self._replica = replica
        self._keeper = keeper
        self._settings = settings
        self._linked = linked
        self._emit = emit
        self._parked: dict[str, Join] = {}
        self._must_resync: set[Member] = set()
        self._absent_since: dict[str, float] = {m.node: now for m in keeper.counted()}
        self.watch = Watch(settings.longest_counted, now)
        primary.decisions.watcher = self

    # -- attaching

    def join(self, node: str, join: Join, log_first: int, now: float) -> None:
        """A backup asks to be attached.

        One whose store must be cut or overwritten first leaves the ready set (``resync_while_in_ready_set``), also one
        whose log ends before ours begins: its disk was set back (``listed_member_whose_disk_was_set_back``).
        """
        if join.member.node != node:
            self._refuse(node, join.session, f"{join.member.node} speaks for itself")
            return
        self.detach(node, now)
        tail = self._replica.tail.sequence
        common = common_sequence(self._replica.history, tail, join.history, join.tail.sequence)
        copy = join.resyncing or common < join.applied or common + 1 < log_first or join.member in self._must_resync
        undo = copy or common < join.tail.sequence
        self._forget_other_incarnations(join.member, now)
        if undo and join.member in self._keeper.counted():
            self._parked[node] = join
            self._keeper.remove(join.member, now)
            return
        self._parked.pop(node, None)
        if copy:
            self._resync(node, join, now)
        else:
            self._attach(node, join, common, now)

    def _attach(self, node: str, join: Join, common: int, now: float) -> None:
        generation = self._primary.generation
        session = self._session(node, join, common, QueueGuard(self._replica.tail.sequence), now)
        self._emit(LogLine(f"backup {node} attached at {common}, guard at {session.guard.at}"))
        self._emit(Send(node, Follow(generation, join.session, common, self._primary.point.sequence)))

    def _resync(self, node: str, join: Join, now: float) -> None:
        """The joiner's log does not lead to ours: copy the queues, then follow the stream."""
        self._must_resync.discard(join.member)
        session = self._session(node, join, -1, QueueGuard(NEVER), now)
        self._emit(LogLine(f"backup {node} resynchronises queue by queue"))
        portion, window = self._settings.portion_bytes, self._settings.window_bytes
        generation = self._primary.generation
        session.resync = Resync(node, generation, join.session, self._replica, self._emit, portion, window)
        self._primary.teller.listeners.append(session.resync)

    def _session(self, node: str, join: Join, keep: int, guard: QueueGuard, now: float) -> Session:
        session = Session(join.member, join.session, self._primary.generation, keep, guard, now)
        for buffer in self._replica.buffers.values():
            if buffer.prepared is not None:
                session.trackers.track(buffer.tx, buffer.queues(), buffer.prepared)
                if buffer.decided is not None:
                    session.trackers.decide(buffer.tx, buffer.decided)
        self.sessions[node] = session
        self._absent_since.pop(node, None)
        return session

    def _current(self, node: str, number: int) -> Session | None:
        """The attachment of this backup, if it is the one with this number."""
        session = self.sessions.get(node)
        return session if session is not None and session.number == number else None

    def _forget_other_incarnations(self, member: Member, now: float) -> None:
        """A node that comes with a new store is another member (``wiped_disk_is_ready_member``)."""
        for known in sorted(self._keeper.counted()):
            if known.node == member.node and known != member:
                self._keeper.remove(known, now)

    def _refuse(self, node: str, session: int, reason: str) -> None:
        self._emit(Send(node, Refused(self._primary.generation, session, reason)))

    # -- what backups report

    def take(self, node: str, message: Peer, log_first: int, now: float) -> None:
        """A message of this backup."""
        if isinstance(message, Ack):
            self.acknowledged(node, message, now)
        elif isinstance(message, Join):
            self.join(node, message, log_first, now)
        elif isinstance(message, Missing):
            self.missing(node, message, now)
        elif isinstance(message, Progress):
            self.progress(node, message, now)
        elif isinstance(message, Cancel):
            self.cancel(node, message)
        elif isinstance(message, Leave):
            self.leave(node, message.session, message.reason, now)

    def acknowledged(self, node: str, ack: Ack, now: float) -> None:
        """A backup's log is durable up to there."""
        session = self._current(node, ack.session)
        if session is None:
            self._refuse(node, ack.session, "this attachment has ended")
        elif session.resync is None and ack.sequence > session.sent:
            self._refuse(node, ack.session, "it acknowledges what was never sent")
            self.detach(node, now)
        elif session.resync is None:
            tail, counts = self._replica.tail.sequence, session.member in self._keeper.counted()
            session.acknowledge(ack.sequence, tail, now, NEVER if counts else self._settings.small_lag)
        elif session.resync.ended_at is None:
            session.progress_at = now
            session.resync.store_marked(now)
        elif ack.sequence == session.resync.ended_at:
            self._primary.teller.listeners.remove(session.resync)
            session.stream_from(ack.sequence, QueueGuard(self._replica.tail.sequence))
            session.trackers.acknowledged(ack.sequence, session.past_guard)
            session.progress_at = now

    def missing(self, node: str, message: Missing, now: float) -> None:
        """A joiner says what it lacks."""
        session = self._current(node, message.session)
        if session is not None and session.resync is not None:
            session.progress_at = now
            session.resync.missing(message, now)

    def progress(self, node: str, message: Progress, now: float) -> None:
        """A backup is alive, and says whether it has room."""
        session = self._current(node, message.session)
        if session is None:
            self._refuse(node, message.session, "this attachment has ended")
        else:
            session.progress(message.taken, message.full, self._awaited(session), now)

    def leave(self, node: str, session_number: int, reason: str, now: float) -> None:
        """A backup's own store is the reason: it fails one transaction, not all that follow."""
        session = self._current(node, session_number)
        if session is not None:
            self._emit(LogLine(f"backup {node} leaves: {reason}"))
            self.detach(node, now)
            self._keeper.remove(session.member, now)

    def cancel(self, node: str, message: Cancel) -> None:
        """A backup cannot prepare a transaction."""
        if self._current(node, message.session) is not None:
            self._emit(LogLine(f"transaction={id_text(message.tx)} is cancelled by {node}: {message.reason}"))
            self._primary.decisions.cancel(message.tx, message.reason)

    def may_succeed(self, node: str, session_number: int) -> bool:
        """Whether the primary's role can be handed to this backup."""
        session = self._current(node, session_number)
        return session is not None and self._keeper.is_ready(session.member)

    def detach(self, node: str, now: float) -> None:
        """The attachment of this backup has ended."""
        session = self.sessions.pop(node, None)
        if session is not None:
            self._absent_since[node] = now
            self._keeper.forget_add(session.member)
            if session.resync in self._primary.teller.listeners:
                self._primary.teller.listeners.remove(session.resync)
        self._parked.pop(node, None)

    def log_read(self, node: str, number: int, frames: list[Frame], now: float) -> None:
        """Frames that a lagging session asked for; none when the log no longer holds them."""
        session = self._current(node, number)
        if session is None:
            return
        if frames:
            for effect in session.log_read(frames, self._primary.point.sequence):
                self._emit(effect)
        else:
            self._must_resync.add(session.member)
            self._refuse(node, number, LOG_TOO_SHORT)
            self.detach(node, now)

    # -- what follows from it

    def durable_everywhere(self) -> int:
        """The sequence up to which the stream is durable on the primary and on everyone who counts."""
        sequence = self._replica.durable
        counted = self._keeper.counted()
        for member in counted:
            session = self.sessions.get(member.node)
            known = session is not None and session.member == member
            sequence = min(sequence, session.acknowledged if session is not None and known else 0)
        for session in self.sessions.values():
            if session.past_guard and session.member not in counted:
                sequence = min(sequence, session.acknowledged)
        return sequence

    def holders(self, sequence: int) -> list[Member]:
        """The attached members of the ready set that have everything up to there.

        A primary whose store fails may leave the ready set to one of these. Without such a one it stays in: what it has
        told is on its disk, and a set of absent members might have lost theirs (``failing_primary_leaves_the_absent``).
        """
        return [
            session.member
            for session in self.sessions.values()
            if self._keeper.is_ready(session.member) and session.acknowledged >= sequence
        ]

    def participants(self) -> list[str]:
        """The nodes that take part in a transaction that is closed now."""
        nodes = {m.node for m in self._keeper.counted()} | {n for n, s in self.sessions.items() if s.past_guard}
        return [self._primary.name, *sorted(nodes)]

    def pump(self, now: float) -> None:
        """Send what is durable here to whoever has room for it."""
        primary, durable, full = self._primary, self._replica.durable, False
        recent, committed = primary.writer.recent, primary.point.sequence
        for session in self.sessions.values():
            awaited = self._awaited(session)
            full = full or (session.full and awaited)
            for effect in session.pump(recent, durable, committed, self._settings, now, awaited):
                self._emit(effect)
        primary.backup_full = full

    def _awaited(self, session: Session) -> bool:
        """Whether the commits wait for this backup."""
        return session.past_guard or session.member in self._keeper.counted()

    def tell_commit(self, now: float) -> None:
        """Carry the commit point to backups that no entries carried it to."""
        for session in self.sessions.values():
            for effect in session.tell_commit(self._primary.point.sequence, now, self._settings):
                self._emit(effect)

    def grant(self, now: float) -> None:
        """Joiners past their guards, in step and with clear trackers become ready."""
        for session in self.sessions.values():
            in_step = session.past_guard and session.acknowledged >= self._primary.point.sequence
            if in_step and session.trackers.clear and not self._keeper.is_ready(session.member):
                self._keeper.add(session.member, now)

    def record_stored(self, before: tuple[Member, ...], log_first: int, now: float) -> None:
        """The record has changed: tell the new members, let go of the old, take up joins that waited for it."""
        ready = self._keeper.record.ready
        for node, session in list(self.sessions.items()):
            if session.member in ready and session.member not in before:
                self._emit(LogLine(f"backup {node} is ready"))
                self._emit(Send(node, Granted(session.generation, session.number)))
            elif session.member in before and session.member not in ready:
                self._refuse(node, session.number, "taken out of the ready set")
                self.detach(node, now)
        for member in sorted(set(before) - set(ready)):
            self._emit(LogLine(f"{member.node} is out of the ready set"))
        for node, join in list(self._parked.items()):
            if join.member not in self._keeper.counted():
                self.join(node, join, log_first, now)

    # -- time

    def tick(self, now: float) -> None:
        """Take the silent and the gone out of the ready set, and tell the others the commit point."""
        self.watch.tick(now)
        if passed_over := self.watch.passed_over:
            for session in self.sessions.values():
                session.pass_over(passed_over, now)
            for node, since in self._absent_since.items():
                self._absent_since[node] = min(since + passed_over, now)
        self._take_out_the_silent(now)
        self.tell_commit(now)

    def _take_out_the_silent(self, now: float) -> None:
        tail = self._replica.durable
        for member in sorted(self._keeper.counted()):
            session = self.sessions.get(member.node)
            if session is None or session.member != member:
                if self._absent_too_long(member.node, now):
                    self._keeper.remove(member, now)
            elif session.owes_since(tail, now, self._patience()):
                self._emit(LogLine(f"backup {member.node} is silent"))
                self._keeper.remove(member, now)
        for node, session in list(self.sessions.items()):
            if session.member not in self._keeper.counted() and session.owes_since(tail, now, self._patience()):
                self._refuse(node, session.number, "silent for too long")
                self.detach(node, now)

    def _patience(self) -> float:
        if self.watch.unread:
            return math.inf
        return self._settings.prepare_timeout if self._primary.point.serving else self._settings.backup_timeout

    def _absent_too_long(self, node: str, now: float) -> bool:
        since = self._absent_since.setdefault(node, now)
        limit = self._patience() if node in self._linked else self._settings.link_down_grace
        return now - since >= limit and not self.watch.unread

    # -- transactions that joiners do not take part in

    def closed(self, buffer: TxBuffer) -> None:
        """A tx-queue was closed: whoever is connected and takes no part is held back by trackers."""
        assert buffer.prepared is not None
        for session in self.sessions.values():
            if not session.past_guard:
                session.trackers.track(buffer.tx, buffer.queues(), buffer.prepared)

    def decided(self, tx: int, commit: bool, sequence: int) -> None:
        """A closed transaction was decided."""
        for session in self.sessions.values():
            if commit:
                session.trackers.decide(tx, sequence)
            else:
                session.trackers.rolled_back(tx)

    def queue_deleted(self, queue: int) -> None:
        """A queue is gone: nobody holds anything in it."""
        for session in self.sessions.values():
            session.trackers.queue_deleted(queue)
