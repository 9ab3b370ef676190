"""RabbitMQ's answers to some programs, kept in a file, so that txha can be compared with them where it is not there."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from python_tests.suites.amqp_programs.generator import generate
from python_tests.suites.amqp_programs.player import ROUNDS, Answers, Player
from python_tests.suites.amqp_programs.program import Program, digest

FILE = Path(__file__).parents[3] / "tests" / "fixtures" / "amqp_programs_rabbitmq_3_10.json.xz"
AGAIN = (ROUNDS, 2 * ROUNDS, 4 * ROUNDS)
"""Barriers between steps when a program is played again: what one of RabbitMQ's queues does late comes sooner then."""

RECORD = "python -m python_tests.suites.amqp_programs --record"


class Recorded(NamedTuple):
    """A program and what RabbitMQ answers."""

    seed: int
    program: Program
    answers: list[Answers]


def record(rabbitmq: Player, first: int, count: int, progress: Callable[[int], None]) -> None:
    """Write the file anew. What RabbitMQ does not answer alike each time is left out, and another program taken."""
    kept: list[dict[str, object]] = []
    seed = first
    while len(kept) < count:
        program = generate(seed)
        answers = rabbitmq.play(program)
        if all(answers == rabbitmq.play(program, rounds) for rounds in AGAIN):
            kept.append({"seed": seed, "digest": digest(program), "answers": answers})
            progress(len(kept))
        seed += 1
    FILE.write_bytes(lzma.compress(json.dumps(kept, separators=(",", ":")).encode()))


def recorded() -> list[Recorded]:
    """What the file holds. ValueError if the generator draws other programs now."""
    found = []
    for entry in json.loads(lzma.decompress(FILE.read_bytes())):
        program = generate(entry["seed"])
        if digest(program) != entry["digest"]:
            raise ValueError(f"seed {entry['seed']} is another program now; record RabbitMQ's answers anew: {RECORD}")
        found.append(Recorded(entry["seed"], program, entry["answers"]))
    return found
