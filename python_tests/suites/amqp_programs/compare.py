"""Says where two brokers' answers to a program differ."""

from __future__ import annotations

from typing import NamedTuple

from python_tests.suites.amqp_programs.differences import alike, ends
from python_tests.suites.amqp_programs.player import Answers
from python_tests.suites.amqp_programs.program import Program


class Mismatch(NamedTuple):
    """The first step that was answered differently; ``len(program)`` stands for the contents at the end."""

    step: int
    wanted: list[str]
    got: list[str]


def first_difference(wanted: list[Answers], got: list[Answers], product: str) -> Mismatch | None:
    """None if all is the same, but for the differences that are wanted. ``product``: whose the wanted answers are."""
    for number, (one, other) in enumerate(zip(alike(wanted, product), alike(got, product), strict=False)):
        if ends(one, other, product):
            return None
        if one != other:
            names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
            return Mismatch(number, _lines(one, names), _lines(other, names))
    return None if len(wanted) == len(got) else Mismatch(min(len(wanted), len(got)), [], [])


def _lines(answers: Answers, names: list[str]) -> list[str]:
    return [f"{name}: {text}" for name in names for text in answers.get(name, [])]


def explain(program: Program, mismatch: Mismatch, product: str = "RabbitMQ") -> str:
    """The program up to there, and both answers."""
    steps = [f"  {number:2} {step}" for number, step in enumerate(program[: mismatch.step + 1])]
    where = f"step {mismatch.step}" if mismatch.step < len(program) else "the contents at the end"
    wanted = [f"  {product}: {text}" for text in mismatch.wanted if text not in mismatch.got]
    got = [f"  {'txha':{len(product)}}: {text}" for text in mismatch.got if text not in mismatch.wanted]
    return "\n".join([*steps, f"differs in {where}:", *wanted, *got])
