"""MemberChanges: an operator's change of the members, on its way into the record by the primary's own hand.

It goes with the next compare-and-set of the primary, whatever else that changes, so it cannot race with the primary's
own. One at a time: while the outcome of one is not known, it may still land, and another one that was made from the
same version would be taken for it (``two_changes_of_the_members_in_flight``). The number of a change says whether it
has landed: no other node changes the members within this generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from ha.effects import LogLine
from ha.log_events import MembersChanged
from ha.membership.belonging import membership_of, needed, with_ready_bound
from ha.membership.members import (
    ADD,
    ANY_ADDRESS,
    REMOVE,
    ChangeRefused,
    ClusterNode,
    MemberChange,
    Membership,
    bound,
    changed,
    shown,
)
from ha.membership.record import Record, changes_of
from ha.settings import Settings
from txobserver.ids import Member

Told = Callable[[str | None], None]
"""Called once with None when the change stands in the record, else with the reason why it does not"""
UNDER_WAY = "another change of the members is under way; ask again when it has ended"
HANDED_OVER = "the primary hands over, and nothing was changed; ask again"
UNKNOWN = "the primary has changed meanwhile: whether the members were changed is not known here; look and ask again"


class _Asked(NamedTuple):
    change: MemberChange
    number: int
    told: Told


class MemberChanges:
    """Of one primary. ``founding``: the nodes that its own file lists, which are the members until the record says so;
    ``attached``: the stores that are attached to it."""

    def __init__(self, me: Member, settings: Settings, emit: Callable[[LogLine], None]) -> None:
        self.founding: tuple[ClusterNode, ...] = ()
        self.attached: Callable[[], Iterable[Member]] = tuple
        self._me = me
        self._settings = settings
        self._emit = emit
        self._asked: _Asked | None = None
        self._sent = False

    @property
    def wanted(self) -> bool:
        """Whether a change waits to be sent, or for its outcome."""
        return self._asked is not None

    @property
    def leaving(self) -> str:
        """The node that is to be removed, or may be by now; else none."""
        asked = self._asked
        return asked.change.name if asked is not None and asked.change.kind == REMOVE else ""

    def ask(self, change: MemberChange, record: Record, told: Told) -> bool:
        """Take a change up, to be made from this record; returns whether it is to be sent."""
        if self._asked is not None:
            told(UNDER_WAY)
            return False
        try:
            after = membership_of(self._with(change, record))
        except ChangeRefused as refused:
            told(str(refused))
            return False
        assert after is not None
        if after.number == changes_of(record):  # it is so already, by the record or by the file of the primary
            told(None)
            return False
        if (nowhere := next((each.name for each in after.nodes if each.host in ANY_ADDRESS), None)) is not None:
            told(f"say first where others find {nowhere}, which listens on all addresses: `txha member move`")
            return False
        self._asked, self._sent = _Asked(change, after.number, told), False
        return True

    def carried_by(self, wished: Record) -> Record:
        """The record that is about to be proposed, with the change that waits, if it can be made in that one."""
        asked = self._asked
        if asked is not None and not wished.released:
            try:
                wished = self._with(asked.change, wished)
                self._sent = True
            except ChangeRefused:
                pass  # what is ready has changed with this proposal: ``settle`` judges it when that is stored
        return with_ready_bound(wished)

    def settle(self, record: Record) -> None:
        """The record is known again: a change has landed, or can land no more and is judged anew."""
        asked = self._asked
        if asked is None:
            return
        membership = membership_of(record)
        if membership is not None and membership.number >= asked.number:
            self._end(None)
            self._emit(LogLine(MembersChanged(membership.number, _described(asked.change), _listed(membership))))
            return
        self._sent = False
        try:
            self._with(asked.change, record)
        except ChangeRefused as refused:
            self._end(str(refused))

    def end(self) -> None:
        """The role of the primary ends: what was sent may land."""
        if self._asked is not None:
            self._end(UNKNOWN if self._sent else HANDED_OVER)

    def _end(self, error: str | None) -> None:
        assert self._asked is not None
        told, self._asked = self._asked.told, None
        told(error)

    def _with(self, change: MemberChange, record: Record) -> Record:
        """The record with this change. Raises ChangeRefused.

        A removal takes the member out of the ready set as well, and must not stop the commits by that.
        """
        after = self._changed(change, record)
        if change.kind != REMOVE:
            return msgspec.structs.replace(record, membership=after)
        ready = tuple(member for member in record.ready if member.node != change.name)
        found = msgspec.structs.replace(record, membership=after, ready=ready)
        before, behind = needed(record, self._settings), needed(found, self._settings)
        if len(record.ready) >= before and len(ready) < behind:
            listed = ", ".join(each.node for each in ready)
            raise ChangeRefused(
                f"without {change.name}, {len(ready)} would be ready ({listed}) where {behind} must be: wait until "
                "another node is ready, or remove one that is not"
            )
        return found

    def _changed(self, change: MemberChange, record: Record) -> Membership:
        if change.kind == REMOVE and change.name == self._me.node:
            if len(self._before(record).nodes) == 1:
                raise ChangeRefused(
                    f"{change.name} is the only member, and cannot be removed: add another node first, or just stop it"
                )
            raise ChangeRefused(
                f"{change.name} is the primary: hand over to another node first (`txha promote`), then remove it"
            )
        return changed(self._before(record), change, self.attached())

    def _before(self, record: Record) -> Membership:
        """Who belongs before the change: as the record says, or the primary's file until it does."""
        membership = membership_of(record)
        if membership is not None:
            return membership
        known = {each.name for each in self.founding}
        if strangers := sorted({member.node for member in record.ready} - known):
            raise ChangeRefused(
                f"the file of the primary, {self._me.node}, does not list {', '.join(strangers)}, which is ready: "
                "complete its `peers` and start it again first"
            )
        nodes = tuple(msgspec.structs.replace(each, counts=True) for each in self.founding)
        return bound(Membership(0, nodes), record.ready)


def _described(change: MemberChange) -> str:
    if change.kind == REMOVE:
        return f"{change.name} is removed"
    at = shown(change.host, change.port)
    return f"{change.name} is added at {at}" if change.kind == ADD else f"{change.name} is at {at} now"


def _listed(membership: Membership) -> str:
    return ", ".join(each.name for each in membership.nodes)
