"""What of a checkpoint's meta grows with what is declared, in rows of its own: queues, exchanges, bindings, summaries.

    key: a letter for the kind, then a number (8 bytes, big endian); value: a sealed msgpack struct

A checkpoint writes the rows that have changed since the last one, in its own LMDB transaction, however many there are.
A queue's rows have its number; exchanges and bindings get numbers that rise in the order in which they stand, so that
they are read in that order. A count and a digest of the keys find a row that a damaged page hides.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import lmdb
import msgspec

from recovery.store.lmdb_entries import sealed, unsealed
from txobserver.configuration import BindingSpec, Configuration, ExchangeSpec, QueueSpec
from txobserver.ports.store import Meta, QueueSummary, StoreDamaged

_KEY = struct.Struct(">cQ")
_QUEUE, _EXCHANGE, _BINDING, _SUMMARY = b"q", b"x", b"b", b"s"
_SUM_KEY = b"declared"

_encode = msgspec.msgpack.Encoder().encode
_decode_sum = msgspec.msgpack.Decoder(QueueSummary).decode
_DECODERS = {
    _QUEUE: msgspec.msgpack.Decoder(QueueSpec).decode,
    _EXCHANGE: msgspec.msgpack.Decoder(ExchangeSpec).decode,
    _BINDING: msgspec.msgpack.Decoder(BindingSpec).decode,
    _SUMMARY: msgspec.msgpack.Decoder(QueueSummary).decode,
}
Row = QueueSpec | ExchangeSpec | BindingSpec | QueueSummary
Rows = dict[bytes, Any]
Item = TypeVar("Item")


def read_declared(txn: lmdb.Transaction, table: Any, meta_table: Any, meta: Meta) -> tuple[Meta, Rows]:
    """The whole meta, of which ``meta`` is the rest, and its rows by their keys. Raises StoreDamaged, ValueError."""
    data = txn.get(_SUM_KEY, db=meta_table)
    rows = _read(txn, table)
    if data is None or table is None or _sum(rows) != _decode_sum(unsealed(_SUM_KEY, bytes(data))):
        raise StoreDamaged("the queue state does not hold every declaration that its last checkpoint knew")
    configuration = Configuration(meta.configuration.last_id)
    summaries: dict[int, QueueSummary] = {}
    for key, row in rows.items():
        if isinstance(row, QueueSpec):
            configuration.queues[row.name] = row
        elif isinstance(row, ExchangeSpec):
            configuration.exchanges[row.name] = row
        elif isinstance(row, BindingSpec):
            configuration.bindings.append(row)
        else:
            summaries[_number(key)] = row
    return msgspec.structs.replace(meta, configuration=configuration, summaries=summaries), rows


class DeclaredRows:
    """Writes them. What has become durable is kept, so that the next checkpoint is compared with it."""

    def __init__(self, table: Any, meta_table: Any) -> None:
        self._table = table
        self._meta_table = meta_table
        self._durable: Rows | None = None
        self._written: Rows = {}
        self._sum = QueueSummary()
        self._exchanges: dict[str, int] = {}
        self._bindings: dict[int, int] = {}

    def loaded(self, rows: Rows) -> None:
        """These rows are there. A declaration that does not change is the same object in the checkpoints to come."""
        self._durable, self._sum = rows, _sum(rows)
        self._exchanges = {row.name: _number(key) for key, row in rows.items() if isinstance(row, ExchangeSpec)}
        self._bindings = {id(row): _number(key) for key, row in rows.items() if isinstance(row, BindingSpec)}

    def committed(self) -> None:
        """What was written last has become durable. Where it has not, the next checkpoint looks at what is there."""
        self._durable = self._written

    def write(self, txn: lmdb.Transaction, meta: Meta) -> Meta:
        """Bring the rows to what ``meta`` says; returns the rest of it, which does not grow. Raises StoreDamaged."""
        if self._durable is None:
            self.loaded(_read(txn, self._table))
        assert self._durable is not None
        before, self._durable = self._durable, None
        rows = self._written = self._rows(meta)
        with txn.cursor(db=self._table) as cursor:
            for key in before.keys() - rows.keys():
                cursor.set_key(key)
                cursor.delete()
                self._sum.take(key[0], _number(key))
            for key, row in rows.items():
                if key not in before:
                    self._sum.put(key[0], _number(key))
                if not _same(before.get(key), row):
                    cursor.put(key, sealed(key, _encode(row)))
        txn.put(_SUM_KEY, sealed(_SUM_KEY, _encode(self._sum)), db=self._meta_table)
        return msgspec.structs.replace(meta, configuration=Configuration(meta.configuration.last_id), summaries={})

    def _rows(self, meta: Meta) -> Rows:
        configuration = meta.configuration
        exchanges = _numbered(((each.name, each) for each in configuration.exchanges.values()), self._exchanges)
        bindings = _numbered(((id(each), each) for each in configuration.bindings), self._bindings)
        self._exchanges = {each.name: number for number, each in exchanges}
        self._bindings = {id(each): number for number, each in bindings}
        rows: Rows = {_KEY.pack(_QUEUE, each.number): each for each in configuration.queues.values()}
        rows |= {_KEY.pack(_EXCHANGE, number): exchange for number, exchange in exchanges}
        rows |= {_KEY.pack(_BINDING, number): binding for number, binding in bindings}
        rows |= {_KEY.pack(_SUMMARY, queue): summary for queue, summary in meta.summaries.items()}
        return rows


def _numbered(items: Iterable[tuple[Hashable, Item]], known: Any) -> list[tuple[int, Item]]:
    """Each with its number: the one that is known, where the numbers rise then, or else the next behind all others."""
    highest = max(known.values(), default=0)
    last = 0
    found: list[tuple[int, Item]] = []
    for name, item in items:
        number = known.get(name, 0)
        if number <= last:
            number = highest = highest + 1
        found.append((number, item))
        last = number
    return found


def _same(before: Row | None, row: Row) -> bool:
    """Whether a row need not be written. A declaration that has changed is another object.

    It is not compared: Python takes the argument 1 for the argument True.
    """
    return before is row or (isinstance(row, QueueSummary) and before == row)


def _number(key: bytes) -> int:
    number: int = _KEY.unpack(key)[1]
    return number


def _read(txn: lmdb.Transaction, table: Any) -> Rows:
    if table is None:
        return {}
    rows: Rows = {}
    for key, data in txn.cursor(db=table):
        key = bytes(key)
        decode = _DECODERS.get(key[:1])
        if decode is None or len(key) != _KEY.size:
            raise StoreDamaged("the queue state holds a declaration of no known kind")
        rows[key] = decode(unsealed(key, bytes(data)))
    return rows


def _sum(rows: Rows) -> QueueSummary:
    found = QueueSummary()
    for key in rows:
        found.put(key[0], _number(key))
    return found
