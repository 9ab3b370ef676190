"""Faults in how a primary hands over: what its clients are told, when it ends, and when the lease goes."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.channels.session import Session
from broker_plugin.embedded.errors import Forced
from ha.membership.record_keeper import RecordKeeper
from ha.primary.drain import Drain
from ha.primary.handover import Handover
from ha.primary.primary import Primary
from tests.simulation.client_link import ClientLink
from tests.simulation.seeded.planting import replace, seeded


@seeded("P4", handovers=True)
def told_not_done_though_undecided(stack: ExitStack) -> None:
    """Every client is told that what was not answered was not done."""
    replace(stack, EmbeddedBroker, "_undecided", lambda original: lambda self, session: False)


@seeded("P4", handovers=True, first=2)
def taken_during_the_drain_and_told_not_done(stack: ExitStack) -> None:
    """Clients are judged when the drain begins, and what they ask is carried out until it ends."""

    def draining(original: Any) -> Any:
        def on_draining(self: EmbeddedBroker) -> bool:
            self.judged = {each: each.outlet.undecided for each in self._sessions}  # type: ignore[attr-defined]
            return True

        return on_draining

    def undecided(original: Any) -> Any:
        def judge(self: EmbeddedBroker, session: Session) -> bool:
            judged: dict[Session, bool] = getattr(self, "judged", {})
            return judged.get(session, original(self, session))

        return judge

    replace(stack, EmbeddedBroker, "on_draining", draining)
    replace(stack, EmbeddedBroker, "_undecided", undecided)


@seeded("P12", "P10", handovers=True, first=2)
def lease_given_up_before_the_answers(stack: ExitStack) -> None:
    """The lease goes when the drain begins."""

    def make(original: Any) -> Any:
        def resign(self: Handover, primary: Primary, keeper: RecordKeeper, reason: str, now: float) -> None:
            original(self, primary, keeper, reason, now)
            keeper.release("", now)

        return resign

    replace(stack, Handover, "resign", make)


@seeded("P12", handovers=True, first=5)
def drain_that_never_ends(stack: ExitStack) -> None:
    """It waits for what is undecided, however long that takes."""

    def make(original: Any) -> Any:
        def over(self: Drain, commit: int, waiting: bool, now: float) -> bool:
            return original(self, commit, waiting, min(now, self.begun_at)) if self.can else True

        return over

    replace(stack, Drain, "over", make)


@seeded("P4", handovers=True, first=2)
def told_before_the_answers_were_heard(stack: ExitStack) -> None:
    """The last word does not wait for what its client has not shown to have heard."""

    def make(original: Any) -> Any:
        def force_close(self: ClientLink, error: Forced) -> None:
            self._unheard = self._pipelines = False
            original(self, error)

        return force_close

    replace(stack, ClientLink, "force_close", make)


@seeded("P12", handovers=True, first=2)
def closed_without_a_drain(stack: ExitStack) -> None:
    """Clients are closed in the turn in which nothing more of theirs is begun."""

    def make(original: Any) -> Any:
        def over(self: Drain, commit: int, waiting: bool, now: float) -> bool:
            return True

        return over

    replace(stack, Drain, "over", make)
