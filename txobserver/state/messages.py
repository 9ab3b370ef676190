"""The messages that stand in the queues as of the last applied event: read from the layers and the base below them."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from heapq import merge
from itertools import islice, takewhile
from typing import Final, TypeVar

from txobserver.digest import Tally
from txobserver.ports.store import END, IDS_PASSED, Entry, Ids
from txobserver.state.layers import Layers
from txobserver.state.page_reading import PageReading

Shown = TypeVar("Shown")
Batch = list[tuple[int, Shown]]


class Messages:
    """``tallies`` are those of the queues that exist; of others nothing is shown."""

    def __init__(self, layers: Layers, tallies: Mapping[int, Tally]) -> None:
        self._layers: Final = layers
        self._tallies: Final = tallies

    def get(self, queue: int, offset: int) -> Entry | None:
        """One entry, or None if it is gone. Raises StoreDamaged."""
        return self._layers.get(queue, offset) if queue in self._tallies else None

    def recent(self, queue: int, offset: int) -> Entry | None:
        """The entry, if it came after what the base shows: then it is in memory. None: it is to be read, or gone."""
        return self._layers.recent(queue, offset)

    def begin_reading(self, queue: int, after: int) -> PageReading:
        """A page of a queue is about to be read from the base, by another thread. Ends with ``end_reading``."""
        layers = self._layers
        above = [layers.fresh.get(queue, {})]
        if not layers.shown.dropped(queue):
            above.append(layers.frozen(queue))
        reading = PageReading(queue, after, above, layers.offsets(queue)[::-1])
        reading.kept = layers.shown.kept(queue)
        layers.readings.setdefault(queue, []).append(reading)
        return reading

    def end_reading(self, reading: PageReading) -> None:
        """It has been read, or nothing waits for it any more."""
        self._layers.end_reading(reading)

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to ``limit`` entries above ``after``, in order of their offsets. Raises StoreDamaged.

        Costs what it returns, however much has changed since the last checkpoint.
        """
        base = self._layers.shown
        return list(islice(self._walk(queue, after, lambda last: base.page(queue, last, limit), _same, END), limit))

    def ids_page(self, queue: int, after: int, limit: int) -> Ids:
        """Up to ``limit`` (offset, replication id) above ``after``, in order. No message is read for it.

        There may be fewer, and more to come: at most ``IDS_BYTES`` of messages are looked at, or one
        (``one_joiner_topples_every_primary``), and ``IDS_PASSED`` passed over (``one_page_passes_over_what_has_gone``).
        Raises StoreDamaged.
        """
        layers = self._layers
        hidden = ChainMap(layers.fresh.get(queue, {}), layers.frozen(queue))
        there = layers.shown.ids_page(queue, after, limit, hidden)
        last = min(there.through, *(each.reach(after, IDS_PASSED) for each in layers.offsets(queue)), END)
        walk = self._walk(queue, after, lambda at: there.entries if at == after else [], _rid, last)
        found = list(islice(takewhile(lambda each: each[0] <= last, walk), limit + 1))
        return Ids(found[:limit], found[limit - 1][0] if len(found) > limit else last)

    def ids(self, queue: int) -> list[tuple[int, int]]:
        """All (offset, replication id) of a queue in order. Raises StoreDamaged."""
        found = self._layers.shown.ids(queue)
        for layer in (self._layers.frozen(queue), self._layers.fresh.get(queue, {})):
            for offset, entry in layer.items():
                if entry is None:
                    found.pop(offset, None)
                else:
                    found[offset] = entry.rid
        return sorted(found.items())

    def _walk(
        self, queue: int, after: int, below: Callable[[int], Batch[Shown]], shown: Callable[[Entry], Shown], last: int
    ) -> Iterator[tuple[int, Shown]]:
        """What is in a queue above ``after``, in the layers up to ``last``; ``below`` reads the base."""
        if queue not in self._tallies:
            return
        frozen, fresh = self._layers.frozen(queue), self._layers.fresh.get(queue, {})
        recent = ((offset, shown(entry)) for offset, entry in self._recent(queue, after, last))
        first = next(recent, None)
        while batch := below(after):
            for offset, value in batch:
                while first is not None and first[0] < offset:
                    yield first
                    first = next(recent, None)
                if offset not in fresh and offset not in frozen:
                    yield offset, value
            after = batch[-1][0]
        if first is not None:
            yield first
            yield from recent

    def _recent(self, queue: int, after: int, last: int) -> Iterator[tuple[int, Entry]]:
        """What the layers over the base hold above ``after`` and up to ``last``, in order."""
        frozen, fresh = self._layers.frozen(queue), self._layers.fresh.get(queue, {})
        before = after
        for offset in merge(*[offsets.above(after) for offsets in self._layers.offsets(queue)]):
            if offset > last:
                return
            entry = fresh[offset] if offset in fresh else frozen.get(offset)
            if entry is not None and offset != before:
                yield offset, entry
            before = offset


def _same(entry: Entry) -> Entry:
    return entry


def _rid(entry: Entry) -> int:
    return entry.rid
