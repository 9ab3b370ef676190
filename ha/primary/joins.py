"""Joins: how a backup is attached (PROTOCOL, "A joiner"): where its log leads on from, or with a copy of the queues."""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.replica import Replica
from ha.catchup.history import common_sequence
from ha.catchup.join_guard import JoinGuard
from ha.catchup.resync import Resync
from ha.effects import Effect, LogLine, Send
from ha.log_events import BackupAttached, BackupResyncs
from ha.membership.record_keeper import RecordKeeper
from ha.messages.attaching import Follow, Join
from ha.primary.attachments import Attachments
from ha.primary.backup_session import BackupSession
from ha.primary.commit_point import CommitPoint
from ha.settings import Settings
from txobserver.access import USERS_FEATURE
from txobserver.actions import FLAG
from txobserver.ids import Member

NEVER = 1 << 62
"""The guard of a joiner that copies: it counts only when its stream has begun."""


class Joins:
    """``must_resync``: members whose next attachment begins with a copy."""

    def __init__(
        self,
        attachments: Attachments,
        point: CommitPoint,
        replica: Replica,
        keeper: RecordKeeper,
        settings: Settings,
        emit: Callable[[Effect], None],
    ) -> None:
        self.must_resync: set[Member] = set()
        self._attachments = attachments
        self._point = point
        self._replica = replica
        self._keeper = keeper
        self._settings = settings
        self._emit = emit

    def join(self, node: str, join: Join, log_first: int, now: float) -> None:
        """A backup asks to be attached.

        One whose store must be cut or overwritten first leaves the ready set (``resync_while_in_ready_set``), also one
        that lacks what has passed the commit point: its disk was set back (``listed_member_whose_disk_was_set_back``).
        """
        if join.member.node != node:
            self._attachments.refuse(node, join.session, f"{join.member.node} speaks for itself")
            return
        if (stranger := self._keeper.refuses(join.member)) is not None:
            self._attachments.refuse(node, join.session, stranger)
            return
        if unknown := self._unknown_flags(node):
            reason = f"upgrade node {node}: it does not know what is raised by flags for good, {', '.join(unknown)}"
            self._attachments.refuse(node, join.session, reason)
            return
        if unknown := self._unknown_actions(node):
            reason = f"upgrade node {node}: calls are kept of actions that it does not know, {', '.join(unknown)}"
            self._attachments.refuse(node, join.session, reason)
            return
        self._attachments.detach(node, now)
        if self._replica.contents.access.events and not self._attachments.has(node, USERS_FEATURE):
            reason = f"the cluster keeps its users, of which {node} knows nothing: upgrade this node"
            self._attachments.refuse(node, join.session, reason)
            return
        tail = self._replica.tail.sequence
        common = common_sequence(self._replica.history, tail, join.history, join.tail.sequence)
        copy = join.resyncing or common < join.applied or common + 1 < log_first or join.member in self.must_resync
        undo = copy or common < join.tail.sequence or common < self._point.sequence
        self._forget_other_incarnations(join.member, now)
        if undo and join.member in self._keeper.counted():
            self._attachments.parked[node] = join
            self._keeper.remove(join.member, now)
            return
        self._attachments.parked.pop(node, None)
        if copy:
            self._resync(node, join, now)
        else:
            self._attach(node, join, common, now)

    def _unknown_flags(self, node: str) -> list[str]:
        """The flags that are raised and that this node has not announced."""
        raised = self._replica.contents.calls.names_of(FLAG)
        return [flag for flag in raised if not self._attachments.has(node, flag)]

    def _unknown_actions(self, node: str) -> list[str]:
        """The actions of which there was a call, and that this node has not announced: it could not take the record."""
        actions, calls = self._replica.actions, self._replica.contents.calls
        known = [each for name in actions.operations() if (each := actions.latest(name)) and calls.names_of(name)]
        return [each.operation for each in known if each.feature and not self._attachments.has(node, each.feature)]

    def take_up(self, log_first: int, now: float) -> None:
        """The record has changed: attach those whose members have left the ready set."""
        for node, join in list(self._attachments.parked.items()):
            if join.member not in self._keeper.counted():
                self.join(node, join, log_first, now)

    def _attach(self, node: str, join: Join, common: int, now: float) -> None:
        generation = self._attachments.generation
        session = self._session(node, join, common, JoinGuard(self._replica.tail.sequence), now)
        self._emit(LogLine(BackupAttached(node, common, session.guard.at)))
        self._emit(Send(node, Follow(generation, join.session, common, self._point.sequence)))

    def _resync(self, node: str, join: Join, now: float) -> None:
        """The joiner's log does not lead to ours: copy the queues, then follow the stream."""
        self.must_resync.discard(join.member)
        session = self._session(node, join, -1, JoinGuard(NEVER), now)
        self._emit(LogLine(BackupResyncs(node)))
        portion, window = self._settings.portion_bytes, self._settings.window_bytes
        generation = self._attachments.generation
        session.resync = Resync(node, generation, join.session, self._replica, self._emit, portion, window)
        self._attachments.copies.append(session.resync)

    def _session(self, node: str, join: Join, keep: int, guard: JoinGuard, now: float) -> BackupSession:
        session = BackupSession(join.member, join.session, self._attachments.generation, keep, guard, now)
        self._attachments.attach(node, session)
        return session

    def _forget_other_incarnations(self, member: Member, now: float) -> None:
        """A node that comes with a new store is another member (``wiped_disk_is_ready_member``)."""
        for known in sorted(self._keeper.counted()):
            if known.node == member.node and known != member:
                self._keeper.remove(known, now)
