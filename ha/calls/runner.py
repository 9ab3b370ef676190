"""The runner: each node runs the calls that are recorded, in the order of their numbers, from its own durable cursor.

Promise (P13): every call behind the node's snapshot is run here, in order, without a gap but for recorded skips.

Only what has passed the commit point is looked at (``Contents.calls``), so no number that the cursor holds is ever cut
off and given again, but where an operator accepts a loss. Then the cursor's position is on no prefix of this stream any
more, and the node runs again what is kept, as one does that comes with a new store. That position is up to where the
node had applied the stream when it came to the call, since what lets it pass over others may stand behind the call
(``what_let_a_node_pass_over_a_call_is_lost``).

A call that fails is tried again every ``call_retry`` seconds, and the later ones wait; what the stream holds is applied
meanwhile.
"""

from __future__ import annotations

from ha.apply.applied_here import is_applied_here
from ha.apply.replica import Replica
from ha.calls.hands import Hands
from ha.effects import RunAction
from txobserver.calls import NO_MARK, CallMark, KeptCall, KeptCalls, LocalCalls
from txobserver.ids import Position


class CallRunner:
    """Of ``member``. ``failing``: the call that failed when it was last run, and is tried again at ``_retry_at``."""

    def __init__(self, member: str, replica: Replica, hands: Hands, retry: float) -> None:
        self.failing: KeptCall | None = None
        self._member = member
        self._replica = replica
        self._hands = hands
        self._retry = retry
        self._retry_at = 0.0
        self._clear: tuple[KeptCalls, int, int] | None = None
        self._has_failed = False

    @property
    def calls(self) -> KeptCalls:
        """What the applied prefix of the stream holds of calls."""
        return self._replica.contents.calls

    @property
    def cursor(self) -> CallMark:
        """Up to where this node has durably dealt with all calls."""
        return self._hands.local.cursor

    def at_head(self) -> bool:
        """Whether nothing is left to be run of what is applied, and the cursor says so durably."""
        calls, cursor = self.calls, self.cursor
        if is_applied_here(self._replica, cursor.position) is not True:
            return False
        return calls.next_for(self._member, cursor.tnx_id) is None and calls.covered(self._member, cursor) == cursor

    def step(self, now: float, ready: bool) -> bool:
        """Begin what is to be done next; False if there is nothing, or it is not time for it yet.

        No action before the node is ``ready``: behind what it has of the stream may stand that it is to do without it
        (``skipped_while_it_was_away``)."""
        calls, cursor = self.calls, self.cursor
        seen = self._clear
        if seen is not None and seen[0] is calls and seen[1:] == (calls.events, cursor.tnx_id):
            return False
        known = is_applied_here(self._replica, cursor.position)
        if known is None:
            return False
        if not known:
            self._move(NO_MARK)
            return True
        if self._has_failed:
            self._has_failed, self._retry_at = False, now + self._retry
        following = calls.next_for(self._member, cursor.tnx_id)
        covered = calls.covered(self._member, cursor)
        if covered != cursor:
            self._move(CallMark(covered.tnx_id, self._replica.applied))
        elif following is None:
            self.failing = None
            self._clear = calls, calls.events, cursor.tnx_id
            return False
        elif not ready or (self._waits_for(following) and now < self._retry_at):
            return False
        else:
            self._run(following)
        return True

    def _waits_for(self, following: KeptCall) -> bool:
        """Whether this is the call that has failed here."""
        return self.failing is not None and following.tnx_id == self.failing.tnx_id

    def _run(self, call: KeptCall) -> None:
        record, applied = call.record, self._replica.applied
        action = (call.operation, record.version, record.name, record.arguments)
        self._hands.run(RunAction(0, record.id, call.tnx_id, *action), lambda error: self._ran(call, applied, error))

    def _ran(self, call: KeptCall, applied: Position, error: str | None) -> None:
        """``applied``: as of where this call was the next one."""
        if error is None:
            self.failing = None
            self._move(CallMark(call.tnx_id, applied))
        else:
            self.failing, self._has_failed = call, True

    def _move(self, mark: CallMark) -> None:
        self._hands.keep(LocalCalls(mark, self._hands.local.intent), lambda: None)
