"""Places in order: of messages that come in ascending order nearly always, and are looked through from any place on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from txobserver.ports.store import END


class Offsets:
    """Places in order. One that comes out of order (only a resync does that) costs a sort at the next look."""

    def __init__(self) -> None:
        self._places: list[int] = []
        self._sorted = True

    def add(self, place: int) -> None:
        """One more."""
        if self._places and place < self._places[-1]:
            self._sorted = False
        self._places.append(place)

    def reach(self, after: int, count: int) -> int:
        """The last of the first ``count`` places above ``after``; ``END`` if there are fewer."""
        places = self._in_order()
        index = bisect_right(places, after) + count - 1
        return places[index] if index < len(places) else END

    def above(self, after: int) -> Iterator[int]:
        """Those above ``after``, in ascending order; one that was added twice comes twice."""
        places = self._in_order()
        for index in range(bisect_right(places, after), len(places)):
            yield places[index]

    def _in_order(self) -> list[int]:
        if not self._sorted:
            self._places.sort()
            self._sorted = True
        return self._places
