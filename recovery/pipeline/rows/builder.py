"""Events of one node as rows of ``schema.ARROW``, in batches.

What an event does not say itself is added to its rows: names of queues, and of each event of a transaction its number
and, on every row of a branch or of a transaction with a token, from there on, its xid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from recovery.pipeline.rows.columns import Numbers
from recovery.pipeline.rows.kinds import fill
from recovery.pipeline.rows.numbering import Begun, Numbering
from recovery.pipeline.rows.sheet import Sheet, Stamps, walker
from recovery.pipeline.schema import ARROW
from txobserver.frames import HEADER_SIZE, TRAILER, Frame

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
"""Of bodies and properties: a batch ends near whichever comes first, and never has more than twice as much, but for
one row that is larger by itself."""

Names = Callable[[], Mapping[int, str]]


class QueueNames(dict[int, str | None]):
    """Names of queues by their numbers. Each of ``sources`` is asked once, in order, and not before it is needed."""

    def __init__(self, sources: Iterable[Names] = ()) -> None:
        self._sources = list(sources)

    def __missing__(self, number: int) -> str | None:
        while self._sources:
            found = self._sources.pop(0)()
            self.update({each: name for each, name in found.items() if each not in self})
            if number in self:
                return self[number]
        self[number] = None
        return None


class RowBuilder:
    """Takes the frames of ``node`` in order, gives batches of rows, with the columns of ``schema``.

    ``begun`` is asked for what came before of a transaction that was open already. Memory grows with the transactions
    that are open, and with nothing else.
    """

    def __init__(self, node: str, names: QueueNames, begun: Callable[[int], Begun], schema: pa.Schema = ARROW) -> None:
        self._node = node
        self._names = names
        self._numbering = Numbering(begun)
        self._schema = schema
        self._clear()

    def _clear(self) -> None:
        self._frames: list[bytes] = []
        self._runs: list[_Run] = []
        self._events = 0
        self._bytes = 0

    def add(self, frame: Frame, first: int = 0, last: int = (1 << 63) - 1) -> Iterator[pa.RecordBatch]:
        """Take the events of a frame from sequence ``first`` to ``last``; gives the batches that are full."""
        begin, end = max(first, frame.first), min(last, frame.last)
        self._runs.append(_Run(begin, end - begin + 1, frame.generation, frame.time_ms, begin - frame.first))
        self._frames.append(frame.data)
        self._events += end - begin + 1
        self._bytes += len(frame.data)
        if self._events >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            yield from self.take()

    def forget(self) -> None:
        """Frames are left out here: what is open is to be asked for again."""
        self._numbering.forget()

    def take(self) -> Iterator[pa.RecordBatch]:
        """What has been gathered, in one batch or several; none if it is nothing."""
        if not self._frames:
            return
        sheet = self._sheet()
        self._clear()
        fill(sheet)
        self._names.update(sheet.declared)
        sheet.number_transactions(self._numbering)
        columns = [sheet.column(name, self._node, self._names) for name in self._schema.names]
        for first, last in pairwise(_edges(sheet)):
            yield pa.RecordBatch.from_arrays([column.array(first, last) for column in columns], schema=self._schema)

    def _sheet(self) -> Sheet:
        data = b"".join(self._frames)
        walk, at = walker.Walk(), 0
        for frame, run in zip(self._frames, self._runs, strict=True):
            begin, at = at + HEADER_SIZE, at + len(frame)
            walk.frame(data, begin, at - len(TRAILER), run.skipped, run.events)
        return Sheet(data, walk, _stamps(self._runs))


class _Run(NamedTuple):
    """Events of one frame that are wanted: the first one's sequence, how many, and how many are skipped before."""

    first: int
    events: int
    generation: int
    time_ms: int
    skipped: int


def _stamps(runs: list[_Run]) -> Stamps:
    firsts, counts, generations, times, _ = np.array(runs, np.int64).T
    before = np.cumsum(counts) - counts
    sequences: Numbers = np.repeat(firsts - before, counts) + np.arange(counts.sum())
    return Stamps(sequences, np.repeat(generations, counts), np.repeat(times, counts))


def _edges(sheet: Sheet) -> list[int]:
    """Where batches begin, and where the last one ends."""
    ends = np.cumsum(sheet.bytes_of_rows())
    if sheet.size <= 2 * BATCH_ROWS and ends[-1] <= 2 * BATCH_BYTES:
        return [0, sheet.size]
    rows = np.arange(sheet.size) // BATCH_ROWS
    cuts = (np.diff(ends // BATCH_BYTES) > 0) | (np.diff(rows) > 0)
    return [0, *(np.flatnonzero(cuts) + 1).tolist(), sheet.size]
