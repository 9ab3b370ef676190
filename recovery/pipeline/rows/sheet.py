"""A sheet: the rows of some events, made of what ``recovery.pipeline.rows.walker`` has found in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from recovery.compiled import load
from recovery.pipeline.rows.columns import Column, Flags, NumberColumn, Numbers, PooledColumn, SlicedColumn, WholeColumn
from recovery.pipeline.rows.message_ids import message_ids
from recovery.pipeline.rows.numbering import Numbering, TransactionEvents
from recovery.pipeline.schema import ARROW

if TYPE_CHECKING:
    from recovery.pipeline.rows import walker as walker
else:
    walker = load("recovery.pipeline.rows.walker")

NONE = -1
"""In columns of numbers: null."""


class Stamps(NamedTuple):
    """Of each event its sequence and, from its frame, the generation and the time in milliseconds since 1970."""

    sequences: Numbers
    generations: Numbers
    times: Numbers


class Sheet:
    """Columns to be filled: ``numbers`` by name with NONE for null, ``texts`` by name; and what they are filled from.

    ``data``: the bytes in which the events stand. ``tags`` and ``values`` of the rows as the walker found them.
    """

    def __init__(self, data: bytes, walk: walker.Walk, stamps: Stamps) -> None:
        table = np.frombuffer(walk.rows.getvalue(), "<i8").reshape(-1, len(walker.ROW))
        self.numbers: dict[str, Numbers] = {name: table[:, at].copy() for at, name in enumerate(walker.ROW)}
        self.tags, self.values = self.numbers.pop("tag"), self.numbers.pop("value")
        self.data = data
        self.size = len(table)
        self.first: Flags = self.numbers["part"] == 0
        self._event: Numbers = np.cumsum(self.first) - 1
        self.position: Numbers = stamps.sequences[self._event]
        self._stamps = stamps
        self.numbers["number"] = self.empty()
        self.numbers["commit"] = self.empty()
        kinds = ("kind", "xid", "reason", "detail")
        self.texts = {name: PooledColumn(ARROW.field(name).type, self.size) for name in kinds}
        self.names: dict[int, str] = {}
        """Of rows that name a queue by its name."""
        self.declared: dict[int, str] = {}
        """Queues that the events declare."""
        self.xids: dict[int, str] = {}
        """Of rows from which on their transaction has this xid."""
        self.openings: Flags = np.zeros(self.size, np.bool_)
        self.decisions: Flags = np.zeros(self.size, np.bool_)
        self._read_messages(walk)

    def empty(self) -> Numbers:
        """A column of numbers without any."""
        return np.full(self.size, NONE, np.int64)

    def _read_messages(self, walk: walker.Walk) -> None:
        edges = np.frombuffer(walk.messages.getvalue(), "<i8").reshape(-1, 2 * len(walker.MESSAGE))
        has_one = (self.tags == walker.PUBLISH) | (self.tags == walker.TX_ENQUEUE)
        self._message: Numbers = np.where(has_one, np.cumsum(has_one & self.first) - 1, NONE)
        self._edges = {name: (edges[:, 2 * at], edges[:, 2 * at + 1]) for at, name in enumerate(walker.MESSAGE)}

    def number_transactions(self, numbering: Numbering) -> None:
        """Give the events of transactions their numbers and xids; everything else has been filled in."""
        transactions = self.numbers["transaction"]
        rows = np.flatnonzero(self.first & (transactions != NONE))
        if not len(rows):
            return
        events = TransactionEvents(rows, transactions[rows], self.openings[rows], self.decisions[rows], self.xids)
        found = numbering.number(events)
        number, which = self.empty(), self.empty()
        number[rows], which[rows] = found.numbers, found.which
        inside = transactions != NONE
        begins = np.flatnonzero(self.first)[self._event]
        self.numbers["number"] = number[begins]
        self.texts["xid"].put(inside, found.xids, which[begins][inside])

    def bytes_of_rows(self) -> Numbers:
        """Of bodies and properties."""
        sizes = sum(ends - begins for begins, ends in (self._edges["body"], self._edges["properties"]))
        found: Numbers = np.append(sizes, 0)[self._message]
        return found

    def column(self, name: str, node: str, names: Mapping[int, str | None]) -> Column:
        """A column of the schema, once everything is filled in. ``names`` of queues by their numbers."""
        if name in self.numbers:
            return NumberColumn(ARROW.field(name).type, self.numbers[name])
        if name in self.texts:
            return self.texts[name]
        if name in self._edges:
            return SlicedColumn(ARROW.field(name).type, self.data, *self._edges[name], self._message)
        if name == "message_id":
            return self._message_ids()
        if name == "queue":
            return self._queue_names(names)
        return WholeColumn(self._whole(name, node))

    def _message_ids(self) -> Column:
        begins, ends, there = message_ids(self.data, *self._edges["properties"])
        index = np.where(np.append(there, False)[self._message], self._message, NONE)
        return SlicedColumn(pa.string(), self.data, begins, ends, index)

    def _queue_names(self, names: Mapping[int, str | None]) -> Column:
        column = PooledColumn(pa.string(), self.size)
        encoded = pc.dictionary_encode(pa.array(self.numbers["queue_id"]))
        known = [None if number == NONE else names[number] for number in encoded.dictionary.to_pylist()]
        column.put(slice(None), known, encoded.indices.to_numpy())
        column.put([*self.names], [*self.names.values()], np.arange(len(self.names)))
        return column

    def _whole(self, name: str, node: str) -> pa.Array:
        match name:
            case "node":
                return pa.repeat(pa.scalar(node), self.size)
            case "generation":
                return pa.array(self._stamps.generations[self._event])
            case "position":
                return pa.array(self.position)
            case "time":
                microseconds = pa.array(self._stamps.times[self._event] * 1000)
                return microseconds.view(pa.timestamp("us")).cast(ARROW.field("time").type)
        raise KeyError(name)
