"""Plays many programs against both brokers and keeps what differs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from python_tests.amqp_programs.compare import Mismatch, explain, first_difference
from python_tests.amqp_programs.generator import generate
from python_tests.amqp_programs.player import Answers, Player
from python_tests.amqp_programs.program import Program
from python_tests.amqp_programs.shrink import shrink

AGAIN = 3
"""Times a program that differs is played on both, before that counts: AMQP leaves some orders open, and where RabbitMQ
answers once as txha did, or does not answer alike, it is counted as unsteady."""


class Fault(NamedTuple):
    """A program that is answered differently."""

    seed: int
    program: Program
    mismatch: Mismatch

    def text(self) -> str:
        """For people."""
        return f"seed {self.seed}: python -m python_tests.amqp_programs --seed {self.seed} --programs 1\n" + explain(
            self.program, self.mismatch
        )

    def data(self) -> dict[str, Any]:
        """For programs."""
        steps = [str(step) for step in self.program]
        return {"seed": self.seed, "program": steps, **self.mismatch._asdict()}


class Campaign:
    """``progress`` is told (programs played, faults so far) after each program."""

    def __init__(self, rabbitmq: Player, txha: Player, progress: Callable[[int, int], None]) -> None:
        self._rabbitmq = rabbitmq
        self._txha = txha
        self._progress = progress
        self.played = 0
        self.steps = 0
        self.operations = 0
        self.unsteady: list[int] = []
        self.faults: list[Fault] = []
        self._began = time.monotonic()

    def run(self, first: int, count: int, most_faults: int) -> None:
        """Until all are played, or so many faults have been found."""
        for seed in range(first, first + count):
            self._one(seed)
            self._progress(self.played, len(self.faults))
            if len(self.faults) >= most_faults:
                return

    def _one(self, seed: int) -> None:
        program = generate(seed)
        self.played += 1
        self.steps += len(program)
        self.operations += sum(len(step.ops) for step in program)
        if self._differs(program) is None:
            return
        if self._steadily(program) is None:
            self.unsteady.append(seed)
            return
        smallest = shrink(program, lambda smaller: self._differs(smaller) is not None)
        mismatch = self._steadily(smallest) or self._steadily(program)
        if mismatch is not None:
            self.faults.append(Fault(seed, smallest, mismatch))
        else:
            self.unsteady.append(seed)

    def _differs(self, program: Program) -> Mismatch | None:
        return first_difference(self._rabbitmq.play(program), self._txha.play(program))

    def _steadily(self, program: Program) -> Mismatch | None:
        """How it differs if it does each time, and RabbitMQ answers alike each time."""
        wanted: list[Answers] | None = None
        found = None
        for _ in range(AGAIN):
            answers = self._rabbitmq.play(program)
            if wanted is not None and first_difference(wanted, answers):
                return None
            wanted = answers
            found = first_difference(wanted, self._txha.play(program))
            if found is None:
                return None
        return found

    def as_json(self) -> str:
        """Everything that the run found."""
        return json.dumps(
            {
                "programs": self.played,
                "steps": self.steps,
                "operations": self.operations,
                "seconds": round(time.monotonic() - self._began, 1),
                "unsteady": self.unsteady,
                "faults": [fault.data() for fault in self.faults],
            },
            indent=1,
        )

    def summary(self) -> str:
        """One line."""
        seconds = time.monotonic() - self._began
        return (
            f"{self.played} programs, {self.steps} steps, {self.operations} operations in {seconds:.0f} s:"
            f" {len(self.faults)} differ, {len(self.unsteady)} are not answered alike by RabbitMQ itself"
        )
