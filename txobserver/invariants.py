"""Invariants: what must be so after each transition of the state machines, asserted where the state is.

They are off in a node. ``CHECKS.switch_on`` turns them on: tests and the simulator do that, and a node whose
environment has ``TXHA_CHECK_INVARIANTS=1``. Each is a plain ``assert`` whose message begins with the promise of
docs/promises.md that would be broken next; ``checking`` makes an ``InvariantBroken`` of one that fails. What costs the
same however much is held is looked at after each transition, what walks through a whole queue or table after every
``DEEP_EVERY``-th.

A check changes nothing and reads no message from a store, so a run with checks does what it does without.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

DEEP_EVERY = 64
"""Transitions from one look through everything to the next."""
WALKED = 2000
"""Entries of a table or queue that one look goes through at most; a longer one is passed over."""


class InvariantBroken(AssertionError):
    """A state that cannot be. ``promise``: the one that it would break, such as P7; ``where``: whose state it is."""

    def __init__(self, where: str, found: str) -> None:
        super().__init__(f"{found} ({where})" if where else found)
        self.promise = found.partition(":")[0]
        self.where = where


def assertions_are_kept() -> bool:
    """Whether this Python carries assertions out."""
    return __debug__


class Checks:
    """The switch of this process."""

    def __init__(self) -> None:
        self.on = False

    def switch_on(self) -> None:
        """Check from now on. RuntimeError in a Python that leaves assertions out: that would check nothing."""
        if not assertions_are_kept():
            raise RuntimeError("invariants cannot be checked with python -O, which leaves assertions out")
        self.on = True

    def switch_off(self) -> None:
        """Check no more."""
        self.on = False


CHECKS = Checks()


class DeepChecks:
    """Which transitions are followed by a look through everything. A counter tells: it is the same in each run."""

    def __init__(self, every: int = DEEP_EVERY) -> None:
        self._every = every
        self._count = 0

    def deep(self) -> bool:
        """Whether this one is."""
        self._count += 1
        return self._count % self._every == 0


@contextmanager
def checking(where: str) -> Iterator[None]:
    """Raise what an assertion within finds as an InvariantBroken of this part."""
    try:
        yield
    except InvariantBroken:
        raise
    except AssertionError as error:
        raise InvariantBroken(where, str(error)) from None


def rises(numbers: Iterable[int]) -> bool:
    """Whether each is greater than the one before."""
    return all(one < other for one, other in pairwise(numbers))


def never_falls(numbers: Iterable[int]) -> bool:
    """Whether none is smaller than the one before."""
    return all(one <= other for one, other in pairwise(numbers))


def differ(items: Iterable[object]) -> bool:
    """Whether none comes twice."""
    found = list(items)
    return len(found) == len(set(found))
