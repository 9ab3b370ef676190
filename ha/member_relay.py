"""MemberRelay: changes of the members that operators ask for at a node, taken to the primary that it is attached to.

Where the attachment ends before the primary has answered, the outcome is not known here, and this is what is said.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.effects import Effect, Send
from ha.membership.member_changes import UNKNOWN, Told
from ha.membership.members import REMOVE, MemberChange
from ha.messages.member_asks import MemberAsk, MemberTold
from ha.refusals import NO_PRIMARY
from txobserver.actions import MEMBERS_FLAG


class MemberRelay:
    """Of one node. ``first``: requests are numbered from there on, another process of the node from elsewhere."""

    def __init__(self, emit: Callable[[Effect], None], first: int) -> None:
        self._emit = emit
        self._last = first
        self._waiting: dict[int, tuple[MemberChange, Told]] = {}

    def ask(self, primary: str, features: frozenset[str], generation: int, change: MemberChange, told: Told) -> None:
        """Ask the primary, another node with which these features are common; "" where none is known.

        ``told`` is always called in the end: with None, the reason of a refusal, or that the outcome is not known.
        """
        if not primary:
            told(NO_PRIMARY)
        elif MEMBERS_FLAG not in features:
            told(f"{primary}, the primary, knows nothing of members in the record: upgrade it first")
        else:
            self._last += 1
            self._waiting[self._last] = change, told
            self._emit(Send(primary, MemberAsk(generation, self._last, *change)))

    def answered(self, message: MemberTold) -> None:
        """The primary has answered."""
        if (asked := self._waiting.pop(message.number, None)) is not None:
            asked[1](message.error)

    def left(self, name: str) -> None:
        """This node, of that name, is no member any more, as the record says: who has asked for that here hears it."""
        for number, (change, told) in list(self._waiting.items()):
            if change.kind == REMOVE and change.name == name:
                del self._waiting[number]
                told(None)

    def lost(self) -> None:
        """The attachment, or the role, has ended: no more answers come."""
        waiting, self._waiting = self._waiting, {}
        for _, told in waiting.values():
            told(UNKNOWN)
