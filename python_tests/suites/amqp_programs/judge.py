"""Plays programs against txha and each RabbitMQ at the same time, and keeps what differs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.compare import Mismatch, explain, first_difference
from python_tests.suites.amqp_programs.generator import generate
from python_tests.suites.amqp_programs.player import FEW, ROUNDS, Answers, Player
from python_tests.suites.amqp_programs.program import Program
from python_tests.suites.amqp_programs.shrink import shrink

AGAIN = 3
"""Times a program that differs is played on both, before that counts: AMQP leaves some orders open, and where RabbitMQ
answers once as txha did, or does not answer alike, it is counted as unsteady."""


class Fault(NamedTuple):
    """A program that txha answers otherwise than ``product``, cut down, and the same as text."""

    seed: int
    product: str
    text: str


class Judged(NamedTuple):
    """One program. ``products``: what it was compared with; ``again``: where it was played with more barriers, since it
    differed with few; ``unsteady``: those that do not answer it alike each time.
    """

    steps: int
    operations: int
    products: list[str]
    again: list[str]
    unsteady: list[str]
    faults: list[Fault]


class Judge:
    """Asks brokers that are empty, and leaves them so."""

    def __init__(self, rabbitmqs: Sequence[Address], txha: Address) -> None:
        self._pool = ThreadPoolExecutor(len(rabbitmqs) + 1)
        self._txha = Player(txha)
        self._rabbitmqs = [Player(each) for each in rabbitmqs]

    def judge(self, seed: int) -> Judged:
        """Play it, and what differs again and again."""
        program = generate(seed)
        products = [player.product for player in self._rabbitmqs]
        judged = Judged(len(program), sum(len(step.ops) for step in program), products, [], [], [])
        plays = [self._pool.submit(player.play, program, FEW) for player in (self._txha, *self._rabbitmqs)]
        got, *answers = [play.result() for play in plays]
        for rabbitmq, wanted in zip(self._rabbitmqs, answers, strict=True):
            if first_difference(wanted, got, rabbitmq.product) is None:
                continue
            judged.again.append(rabbitmq.product)
            if self._differs(rabbitmq, program) is None:
                continue
            found = self._cut_down(rabbitmq, program)
            if found is not None:
                judged.faults.append(Fault(seed, rabbitmq.product, found))
            else:
                judged.unsteady.append(rabbitmq.product)
        return judged

    def _cut_down(self, rabbitmq: Player, program: Program) -> str | None:
        if self._steadily(rabbitmq, program) is None:
            return None
        smallest = shrink(program, lambda smaller: self._differs(rabbitmq, smaller) is not None)
        for shown in (smallest, program):
            if mismatch := self._steadily(rabbitmq, shown):
                return explain(shown, mismatch, rabbitmq.product)
        return None

    def _both(self, rabbitmq: Player, program: Program) -> tuple[list[Answers], list[Answers]]:
        wanted = self._pool.submit(rabbitmq.play, program, ROUNDS)
        got = self._txha.play(program, ROUNDS)
        return wanted.result(), got

    def _differs(self, rabbitmq: Player, program: Program) -> Mismatch | None:
        return first_difference(*self._both(rabbitmq, program), rabbitmq.product)

    def _steadily(self, rabbitmq: Player, program: Program) -> Mismatch | None:
        """How it differs if it does each time, and RabbitMQ answers alike each time."""
        before: list[Answers] | None = None
        found = None
        for _ in range(AGAIN):
            wanted, got = self._both(rabbitmq, program)
            if before is not None and first_difference(before, wanted, rabbitmq.product):
                return None
            before = wanted
            found = first_difference(wanted, got, rabbitmq.product)
            if found is None:
                return None
        return found

    def close(self) -> None:
        """Leave the brokers."""
        self._pool.shutdown()
        for player in (self._txha, *self._rabbitmqs):
            player.close()
