"""Relay: what operators change at any node becomes a step of the primary's stream.

A node passes a step on to the primary that it is attached to, and answers when the primary does. Where the attachment
or the role ends before that, the outcome is not known here, and this is what is said: the step may have been appended.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.effects import Effect, Send
from ha.messages.steps import StepAsk, StepTold
from txobserver.access import ACCESS
from txobserver.events import Configure
from txobserver.ports.ledger import Done

NO_PRIMARY = "this node knows no primary at the moment; ask again"
NOT_ACTIVE = "the primary does not serve at the moment; ask again"
OUTCOME_UNKNOWN = "the primary has changed meanwhile: whether this was done is not known here; look at it and ask again"
RELAYED = ACCESS
"""The operations that may be asked for at any node."""


class StepRelay:
    """Of one node. ``waiting``: who waits for the answer to which request. ``first``: requests are numbered from there
    on; another process of the node has another one, so no answer to an earlier one's request is taken for one to ours
    (``answered_after_a_restart``)."""

    def __init__(self, emit: Callable[[Effect], None], first: int) -> None:
        self.waiting: dict[int, Done] = {}
        self._emit = emit
        self._last = first

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
        self._end(message.number, message.error)

    def lost(self) -> None:
        """The attachment, or the role, has ended: no more answers come."""
        waiting, self.waiting = self.waiting, {}
        for done in waiting.values():
            done(OUTCOME_UNKNOWN)

    def asked(self, peer: str, message: StepAsk, active: bool, append: Callable[[Configure, Done], None]) -> None:
        """Another node asks this one, the primary."""

        def tell(error: str | None) -> None:
            self._emit(Send(peer, StepTold(message.generation, message.number, error)))

        if message.operation not in RELAYED:
            tell(f"{message.operation!r} cannot be asked for at another node")
        elif not active:
            tell(NOT_ACTIVE)
        else:
            append(Configure(0, message.operation, message.name, message.arguments), tell)

    def _begin(self, done: Done) -> int:
        self._last += 1
        self.waiting[self._last] = done
        return self._last

    def _end(self, number: int, error: str | None) -> None:
        done = self.waiting.pop(number, None)
        if done is not None:
            done(error)
