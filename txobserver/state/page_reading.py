"""Reading: a page of a queue that is on its way from the store, while the queue changes.

Promise: what is shown of the page is in the queue at the moment at which it is shown, in order, and nothing that was
there all the time is left out; whichever checkpoint the store was read at meanwhile.

Algorithm: a thread reads the base some time after the reading has begun. The layers over the base as they were at the
beginning are kept: a checkpoint may bring what they hold into the base before it is read, or after. What leaves the
queue after the beginning is told to the reading. So a message that the base still showed is hidden by a layer or has
been told, and one that the base did not show yet is in a layer. While the base holds what a queue held before it was
purged, only what the purge spared counts; and of a queue that was purged or deleted meanwhile nothing is shown at all.

What would break a simpler version: ``consumed_while_its_page_is_read``, ``a_checkpoint_ends_while_a_page_is_read``.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from txobserver.ports.store import END, Above, Asked, At, Entry, Page
from txobserver.state.offsets import Offsets
from txobserver.state.shown import Kept

Layer = dict[int, Entry | None]


class PageReading:
    """Of a queue above ``after``; ``layers`` are those over the base, the newest first, ``offsets`` what they added.

    ``kept``: all that the base still showed of the queue when it began; None: whatever it holds.
    """

    def __init__(self, queue: int, after: int, layers: list[Layer], offsets: list[Offsets]) -> None:
        self.queue = queue
        self._after = after
        self._layers = layers
        self._offsets = offsets
        self.kept: Kept | None = None
        self._gone: set[int] = set()
        self._dropped = False

    def asked_of_base(self, asked: Above) -> Asked:
        """What is to be read for this: of a queue that was purged, what was spared, and not what went."""
        return asked if self.kept is None else At(asked.queue, tuple(self.kept.above(asked.after)), asked.max_bytes)

    def gone(self, offset: int) -> None:
        """A message has left the queue."""
        self._gone.add(offset)

    def dropped(self) -> None:
        """The queue was deleted or purged."""
        self._dropped = True

    def through(self, page: Page) -> int:
        """All that is in the queue up to this offset is shown; 0 where only what is shown is known to be all."""
        return page.entries[-1][0] if page.more and page.entries and self._counts and not self._dropped else 0

    def shown(self, page: Page) -> Iterator[tuple[int, Entry]]:
        """What is in the queue now, in order, with what the layers hold among it. To be gone through at once."""
        if self._dropped:
            return
        recent = self._recent(self.through(page) or END)
        first = next(recent, None)
        for offset, entry in page.entries:
            if self.kept is not None and offset not in self.kept.rids:
                continue
            while first is not None and first[0] < offset:
                yield first
                first = next(recent, None)
            if offset not in self._gone and not any(offset in layer for layer in self._layers):
                yield offset, entry
        while first is not None:
            yield first
            first = next(recent, None)

    @property
    def _counts(self) -> bool:
        """Whether the base still showed anything of the queue."""
        return self.kept is None or bool(self.kept.rids)

    def _recent(self, last: int) -> Iterator[tuple[int, Entry]]:
        """What the layers hold up to ``last``, in order."""
        before = self._after
        for offset in merge(*[offsets.above(before) for offsets in self._offsets]):
            if offset > last:
                return
            if offset != before and offset not in self._gone and (entry := self._held(offset)) is not None:
                yield offset, entry
            before = offset

    def _held(self, offset: int) -> Entry | None:
        for layer in self._layers:
            if offset in layer:
                return layer[offset]
        return None
