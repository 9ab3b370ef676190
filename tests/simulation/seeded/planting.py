"""What a seeded fault is, how it is planted, and who finds it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import isfunction, signature
from typing import Any
from unittest.mock import patch

from tests.simulation.kinds import kind_of
from tests.simulation.run import Result
from tests.support.invariants import unchecked
from tests.support.planted import first_that_breaks


@dataclass(frozen=True)
class Seeded:
    """``promises``: whose checkers may find it; ``rare``: it takes some hundred seeds.

    ``first``: where the slice begins to look, since the seeds before have been seen not to find it. ``mixed``: it takes
    nodes of different releases (``tests.simulation.mixed``); ``calls``: cluster calls (``tests.simulation.calls_run``);
    ``users``: changes of users (``tests.simulation.users_run``); ``handovers``: one handover after the other
    (``tests.simulation.handovers_run``); ``rolling``: upgrades to calls and their flag (``tests.simulation.rolling``);
    ``members``: changes of the cluster's members (``tests.simulation.members_run``).
    """

    name: str
    promises: tuple[str, ...]
    plant: Callable[[ExitStack], None]
    rare: bool = False
    first: int = 0
    mixed: bool = False
    calls: bool = False
    users: bool = False
    handovers: bool = False
    rolling: bool = False
    members: bool = False


SEEDED: list[Seeded] = []


def seeded(
    *promises: str,
    rare: bool = False,
    first: int = 0,
    mixed: bool = False,
    calls: bool = False,
    users: bool = False,
    handovers: bool = False,
    rolling: bool = False,
    members: bool = False,
) -> Callable[[Callable[[ExitStack], None]], Callable[[ExitStack], None]]:
    """Register a fault under the name of its function."""

    def register(plant: Callable[[ExitStack], None]) -> Callable[[ExitStack], None]:
        given = (mixed, calls, users, handovers, rolling, members)
        SEEDED.append(Seeded(plant.__name__, promises, plant, rare, first, *given))
        return plant

    return register


def find(fault: Seeded, seeds: int, first: int = 0) -> Result | None:
    """The first seed in which the fault breaks the promise that it was meant to break, by the simulator's checkers.

    Invariants are not checked: what they find would not show whether the checkers do.
    """
    run = kind_of(fault.mixed, fault.calls, fault.users, fault.handovers, fault.rolling, fault.members)
    with unchecked():
        return first_that_breaks(fault.plant, fault.promises, lambda seed: run(seed).run(), range(first, first + seeds))


def replace(stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """For as long as the stack is open, ``owner.name`` is what ``make`` makes of it.

    Raises TypeError for a function that cannot be called as the original is: each seed would end there, and the fault
    would count as not found.
    """
    original = owner.__dict__[name]
    made = make(original)
    if isfunction(original) and isfunction(made):
        _check_called_alike(original, made)
    stack.enter_context(patch.object(owner, name, made))


def _check_called_alike(original: Any, made: Any) -> None:
    parameters = list(signature(original).parameters.values())
    ordered = [each for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    needed = [each for each in ordered if each.default is each.empty]
    for given in (needed, ordered):
        try:
            signature(made).bind(*given)
        except TypeError as error:
            replaced = original.__qualname__
            raise TypeError(f"the fault replaces {replaced}, and cannot be called as it: {error}") from None
