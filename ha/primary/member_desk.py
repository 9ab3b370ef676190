"""MemberDesk: where the primary takes changes of the members from operators, here and at other nodes, and lets go of
those that do not belong to the cluster any more (``ha.membership.member_changes``)."""

from __future__ import annotations

from collections.abc import Callable

from ha.effects import Effect, Send
from ha.membership.belonging import membership_of, objection_to
from ha.membership.member_changes import Told
from ha.membership.members import ClusterNode, MemberChange, wrong_in
from ha.membership.record_keeper import RecordKeeper
from ha.messages.member_asks import MemberAsk, MemberTold
from ha.primary.attachments import Attachments
from ha.refusals import NOT_ACTIVE
from txobserver.actions import FLAG, MEMBERS_FLAG
from txobserver.calls import KeptCalls
from txobserver.ids import Member

RAISE_FIRST = (
    "members are kept in the record when every node knows of them for good: raise the flag first, with "
    f"`txha calls call flag name={MEMBERS_FLAG}`; from then on no node of an earlier version can join"
)


class MemberDesk:
    """Of one generation. ``calls``: what the primary's stream holds of cluster calls, flags among them."""

    def __init__(
        self,
        keeper: RecordKeeper,
        attachments: Attachments,
        founding: tuple[ClusterNode, ...],
        calls: Callable[[], KeptCalls],
        emit: Callable[[Effect], None],
    ) -> None:
        self._keeper = keeper
        self._attachments = attachments
        self._calls = calls
        self._emit = emit
        self._over = False
        keeper.members.founding = founding
        keeper.members.attached = self._attached

    def ask(self, change: MemberChange, active: bool, now: float, told: Told) -> None:
        """An operator asks at this node. ``told`` is always called in the end."""
        if (refused := self._refuses(change, active)) is not None:
            told(refused)
        elif self._keeper.members.ask(change, self._keeper.record, told):
            self._keeper.send_if_due(now)

    def asked(self, peer: str, message: MemberAsk, active: bool, now: float) -> None:
        """An operator asks at another node."""

        def told(error: str | None) -> None:
            if not self._over:  # where it is, that node's attachment ends, and it says itself that nothing is known
                self._emit(Send(peer, MemberTold(message.generation, message.number, error)))

        self.ask(MemberChange(message.kind, message.name, message.host, message.port), active, now, told)

    def end(self) -> None:
        """The role of the primary ends: a node that is none answers no other (``told_by_a_former_primary``)."""
        self._over = True
        self._keeper.members.end()

    def let_go(self, now: float) -> None:
        """The record has changed: end the attachments of those that it does not count among the members."""
        attachments = self._attachments
        for node, member, number in self._followers():
            if (why := objection_to(self._keeper.record, member)) is not None:
                attachments.refuse(node, number, why)
                attachments.detach(node, now)

    def _refuses(self, change: MemberChange, active: bool) -> str | None:
        if not active:
            return NOT_ACTIVE
        if wrong := wrong_in(change):
            return wrong
        raised = MEMBERS_FLAG in self._calls().names_of(FLAG)
        return None if raised or membership_of(self._keeper.record) is not None else RAISE_FIRST

    def _followers(self) -> list[tuple[str, Member, int]]:
        """Who is attached, or waits to be: by node, with the number of the attachment."""
        sessions = [(node, each.member, each.number) for node, each in self._attachments.sessions.items()]
        return sessions + [(node, each.member, each.session) for node, each in self._attachments.parked.items()]

    def _attached(self) -> list[Member]:
        return [member for _, member, _ in self._followers()]
