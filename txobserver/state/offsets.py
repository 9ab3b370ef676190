"""Offsets in order: of messages that come in ascending order nearly always, and are looked through from any offset
on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from txobserver.ports.store import END


class Offsets:
    """Offsets in order. One that comes out of order (only a resync does that) costs a sort at the next look."""

    def __init__(self) -> None:
        self._offsets: list[int] = []
        self._sorted = True

    def add(self, offset: int) -> None:
        """One more."""
        if self._offsets and offset < self._offsets[-1]:
            self._sorted = False
        self._offsets.append(offset)

    def give_away(self) -> list[int]:
        """All of them, for ``Leftovers``: nothing looks at them here any more, but readings that have begun."""
        return self._offsets

    def reach(self, after: int, count: int) -> int:
        """The last of the first ``count`` offsets above ``after``; ``END`` if there are fewer."""
        offsets = self._in_order()
        index = bisect_right(offsets, after) + count - 1
        return offsets[index] if index < len(offsets) else END

    def above(self, after: int) -> Iterator[int]:
        """Those above ``after``, in ascending order; one that was added twice comes twice."""
        offsets = self._in_order()
        for index in range(bisect_right(offsets, after), len(offsets)):
            yield offsets[index]

    def _in_order(self) -> list[int]:
        if not self._sorted:
            self._offsets.sort()
            self._sorted = True
        return self._offsets
