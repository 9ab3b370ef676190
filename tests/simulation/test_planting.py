"""Planting itself: a fault that cannot be called as what it replaces says so, and is not "not found"."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.simulation.seeded import SEEDED, Seeded
from tests.simulation.seeded.planting import replace


class Owner:
    def carry_out(self, step: str, done: str, heuristic: bool = False) -> str:
        return f"{step} {done} {heuristic}"


def made(fault: Callable[..., str]) -> Callable[[Any], Any]:
    return lambda original: fault


@pytest.mark.parametrize(
    "fault",
    [
        lambda self, step: "",
        lambda self, step, done: "",
        lambda self, step, done, heuristic, more: "",
        lambda self: "",
    ],
    ids=["one less", "none of the optional ones", "one more", "none"],
)
def test_a_fault_of_another_signature_is_an_error(fault: Callable[..., str]) -> None:
    with ExitStack() as stack, pytest.raises(TypeError, match=r"replaces Owner\.carry_out, and cannot be called as it"):
        replace(stack, Owner, "carry_out", made(fault))
    assert Owner().carry_out("a", "b") == "a b False"


@pytest.mark.parametrize(
    "fault",
    [lambda self, step, done, heuristic=True: "planted", lambda self, step, *more: "planted", lambda *all: "planted"],
)
def test_one_that_can_be_called_alike_is_planted_for_as_long_as_the_stack_is_open(fault: Callable[..., str]) -> None:
    with ExitStack() as stack:
        replace(stack, Owner, "carry_out", made(fault))
        assert Owner().carry_out("a", "b") == Owner().carry_out("a", "b", True) == "planted"
    assert Owner().carry_out("a", "b") == "a b False"


@pytest.mark.parametrize("fault", SEEDED, ids=lambda each: each.name)
def test_each_seeded_fault_can_be_planted(fault: Seeded) -> None:
    with ExitStack() as stack:
        fault.plant(stack)
