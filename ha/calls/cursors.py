"""Which nodes have which call, as the primary knows it: what they have reported to it in its generation."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ha.apply.applied_here import is_applied_here
from ha.apply.replica import Replica
from ha.messages.calls import CallAsk, CallStanding, CursorReport, CursorsAsk, CursorsTold, NodeCursor
from txobserver.ids import Member

MOST_ASKING = 10_000
"""Questions that wait for nodes to go on; beyond them all are forgotten, and those who ask do so again."""


class CallCursors:
    """``members``: those of the ready set."""

    def __init__(self, replica: Replica, members: Callable[[], Sequence[Member]]) -> None:
        self.reports: dict[Member, CursorReport] = {}
        self._replica = replica
        self._members = members
        self._asking: dict[tuple[str, bytes], CallAsk] = {}
        self._gone: set[str] = set()

    def report(self, peer: str, message: CursorReport) -> None:
        """A node's store that was made anew is another member, and the one before it reports no more."""
        if message.member.node == peer:
            self._gone.discard(peer)
            self.reports = {each: told for each, told in self.reports.items() if each.node != peer}
            self.reports[message.member] = message

    def asked(self, peer: str, message: CallAsk) -> CallStanding:
        """The answer; one by which nodes lag is followed by others, when they go on."""
        standing = self.stands(message)
        self._asking.pop((peer, message.id), None)
        if standing.behind:
            if len(self._asking) >= MOST_ASKING:
                self._asking.clear()
            self._asking[peer, message.id] = message
        return standing

    def news(self) -> list[tuple[str, CallStanding]]:
        """A node has reported: what those are told whose answers wait for it."""
        return [(peer, self.asked(peer, message)) for (peer, _), message in list(self._asking.items())]

    def forget(self, peer: str) -> None:
        """The link to this node is gone: it asks again, and what it has told may be so no more when it is back."""
        self._gone.add(peer)
        self._asking = {key: asked for key, asked in self._asking.items() if key[0] != peer}

    def has(self, member: Member, tnx_id: int) -> bool:
        """Whether this member has durably dealt with all calls up to this one, as the present stream has them."""
        told = self.reports.get(member)
        if told is None:
            return False
        return told.cursor.tnx_id >= tnx_id and is_applied_here(self._replica, told.cursor.position) is True

    def at(self, member: str) -> int:
        """Up to which call this member has dealt with all; 0 where it has not told it of the present stream since it
        was linked last (``cursor_lost_while_away``)."""
        told = next((told for each, told in self.reports.items() if str(each) == member), None)
        if told is None or told.member.node in self._gone or not is_applied_here(self._replica, told.cursor.position):
            return 0
        return told.cursor.tnx_id

    def stands(self, message: CallAsk) -> CallStanding:
        """Those who ask say what the record says: it may be remembered no more here."""
        has = [each for each in sorted(self.reports) if self.has(each, message.tnx_id)]
        behind = [each for each in self._members() if str(each) in message.members and each not in has]
        return CallStanding(message.generation, message.id, message.tnx_id, has, behind)

    def told(self, message: CursorsAsk) -> CursorsTold:
        """How far each node is."""
        counted = set(self._members())
        rows = [self._row(each, each in counted) for each in sorted(counted | self.reports.keys())]
        return CursorsTold(message.generation, message.id, rows)

    def _row(self, member: Member, counts: bool) -> NodeCursor:
        told = self.reports.get(member)
        if told is None:
            return NodeCursor(member, counts, None, 0, "")
        return NodeCursor(member, counts, told.cursor, told.failing, told.reason)
