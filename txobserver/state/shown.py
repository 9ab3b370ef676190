"""What the base still shows, while queues are deleted and purged over it and checkpoints are written.

A queue that was purged keeps what was in clients' hands. Where only the base holds such a message it stays there, and
is known by its offset and id: it is not read, however large it is (``a_purge_reads_what_it_spares``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator
from typing import Final

from txobserver.ports.store import END, IDS_PASSED, Base, Dropped, Entry, Ids


class Kept:
    """Offsets of a queue that the base goes on showing, with their replication ids. Never changed."""

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.rids: Final = dict(sorted(entries))
        self._offsets: Final = list(self.rids)

    def above(self, after: int) -> Iterator[int]:
        """Those above ``after``, in order."""
        for index in range(bisect_right(self._offsets, after), len(self._offsets)):
            yield self._offsets[index]


class ShownBase:
    """The base, less what was deleted and purged since its checkpoint."""

    def __init__(self, base: Base) -> None:
        self._base = base
        self._dropped: dict[int, Kept] = {}
        self._frozen: dict[int, Kept] = {}

    def drop(self, queue: int, kept: Kept) -> None:
        """Nothing of a queue is shown any more but this, which must have been shown."""
        self._dropped[queue] = kept

    def dropped(self, queue: int) -> bool:
        """Whether that was since the last checkpoint began."""
        return queue in self._dropped

    def freeze(self) -> list[Dropped]:
        """A checkpoint begins: what it takes out of the base."""
        self._frozen, self._dropped = self._dropped, {}
        return [Dropped(queue, kept.rids) for queue, kept in sorted(self._frozen.items())]

    def thaw(self) -> None:
        """It has been written."""
        self._frozen = {}

    def kept(self, queue: int) -> Kept | None:
        """All that is shown of a queue, if it was deleted or purged; None: all that the base holds."""
        kept = self._dropped.get(queue)
        return self._frozen.get(queue) if kept is None else kept

    def holds(self, queue: int, offset: int) -> bool:
        """Whether a message stands there; none is read."""
        kept = self.kept(queue)
        return (kept is None or offset in kept.rids) and self._base.holds(queue, offset)

    def get(self, queue: int, offset: int) -> Entry | None:
        """The entry, or None."""
        kept = self.kept(queue)
        return self._base.get(queue, offset) if kept is None or offset in kept.rids else None

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to ``limit`` (offset, entry) above ``after``, in order."""
        kept = self.kept(queue)
        if kept is None:
            return self._base.page(queue, after, limit)
        found: list[tuple[int, Entry]] = []
        for offset in kept.above(after):
            entry = self._base.get(queue, offset)
            if entry is not None:
                found.append((offset, entry))
            if len(found) == limit:
                break
        return found

    def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int]) -> Ids:
        """As ``Base.ids_page``."""
        kept = self.kept(queue)
        if kept is None:
            return self._base.ids_page(queue, after, limit, hidden)
        found: list[tuple[int, int]] = []
        passed, last = 0, after
        for offset in kept.above(after):
            if offset not in hidden:
                if len(found) == limit:
                    return Ids(found, found[-1][0])
                found.append((offset, kept.rids[offset]))
            elif (passed := passed + 1) > IDS_PASSED:
                return Ids(found, last)
            last = offset
        return Ids(found, END)

    def ids(self, queue: int) -> dict[int, int]:
        """Every offset with its replication id."""
        kept = self.kept(queue)
        return dict(self._base.ids(queue)) if kept is None else dict(kept.rids)
