"""Answers: what becomes of a call, and who waits until enough nodes have it.

A caller that has the call's id can ask again, at any node, for as long as the call is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ha.calls.standing import CallsStanding
from ha.messages.calls import CallAsk, CallStanding, DeskRequest
from txobserver.calls import KeptCall

ALL = 0
"""As a ``succeed_num``: every member that stood in the record, less those removed since."""
ASK_EVERY = 0.25
"""Seconds from one question to the primary which nodes have a call to the next."""


class CallDone(NamedTuple):
    """The call is recorded, and as many nodes have run it as were asked for."""

    tnx_id: int


class CallNotMade(NamedTuple):
    """The call was not recorded and never will be, and no node holds anything of it."""

    reason: str


class CallLagging(NamedTuple):
    """The call is recorded, and these nodes have not run it yet."""

    tnx_id: int
    nodes: tuple[str, ...]


class CallUnknown(NamedTuple):
    """It is not known whether the call is recorded: ask again with its id."""

    id: bytes


Answer = CallDone | CallNotMade | CallLagging | CallUnknown
Answered = Callable[[Answer], None]


class _Wait:
    def __init__(self, call: KeptCall, need: int, deadline: float, done: Answered) -> None:
        self.call = call
        self.need = need
        self.deadline = deadline
        self.done = done
        self.behind = tuple(call.record.members)
        self.asked_at: float | None = None


class CallAnswers:
    """Those who wait for nodes to run a call that is recorded. ``send``: to the primary."""

    def __init__(self, send: Callable[[DeskRequest], None]) -> None:
        self._send = send
        self._waits: list[_Wait] = []

    def wait(self, call: KeptCall, need: int, deadline: float, done: Answered) -> None:
        """Answer when ``need`` nodes have run this call, or at the deadline, in seconds on the node's clock."""
        self._waits.append(_Wait(call, need, deadline, done))

    def turn(self, standing: CallsStanding) -> None:
        """Ask the primary, and answer those whose time is up."""
        for wait in [each for each in self._waits if standing.now >= each.deadline]:
            self._waits.remove(wait)
            wait.done(CallLagging(wait.call.tnx_id, wait.behind))
        if standing.primary is None:
            return
        for wait in self._waits:
            if wait.asked_at is None or standing.now - wait.asked_at >= ASK_EVERY:
                wait.asked_at = standing.now
                record = wait.call.record
                self._send(CallAsk(standing.generation, record.id, wait.call.tnx_id, record.members))

    def stands(self, message: CallStanding) -> None:
        """The primary's word of one call."""
        for wait in [each for each in self._waits if each.call.record.id == message.id]:
            wait.behind = tuple(str(each) for each in message.behind)
            if (len(message.has) >= wait.need) if wait.need else not message.behind:
                self._waits.remove(wait)
                wait.done(CallDone(wait.call.tnx_id))
