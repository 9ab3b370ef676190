"""The shortest schedule that still breaks the same promise (delta debugging), with faults as short as can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.simulation.faults import Fault
from tests.simulation.run import Run

SHORTER = (0.02, 0.1, 0.3)


def shrink(seed: int, promise: str, schedule: Sequence[Fault], say: Callable[[str], None]) -> list[Fault]:
    """Leave out and shorten faults for as long as ``promise`` is broken all the same.

    Again and again: once one fault is shorter, another may no longer be needed.
    """

    def breaks(candidate: list[Fault]) -> bool:
        return Run(seed, candidate).run().promise == promise

    faults, before = list(schedule), None
    while faults != before:
        before = faults
        faults = _shortened(_without_the_needless(faults, breaks, say), breaks)
    return faults


def _without_the_needless(
    faults: list[Fault], breaks: Callable[[list[Fault]], bool], say: Callable[[str], None]
) -> list[Fault]:
    size = max(1, len(faults) // 2)
    while faults:
        left_out = False
        for start in range(0, len(faults), size):
            candidate = faults[:start] + faults[start + size :]
            if len(candidate) < len(faults) and breaks(candidate):
                faults, left_out = candidate, True
                say(f"{len(faults)} faults still do it")
                break
        if not left_out:
            if size == 1:
                break
            size //= 2
        size = max(1, min(size, len(faults)))
    return faults


def _shortened(faults: list[Fault], breaks: Callable[[list[Fault]], bool]) -> list[Fault]:
    for number, fault in enumerate(faults):
        for seconds in SHORTER:
            candidate = [*faults[:number], replace(fault, seconds=seconds), *faults[number + 1 :]]
            if seconds < fault.seconds and breaks(candidate):
                faults = candidate
                break
    return faults
