"""What is in a client's hands, by delivery tag, in the order of the tags.

Deliveries come with rising tags. Acknowledgements take single tags, or all up to one; a rollback brings tags back among
those that stayed. So tags stand in runs of ``RUN`` neighbours: to take or to bring back one costs the same however many
there are, and to find the lowest costs one run (``an_acknowledgement_and_a_rollback_over_many``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from sortedcontainers import SortedDict

T = TypeVar("T")
BITS = 9
RUN = 1 << BITS
"""Tags of one run"""


class Unacked(Generic[T]):
    """Of one channel. ``steps`` counts the entries that its operations have looked at, since the beginning."""

    def __init__(self) -> None:
        self.steps = 0
        self._count = 0
        self._runs: SortedDict = SortedDict()
        self._newest: dict[int, T] = {}
        self._newest_number = -1
        self._mixed: set[int] = set()

    def __len__(self) -> int:
        return self._count

    def __contains__(self, tag: object) -> bool:
        return isinstance(tag, int) and tag in self._runs.get(tag >> BITS, ())

    def __iter__(self) -> Iterator[int]:
        return iter([tag for tag, _ in self.items()])

    def items(self) -> list[tuple[int, T]]:
        """All, in order."""
        return [entry for number in self._runs for entry in self._in_order(number).items()]

    def values(self) -> list[T]:
        """All that is held, in the order of the tags."""
        return [held for _, held in self.items()]

    def add(self, tag: int, held: T) -> None:
        """A delivery, whose tag is above all others."""
        if tag >> BITS != self._newest_number:
            self._begin(tag >> BITS)
        self._newest[tag] = held
        self._count += 1

    def pop(self, tag: int) -> T | None:
        """Take what is held under this tag; None if nothing is."""
        number = tag >> BITS
        run: dict[int, T] | None = self._newest if number == self._newest_number else self._runs.get(number)
        if run is None:
            return None
        held = run.pop(tag, None)
        if held is not None:
            self._count -= 1
            if not run and number != self._newest_number:
                del self._runs[number]
                self._mixed.discard(number)
        return held

    def take(self, tag: int, most: int) -> list[tuple[int, T]]:
        """The first of those up to this tag, so many at most, in order."""
        taken: list[tuple[int, T]] = []
        while self._runs and len(taken) < most:
            number = self._runs.peekitem(0)[0]
            run = self._in_order(number)
            before = len(taken)
            for each, held in run.items():
                if each > tag or len(taken) >= most:
                    break
                taken.append((each, held))
            self.steps += 1 + len(taken) - before
            if len(taken) - before < len(run):
                for each, _ in taken[before:]:
                    del run[each]
                break
            if number == self._newest_number:
                run.clear()
                break
            del self._runs[number]
        self._count -= len(taken)
        return taken

    def put_back(self, entries: Iterable[tuple[int, T]]) -> None:
        """These are held again."""
        for tag, held in entries:
            number = tag >> BITS
            run = self._runs.get(number)
            if run is None:
                run = self._runs[number] = {}
            elif run:
                self._mixed.add(number)
            run[tag] = held
            self._count += 1
            self.steps += 1

    def _in_order(self, number: int) -> dict[int, T]:
        """A run, put in order if something was brought back to it."""
        run: dict[int, T] = self._runs[number]
        if number in self._mixed:
            self._mixed.remove(number)
            self.steps += len(run)
            ordered = sorted(run.items(), key=_tag_of)
            run.clear()
            run.update(ordered)
        return run

    def _begin(self, number: int) -> None:
        if not self._newest:
            self._runs.pop(self._newest_number, None)
            self._mixed.discard(self._newest_number)
        self._newest_number = number
        self._newest = self._runs.setdefault(number, {})


def _tag_of(entry: tuple[int, object]) -> int:
    return entry[0]
