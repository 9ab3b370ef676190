"""Who finds a fault that is put into the product on purpose: the same for every tester that draws its runs by seed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol, TypeVar


class Judged(Protocol):
    """What a run has come to. ``promise``: the one that was broken, if one was."""

    promise: str


R = TypeVar("R", bound=Judged)


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
