"""One seed of a cluster whose users are changed at all nodes, under load and faults that lose nothing."""

from __future__ import annotations

from tests.simulation.clients import Consumer, Feeder, Keeper, Worker
from tests.simulation.faults import Fault, Faults, independent
from tests.simulation.run import HEAL_SECONDS, LOAD_SECONDS, Run
from tests.simulation.truth import Broken
from tests.simulation.user_checkers import SameUsers
from tests.simulation.user_clients import UserOperator

OPERATORS = 3


class UsersRun(Run):
    """As ``Run``, with few other clients. ``steps``: how many steps about users the stream holds in the end."""

    kinds = ((Feeder, 1), (Worker, 1), (Consumer, 3), (Keeper, 1))

    def __init__(self, seed: int, schedule: list[Fault] | None = None, transcript: bool = False) -> None:
        self.operators: list[UserOperator] = []
        self.steps = 0
        super().__init__(seed, schedule, transcript)

    def drawn(self) -> list[Fault]:
        """Those that lose nothing."""
        return independent(self.world, LOAD_SECONDS)

    def _declare(self) -> None:
        super()._declare()
        checker = next(each for each in self.cluster.truth.checkers if isinstance(each, SameUsers))
        self._stream = checker.stream
        self.operators = [UserOperator(self.cluster, self._stream, number) for number in range(OPERATORS)]

    def _heal(self, faults: Faults) -> None:
        for operator in self.operators:
            operator.stopping = True
        super()._heal(faults)

    def _drain(self) -> None:
        """Every operator whose node lives is answered (P12), and all nodes have the same digest."""
        super()._drain()
        running = self.cluster.running()
        self._until(
            lambda: not any(process in running for each in self.operators for process in each.waiting.values()),
            HEAL_SECONDS,
            "answer to each who asked for a change of a user",
        )
        self.steps = self._stream.steps
        digests = {process.name: process.core.replica.contents.access.digest() for process in running}
        if len(set(digests.values())) > 1:
            raise Broken("P7", f"users have the digests {digests}")
