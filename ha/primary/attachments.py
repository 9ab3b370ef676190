"""Attachments: who follows the primary of one generation, who waits to, and since when a member that counts does not.

Who counts: every member that the record lists or may list (RecordKeeper), and every joiner past its JoinGuard. A
member that is listed and not attached holds everything up: that is the wait of a new primary for its expected backups,
and it ends with the member attached and in step, or out of the ready set. Neither to ask to be attached nor to be
attached again prolongs it: such a member owes what it owed before, until it has acknowledged more than before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ha.apply.applied import Applied
from ha.apply.replica import Replica
from ha.effects import Effect, Send
from ha.membership.record_keeper import RecordKeeper
from ha.messages.attaching import AttachmentRefused, Join
from ha.messages.greeting import NO_PEERS
from ha.primary.backup_session import BackupSession
from txobserver.access import USERS_FEATURE
from txobserver.ids import Member
from txobserver.tx_buffer import TxBuffer


class Attachments:
    """Implements TransactionWatcher.

    ``sessions``: the attached, by node; ``parked``: the joins that wait until their members have left the ready set;
    ``copies``: the snapshots that are being made, told of all that is applied; ``full``: whether a backup that the
    commits wait for has no room; ``left``: what the backups said that left by themselves, until they are attached
    again. ``features``: of the nodes that can be reached, what both they and the primary know.
    """

    def __init__(
        self,
        name: str,
        generation: int,
        replica: Replica,
        keeper: RecordKeeper,
        emit: Callable[[Effect], None],
        now: float,
        features: Mapping[str, frozenset[str]] = NO_PEERS,
    ) -> None:
        self.name = name
        self._features = features
        self.generation = generation
        self.sessions: dict[str, BackupSession] = {}
        self.parked: dict[str, Join] = {}
        self.absent_since: dict[str, float] = {m.node: now for m in keeper.counted()}
        self._owed: dict[Member, tuple[float, int]] = {}
        """Of members that count, and owed something when they were attached last: since when, and what they had"""
        self.copies: list[Applied] = []
        self.full = False
        self.left: dict[str, str] = {}
        self._replica = replica
        self._keeper = keeper
        self._emit = emit

    def attach(self, node: str, session: BackupSession) -> None:
        """This backup is attached. Transactions that are prepared before its guard hold it back from ``ready``."""
        for buffer in self._replica.buffers.values():
            if buffer.prepared is not None:
                session.trackers.track(buffer.tx, buffer.queues(), buffer.prepared)
                if buffer.decided is not None:
                    session.trackers.decide(buffer.tx, buffer.decided)
        self.sessions[node] = session
        self.left.pop(node, None)
        self.absent_since.pop(node, None)
        since, had = self._owed.pop(session.member, (0.0, -1))
        if session.acknowledged <= had and session.member in self._keeper.counted():
            session.carry(since, had)

    def detach(self, node: str, now: float) -> None:
        """The attachment of this backup has ended."""
        session = self.sessions.pop(node, None)
        if session is not None:
            self.absent_since[node] = now
            self._note_owed(session)
            self._keeper.forget_add(session.member)
            if session.resync in self.copies:
                self.copies.remove(session.resync)
        self.parked.pop(node, None)

    def _note_owed(self, session: BackupSession) -> None:
        counted = self._keeper.counted()
        self._owed = {member: owed for member, owed in self._owed.items() if member in counted}
        if session.member in counted and session.owes(self._replica.durable):
            self._owed[session.member] = session.progress_at, session.had

    def owed(self, member: Member, now: float) -> tuple[float, int]:
        """Since when a member that is not attached has owed something from before, and up to where it had the stream;
        now and all of it if it owes nothing."""
        return self._owed.get(member, (now, self._replica.durable))

    def pass_over(self, seconds: float, now: float) -> None:
        """So much of the time until now is not held against any backup (``ha.watch``)."""
        for session in self.sessions.values():
            session.pass_over(seconds, now)
        self.absent_since.update({node: min(since + seconds, now) for node, since in self.absent_since.items()})
        self._owed.update({member: (min(since + seconds, now), had) for member, (since, had) in self._owed.items()})

    def gone(self, since: Mapping[str, float]) -> None:
        """These nodes cannot be reached, and could not be since then: also before this one was primary."""
        for node in since.keys() & self.absent_since.keys():
            self.absent_since[node] = min(since[node], self.absent_since[node])

    def refuse(self, node: str, session: int, reason: str) -> None:
        """Tell a backup why its attachment ends, or cannot be."""
        self._emit(Send(node, AttachmentRefused(self.generation, session, reason)))

    def current(self, node: str, number: int) -> BackupSession | None:
        """The attachment of this backup, if it is the one with this number."""
        session = self.sessions.get(node)
        return session if session is not None and session.number == number else None

    def awaited(self, session: BackupSession) -> bool:
        """Whether the commits wait for this backup."""
        return session.past_guard or session.member in self._keeper.counted()

    def holds_up(self, session: BackupSession) -> bool:
        """Whether clients may have to wait for this backup: for what they commit, or until they are read."""
        return session.backpressure is not None or self.awaited(session)

    def has(self, node: str, feature: str) -> bool:
        """Whether this backup can be reached, and it and the primary both know the feature."""
        return feature in self._features.get(node, ())

    def lacking(self, feature: str) -> list[str]:
        """The nodes that count, or are attached, and are not known to know this feature.

        Where there are users, all know them, also those that cannot be reached now: the step that says so has passed
        the commit point, and no node is attached since that does not (``Joins.join``).
        """
        if feature == USERS_FEATURE and self._replica.contents.access.events:
            return []
        nodes = {m.node for m in self._keeper.counted()} | self.sessions.keys()
        return sorted(node for node in nodes - {self.name} if not self.has(node, feature))

    def may_succeed(self, node: str, session_number: int) -> bool:
        """Whether the primary's role can be handed to this backup."""
        session = self.current(node, session_number)
        return session is not None and self._keeper.is_ready(session.member)

    def durable_everywhere(self) -> int:
        """The sequence up to which the stream is durable on the primary and on every node that counts."""
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

    # -- TransactionWatcher

    def participants(self) -> list[str]:
        """The nodes that take part in a transaction that is closed now."""
        nodes = {m.node for m in self._keeper.counted()} | {n for n, s in self.sessions.items() if s.past_guard}
        return [self.name, *sorted(nodes)]

    def closed(self, buffer: TxBuffer) -> None:
        """A tx-queue was closed: a backup that is connected and takes no part is held back by trackers."""
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
        """A queue is gone: no backup holds anything in it."""
        for session in self.sessions.values():
            session.trackers.queue_deleted(queue)
