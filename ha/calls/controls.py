"""What an operator may ask for a node that does not get on with its calls: skip one, fast-forward, reset."""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.replica import Replica
from ha.calls.cursors import CallCursors
from ha.messages.calls import ControlAsk
from txobserver.calls import CONTROLS, FAST_FORWARD, RESET, CallControl, control_step
from txobserver.events import Configure
from txobserver.ids import Member


class Controls:
    """Of one primary. ``members``: those of the ready set."""

    def __init__(self, replica: Replica, cursors: CallCursors, members: Callable[[], tuple[Member, ...]]) -> None:
        self._replica = replica
        self._cursors = cursors
        self._members = members

    def step(self, message: ControlAsk) -> Configure:
        """What is appended for it. A reset is of no node."""
        if message.operation == RESET:
            return control_step(RESET, CallControl(message.id, "", 0))
        member = self._member_of(message.node) or ""
        return control_step(message.operation, CallControl(message.id, member, message.tnx_id))

    def refusal(self, message: ControlAsk) -> str | None:
        """Why it would be in vain, in one sentence. What a node has not told this primary, it may have to run."""
        if message.operation == RESET:
            return None
        if message.operation not in CONTROLS:
            return f"{message.operation!r} is no way to help a node on"
        member = self._member_of(message.node)
        if member is None:
            return f"no node {message.node!r} takes part in calls"
        return self._in_vain(message, member)

    def _in_vain(self, message: ControlAsk, member: str) -> str | None:
        calls, node, tnx_id = self._replica.contents.calls, message.node, message.tnx_id
        due = calls.due(member, self._cursors.at(member))
        if message.operation == FAST_FORWARD:
            if tnx_id > calls.last:
                return f"the last call is {calls.last}"
            return None if due and due[0] <= tnx_id else f"{node} has no call up to {tnx_id} to run"
        if calls.numbered(tnx_id) is None:
            return f"no call {tnx_id} is remembered"
        return None if tnx_id in due else f"{node} has run call {tnx_id}, or is to do without it already"

    def _member_of(self, node: str) -> str | None:
        known = [*self._members(), *self._cursors.reports]
        return next((str(each) for each in known if each.node == node), None)
