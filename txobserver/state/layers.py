"""What has changed in the queues since the last checkpoint, as layers over the base that shows that checkpoint.

Changes go to the *fresh* layer. When a checkpoint begins, the fresh layer becomes the *frozen* one, which no caller
changes while a thread writes it; when it is written, the frozen layer is dropped and the base shows it instead. A
message that came and went between two checkpoints never reaches the base at all.
"""

from __future__ import annotations

from typing import Final

from txobserver.leftovers import Container, Leftovers
from txobserver.ports.store import Base, Changes, Dropped, Entry
from txobserver.state.offsets import Offsets
from txobserver.state.page_reading import PageReading
from txobserver.state.shown import Kept, ShownBase


class Layers:
    """``fresh``: what changed since the last checkpoint began; ``fresh_offsets``: the offsets at which it added
    messages.

    ``reused``: offsets, with their queues, of messages that were put over others. ``readings``: the pages of each queue
    that are being read; they end by ``end_reading``. ``dirty_bytes``: what the fresh layer is counted for.
    ``leftovers`` gets what is shown no more.
    """

    def __init__(self, base: Base, leftovers: Leftovers) -> None:
        self.base: Final = base
        self._leftovers: Final = leftovers
        self._shown_to: list[tuple[list[PageReading], list[Container]]] = []
        self.shown: Final = ShownBase(base)
        self.fresh: Changes = {}
        self.fresh_offsets: dict[int, Offsets] = {}
        self.reused: Final[set[tuple[int, int]]] = set()
        self.readings: Final[dict[int, list[PageReading]]] = {}
        self.dirty_bytes = 0
        self._frozen: Changes = {}
        self._frozen_offsets: dict[int, Offsets] = {}
        self._frozen_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of change that are in memory only, those of a checkpoint that is being written among them."""
        return self.dirty_bytes + self._frozen_bytes

    def begin(self, queue: int) -> dict[int, Entry | None]:
        """The first change of a queue since the last checkpoint; returns its fresh layer."""
        layer = self.fresh[queue] = {}
        self.fresh_offsets[queue] = Offsets()
        return layer

    def drop(self, queue: int, kept: Kept) -> None:
        """All of a queue goes from the layers, and all but ``kept`` from what the base shows."""
        layer, offsets = self.fresh.pop(queue, None), self.fresh_offsets.pop(queue, None)
        if layer is not None and offsets is not None:  # a reading of it shows nothing from here on
            self._leftovers.add(layer)
            self._leftovers.add(offsets.give_away())
        self.shown.drop(queue, kept)

    def frozen(self, queue: int) -> dict[int, Entry | None]:
        """What the checkpoint on its way holds of a queue, unless the queue was dropped since."""
        return {} if self.shown.dropped(queue) else self._frozen.get(queue, {})

    def recent(self, queue: int, offset: int) -> Entry | None:
        """The entry, if it came after what the base shows."""
        layer = self.fresh.get(queue)
        if layer is not None and offset in layer:
            return layer[offset]
        return self.frozen(queue).get(offset)

    def get(self, queue: int, offset: int) -> Entry | None:
        """The entry that stands there, or None. Raises StoreDamaged."""
        layer = self.fresh.get(queue)
        if layer is None or offset not in layer:
            layer = self.frozen(queue)
        return layer[offset] if offset in layer else self.shown.get(queue, offset)

    def holds(self, queue: int, offset: int) -> bool:
        """Whether a message stands there; none is read, however large it is. Raises StoreDamaged."""
        layer = self.fresh.get(queue, {})
        return layer[offset] is not None if offset in layer else self.holds_below(queue, offset)

    def holds_below(self, queue: int, offset: int) -> bool:
        """Whether a message stood there when the last checkpoint began. Raises StoreDamaged."""
        layer = self.frozen(queue)
        if offset in layer:
            return layer[offset] is not None
        return self.shown.holds(queue, offset)

    def offsets(self, queue: int) -> list[Offsets]:
        """The offsets at which either layer added messages to a queue."""
        layers = [self.fresh_offsets] if self.shown.dropped(queue) else [self._frozen_offsets, self.fresh_offsets]
        return [offsets[queue] for offsets in layers if queue in offsets]

    def freeze(self) -> tuple[Changes, list[Dropped]]:
        """Begin a checkpoint: (changes, dropped queues) since the last. Costs nothing; ends with ``thaw``."""
        assert not self._frozen, "a checkpoint is being written already"
        self._frozen, self.fresh = self.fresh, {}
        self._frozen_offsets, self.fresh_offsets = self.fresh_offsets, {}
        self._frozen_bytes, self.dirty_bytes = self.dirty_bytes, 0
        return self._frozen, self.shown.freeze()

    def thaw(self) -> None:
        """The checkpoint has been written, and its writer uses it no more: the base shows it now."""
        for queue, layer in self._frozen.items():
            gone: list[Container] = [layer, self._frozen_offsets[queue].give_away()]
            readings = self.readings.get(queue)
            if readings:
                self._shown_to.append((list(readings), gone))
            else:
                self._give_away(gone)
        self._frozen = {}
        self._frozen_offsets = {}
        self.shown.thaw()
        self._frozen_bytes = 0

    def end_reading(self, reading: PageReading) -> None:
        """It looks at no layer any more."""
        others = [each for each in self.readings.pop(reading.queue) if each is not reading]
        if others:
            self.readings[reading.queue] = others
        if not self._shown_to:
            return
        waiting, self._shown_to = self._shown_to, []
        for readings, gone in waiting:
            left = [each for each in readings if each is not reading]
            if left:
                self._shown_to.append((left, gone))
            else:
                self._give_away(gone)

    def _give_away(self, gone: list[Container]) -> None:
        for each in gone:
            self._leftovers.add(each)
