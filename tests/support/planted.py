"""Who finds a fault that is put into the product on purpose: the same for every tester that draws its runs by seed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Protocol, TypeVar

import typer


class Judged(Protocol):
    """What a run has come to. ``promise``: the one that was broken, if one was."""

    promise: str


class Named(Protocol):
    """A fault, as the commands name it."""

    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Judged)
F = TypeVar("F", bound=Named)


def chosen(faults: Sequence[F], names: Collection[str]) -> list[F]:
    """Those with these names, which may be as a table shows them; all without any. Raises typer.BadParameter."""
    wanted = {name.replace(" ", "_") for name in names}
    if unknown := sorted(wanted - {fault.name for fault in faults}):
        raise typer.BadParameter(f"there is no fault {unknown[0]}; without a name, all are tried and listed")
    return [fault for fault in faults if not wanted or fault.name in wanted]


def first_that_breaks(
    plant: Callable[[ExitStack], None], promises: tuple[str, ...], run: Callable[[int], R], seeds: range
) -> R | None:
    """The first seed in which the fault that ``plant`` puts into the product breaks one of these promises."""
    with ExitStack() as stack:
        plant(stack)
        for seed in seeds:
            result = run(seed)
            if result.promise in promises:
                return result
    return None
