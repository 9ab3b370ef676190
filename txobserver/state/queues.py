"""The durable queues as of the last applied event: what each counts, and what changes in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from txobserver.digest import Tally
from txobserver.events import Message
from txobserver.message_size import size_of
from txobserver.ports.store import PAGE, Entry, Ids, QueueSummary
from txobserver.state.layers import Layers
from txobserver.state.messages import Messages
from txobserver.state.shown import Kept

ADDITION_BYTES = 200
REMOVAL_BYTES = 50
"""What a message, beside its properties and body, and a removal are counted for until a checkpoint has been written."""

NO_RIDS: Mapping[int, int] = MappingProxyType({})


class Queues:
    """Changes the queues. ``tallies``: count, digest and delivery watermark of each queue that exists; only this
    changes them.

    Between ``begin_step`` and ``end_step`` messages enter and leave that belong to one step: until its end every queue
    is told as it was before, however much of the step has been done.
    """

    def __init__(self, layers: Layers, messages: Messages, tallies: dict[int, Tally]) -> None:
        self._layers: Final = layers
        self._messages: Final = messages
        self._tallies: Final = tallies
        self._in_step = False
        self._before: dict[int, QueueSummary] = {}

    def begin_step(self) -> None:
        """What enters and leaves from here on does not count before ``end_step``."""
        self._in_step = True

    def end_step(self) -> None:
        """All of it counts now."""
        self._in_step = False
        self._before.clear()

    def summary(self, queue: int) -> QueueSummary:
        """Count, digest and delivery watermark of a queue; zeros for one that is not known."""
        tally = self._tallies.get(queue)
        if tally is None:
            return QueueSummary()
        before = self._before.get(queue) if self._in_step else None
        return _summary(tally) if before is None else before

    def summaries(self) -> dict[int, QueueSummary]:
        """The same of all queues, by their numbers."""
        return {queue: self.summary(queue) for queue in self._tallies}

    def numbers(self) -> set[int]:
        """The numbers of all queues that exist."""
        return set(self._tallies)

    def knows(self, queue: int) -> bool:
        """Whether this queue has been declared and not deleted."""
        return queue in self._tallies

    def add(self, queue: int) -> None:
        """A queue was declared."""
        self._tallies.setdefault(queue, Tally())

    def drop(self, queue: int) -> None:
        """A queue was deleted, with all that it holds."""
        self._tallies.pop(queue, None)
        self._layers.drop(queue, Kept())
        for reading in self._layers.readings.get(queue, ()):
            reading.dropped()

    def purge(self, queue: int, offset: int, spared: Sequence[int], rids: Mapping[int, int] = NO_RIDS) -> int:
        """Take everything up to ``offset`` out of a queue but ``spared``; returns how many that were.

        Costs what stays, not what goes. ``rids`` are the replication ids of what is spared, as far as they are known:
        no message is read then (``a_purge_reads_what_it_spares``). Raises StoreDamaged.
        """
        tally = self._tallies.get(queue)
        if tally is None:
            return 0
        stay = self._staying(queue, offset, spared, rids)
        recent = {each: entry for each in stay if (entry := self._layers.recent(queue, each)) is not None}
        self.drop(queue)
        self._layers.shown.drop(queue, Kept(each for each in stay.items() if each[0] not in recent))
        left = self._tallies[queue] = Tally(watermark=tally.watermark)
        for each, rid in sorted(stay.items()):
            entry = recent.get(each)
            if entry is None:
                left.put(each, rid)
            else:
                self.insert(queue, each, entry.rid, entry.message)
        return tally.count - len(stay)

    def insert(self, queue: int, offset: int, rid: int, message: Message) -> bool:
        """Put a message into a queue; False if the queue is gone."""
        tally = self._tallies.get(queue)
        if tally is None:
            return False
        if self._in_step and queue not in self._before:
            self._before[queue] = _summary(tally)
        layers = self._layers
        layer = layers.fresh.get(queue)
        if layer is None:
            layer = layers.begin(queue)
        layers.fresh_offsets[queue].add(offset)
        before = len(layer)
        layer[offset] = Entry(rid, message)
        if len(layer) == before:
            layers.reused.add((queue, offset))
        tally.put(offset, rid)
        layers.dirty_bytes += size_of(message) + ADDITION_BYTES
        return True

    def remove(self, queue: int, offset: int, rid: int) -> bool:
        """Take a message out of a queue; False if it is not there. None is read for it, however large it is."""
        tally = self._tallies.get(queue)
        if tally is None:
            return False
        if self._in_step and queue not in self._before:
            self._before[queue] = _summary(tally)
        layers = self._layers
        layer = layers.fresh.get(queue)
        if layer is None:
            layer = layers.begin(queue)
        entry = layer.get(offset)
        if entry is not None:
            if (queue, offset) in layers.reused:
                layer[offset] = None  # a resync put it over another message, which a lower layer may still hold
            else:
                del layer[offset]
        elif offset in layer or not layers.holds_below(queue, offset):
            return False
        else:
            layer[offset] = None
        tally.take(offset, rid if entry is None else entry.rid)
        layers.dirty_bytes += REMOVAL_BYTES
        for reading in layers.readings.get(queue, ()):
            reading.gone(offset)
        return True

    def raise_watermark(self, queue: int, offset: int) -> None:
        """Messages up to ``offset`` may have been handed out."""
        tally = self._tallies.get(queue)
        if tally is not None and offset > tally.watermark:
            tally.watermark = offset

    def overwrite_watermark(self, queue: int, offset: int) -> None:
        """A primary's snapshot says up to where messages may have been handed out, whatever was known here."""
        tally = self._tallies.get(queue)
        if tally is not None:
            tally.watermark = offset

    def _staying(self, queue: int, offset: int, spared: Sequence[int], rids: Mapping[int, int]) -> dict[int, int]:
        """What is in a queue above ``offset``, and of what is spared: offsets, with their replication ids."""
        stay: dict[int, int] = {}
        for each in spared:
            if each <= offset and self._layers.holds(queue, each):
                rid = rids.get(each)
                stay[each] = self._messages.ids_page(queue, each - 1, 1).entries[0][1] if rid is None else rid
        page = Ids([], offset)
        while page.more:
            page = self._messages.ids_page(queue, page.through, PAGE)
            stay.update(page.entries)
        return stay


def _summary(tally: Tally) -> QueueSummary:
    return QueueSummary(tally.count, tally.digest, tally.watermark)
