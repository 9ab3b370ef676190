"""One seed of a cluster in which operators make cluster calls, under load and faults (P13).

The faults are drawn as in every run, but for those that lose something: what a node's surroundings hold of calls that
an operator has given up is no promise. The draws of other runs do not shift by this one.
"""

from __future__ import annotations

from dataclasses import replace

from ha.calls.answers import ALL, CallDone, CallUnknown
from ha.settings import Settings
from tests.simulation.call_checkers import CallsInOrder
from tests.simulation.call_clients import CallOperator
from tests.simulation.call_reference import CallReference
from tests.simulation.clients import Consumer, Feeder, Keeper, Worker
from tests.simulation.faults import Fault, Faults, independent
from tests.simulation.releases import Release
from tests.simulation.run import HEAL_SECONDS, LOAD_SECONDS, Run
from tests.simulation.surroundings import ACTIONS
from tests.simulation.truth import Broken
from txobserver.calls import CALLS_FEATURE

RELEASE = Release("that with calls", features=frozenset({CALLS_FEATURE}), actions=ACTIONS)
OPERATORS = 3


class CallsRun(Run):
    """As ``Run``, with few other clients. ``recorded``: how many calls the stream holds in the end."""

    kinds = ((Feeder, 1), (Worker, 1), (Consumer, 3), (Keeper, 1))

    def __init__(self, seed: int, schedule: list[Fault] | None = None, transcript: bool = False) -> None:
        self.operators: list[CallOperator] = []
        self.recorded = 0
        super().__init__(seed, schedule, transcript)

    def drawn(self) -> list[Fault]:
        """Those that lose nothing."""
        return independent(self.world, LOAD_SECONDS)

    def adapted(self, settings: Settings) -> Settings:
        """A short history, and short times."""
        chance = self.world.chance("calls")
        times = chance.choice((0.05, 0.3)), chance.choice((0.2, 1.0, 3.0))
        return replace(settings, call_retry=times[0], ticket_timeout=times[1], calls_kept=chance.choice((3, 8, 100)))

    def releases(self, names: list[str]) -> dict[str, Release]:
        """All know calls."""
        return dict.fromkeys(names, RELEASE)

    def _declare(self) -> None:
        super()._declare()
        self.cluster.trouble = True
        self.operators = [CallOperator(self.cluster, number) for number in range(OPERATORS)]

    def _heal(self, faults: Faults) -> None:
        for operator in self.operators:
            operator.stopping = True
        self.cluster.trouble = False
        super()._heal(faults)

    def _drain(self) -> None:
        """Each node has run all calls, and tells of each what became of it (P12)."""
        super()._drain()
        self._until(self._all_run, HEAL_SECONDS, "end of cluster calls")
        found = {each.id: each for each in self._stream().calls}
        self.recorded = len(found)
        chance = self.world.chance("calls/asked again")
        asked = [(operator, call_id) for operator in self.operators for call_id in operator.told]
        for operator, call_id in asked:
            process = chance.choice(self.cluster.running())
            operator.told[call_id] = None
            operator.ask(process, call_id, ALL, 30.0)
        self._until(
            lambda: all(o.told[c] is not None for o, c in asked), HEAL_SECONDS, "answer to each that asks again"
        )
        kept = {each.record.id for each in self.cluster.running()[0].core.replica.contents.calls.kept}
        for operator, call_id in asked:
            done = CallDone(found[call_id].tnx_id) if call_id in found else CallUnknown(call_id)
            forgotten = call_id not in kept and operator.told[call_id] == CallUnknown(call_id)
            if operator.told[call_id] != done and not forgotten:
                raise Broken("P13", f"{call_id!r} is told to be {operator.told[call_id]}, and it is {done}")

    def _stream(self) -> CallReference:
        return next(each for each in self.cluster.truth.checkers if isinstance(each, CallsInOrder)).stream

    def _all_run(self) -> bool:
        """Each node has run all calls that any of them knows: one whose stream lags says, rightly, that it does not
        know what became of the last (seed 1040106)."""
        last = max(each.core.replica.contents.calls.last for each in self.cluster.running())
        for process in self.cluster.running():
            calls = process.core.calls
            if calls.runner.calls.last < last:
                return False
            if calls.hands.busy or calls.hands.local.intent or not calls.runner.at_head():
                return False
            if calls.initiator.present is not None or calls.initiator.waiting:
                return False
        return True
