"""Relay: what operators change at any node becomes a step of the primary's stream.

A node passes a step on to the primary that it is attached to. The primary answers, and when this node has applied the
step as well, it answers too: who looks here then sees what was changed (``told_before_it_is_applied_here``). Where the
attachment or the role ends before the primary has answered, the outcome is not known here, and this is what is said:
the step may have been appended.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.applied_here import is_applied_here
from ha.apply.replica import Replica
from ha.effects import Effect, Send
from ha.member_relay import MemberRelay
from ha.messages.steps import NOT_APPENDED, StepAsk, StepTold
from ha.refusals import NOT_ACTIVE, OUTCOME_UNKNOWN
from txobserver.access import ACCESS
from txobserver.events import Configure
from txobserver.ids import Position
from txobserver.ports.ledger import Done

RELAYED = ACCESS
"""The operations that may be asked for at any node."""


class StepRelay:
    """Of one node. ``waiting``: who waits for the answer to which request; ``_told``: what the primary has answered to
    those whose step is not applied here; ``members``: changes of the cluster's members.

    ``first``: requests are numbered from there on; another process of the node has another one, so no answer to an
    earlier one's request is taken for one to ours (``answered_after_a_restart``).
    """

    def __init__(self, replica: Replica, emit: Callable[[Effect], None], first: int) -> None:
        self.waiting: dict[int, Done] = {}
        self._told: dict[int, StepTold] = {}
        self._replica = replica
        self._emit = emit
        self._last = first
        self.members = MemberRelay(emit, first)

    def here(self, step: Configure, done: Done, append: Callable[[Configure, Done], None]) -> None:
        """Ask this node's own ledger, as the primary."""
        number = self._begin(done)
        append(step, lambda error: self._end(number, error))

    def at(self, primary: str, generation: int, step: Configure, done: Done) -> None:
        """Ask the primary, another node."""
        number = self._begin(done)
        self._emit(Send(primary, StepAsk(generation, number, step.operation, step.name, step.arguments)))

    def answered(self, message: StepTold) -> None:
        """The primary has answered."""
        if message.applied == NOT_APPENDED:
            self._end(message.number, message.error)
        elif message.number in self.waiting:
            self._told[message.number] = message

    def settle(self) -> None:
        """A turn ends: tell what the primary has answered, where it is applied here; where it never will be, since the
        stream was given up in which it stands, nothing is known of it (``given_up_after_it_was_told``)."""
        for told in list(self._told.values()):
            applied = is_applied_here(self._replica, told.applied)
            if applied is not None:
                self._end(told.number, told.error if applied else OUTCOME_UNKNOWN)

    def lost(self) -> None:
        """The attachment, or the role, has ended: no more answers come. Those that have come are told in their time."""
        for number in [each for each in self.waiting if each not in self._told]:
            self._end(number, OUTCOME_UNKNOWN)
        self.members.lost()

    def fail(self) -> None:
        """The node has failed, and applies nothing more."""
        for told in list(self._told.values()):
            self._end(told.number, told.error)
        self.lost()

    def asked(self, peer: str, message: StepAsk, active: bool, append: Callable[[Configure, Done], None]) -> None:
        """Another node asks this one, the primary."""

        def tell(error: str | None, applied: Position = NOT_APPENDED) -> None:
            self._emit(Send(peer, StepTold(message.generation, message.number, error, applied)))

        if message.operation not in RELAYED:
            tell(f"{message.operation!r} cannot be asked for at another node")
        elif not active:
            tell(NOT_ACTIVE)
        else:
            step = Configure(0, message.operation, message.name, message.arguments)
            append(step, lambda error: tell(error, self._replica.applied))

    def _begin(self, done: Done) -> int:
        self._last += 1
        self.waiting[self._last] = done
        return self._last

    def _end(self, number: int, error: str | None) -> None:
        self._told.pop(number, None)
        done = self.waiting.pop(number, None)
        if done is not None:
            done(error)
