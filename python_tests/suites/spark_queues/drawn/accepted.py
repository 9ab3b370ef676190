"""A loss of data that an operator accepts: which rows went with it, and which must be there in the end.

What the cluster holds when it goes on is counted row by row. Behind that everything is as without a loss: what is in
the source's queue goes to the target's once, whatever stands in the target's by then.
"""

from __future__ import annotations

from collections.abc import Sequence

from python_tests.harness.crash_table import Broken
from python_tests.harness.waiting import wait_until
from python_tests.suites.spark_queues.drawn.brokers import WELL, Brokers
from python_tests.suites.spark_queues.drawn.counting import Names, held
from python_tests.suites.spark_queues.drawn.operators import Operator

EACH = 5
"""Rows that the backup never gets, and as many behind the loss, each in a transaction: they get the same places."""


class Loss:
    """That of one case, if it has any. ``accepted``: whether it has come to that."""

    def __init__(self, brokers: Brokers) -> None:
        self.accepted = False
        self._brokers = brokers
        self._safe: Sequence[str] = ()
        self._held: list[str] = []
        self._published = 0

    def leave_behind(self, names: Names, published: Sequence[str]) -> None:
        """``published``: the rows until now, which every node has."""
        self._brokers.leave_behind()
        self._safe = published
        self._publish(names, "lost")

    def settled(self, operator: Operator, *give_up: str) -> None:
        """``settle-spark`` has ended: what was decided is there, and cannot come about later."""
        wait_until(lambda: operator.settle_spark(*give_up) is None, WELL, "the end of settle-spark", every=0.2)

    def count(self, names: Names, published: int) -> None:
        """What is there behind the loss. ``published``: how many of the rows were until now.

        Raises Broken if a row that every node had is nowhere, or one has come back that was given up.
        """
        self.accepted = True
        self._published = published
        target, source = held(self._brokers, names.target), held(self._brokers, names.source)
        if twice := [row for queue in (target, source) for row, count in queue.items() if count > 1]:
            raise Broken(f"twice behind the loss are {twice}")
        safe, there = {*self._safe}, {*target, *source}
        if there != safe:
            gone, back = sorted(safe - there), sorted(there - safe)
            raise Broken(f"behind the loss {gone} are gone, which every node had, and {back} are there, which none had")
        self._held = list((target + source).elements())
        self._publish(names, "new")

    def wanted(self, bodies: Sequence[str]) -> list[str]:
        """The rows that must be there in the end; ``bodies`` are those of a case without a loss."""
        if not self.accepted:
            return list(bodies)
        return [*self._held, *_rows("new"), *bodies[self._published :]]

    def _publish(self, names: Names, kind: str) -> None:
        for row in _rows(kind):
            self._brokers.client.publish(names.source, [row])


def _rows(kind: str) -> list[str]:
    return [f"{kind}-{number}" for number in range(EACH)]
