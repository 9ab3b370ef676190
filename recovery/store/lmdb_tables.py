"""The tables of the queue state: what a checkpoint writes into each, and what is read back of all but the messages.

``entries`` holds the queues' messages (``recovery.store.lmdb_entries``), ``transactions`` the events of open
transactions, ``outcomes`` what is remembered of those that have ended, ``declared`` what is declared
(``recovery.store.lmdb_declared``), ``meta`` the rest: format, the checkpoint's own meta, count and digest of the events
of open transactions and of the declarations, and what is known of the log.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from recovery.store.invariants import check_counts, check_meta
from recovery.store.lmdb_declared import DeclaredRows, read_declared
from recovery.store.lmdb_entries import drop, sealed, unsealed, write_changes
from txobserver.bindings import as_read, written
from txobserver.events import TxEvent
from txobserver.outcomes import Outcomes, Remembered
from txobserver.ports.store import Checkpoint, Loaded, Meta, QueueSummary, StoreDamaged, StoreError

FORMAT_VERSION = 5
"""That of a state with users; one without is written as version 4, which earlier releases read. Version 3, whose meta
holds all that is declared, version 2, whose queues and exchanges do not say whether they are used, and version 1, which
remembers no outcomes either, can be read too."""
WITHOUT_USERS = 4
ROWS_SINCE = 4
"""The first version with a row for each declaration."""
_TX_KEY = struct.Struct(">QQ")
_META_KEY = b"meta"
_OPEN_KEY = b"open"
_VERSION_KEY = b"format"
_OPENED_KEY = b"opened"
_LOG_KEY = b"log begun"

_encode = msgspec.msgpack.Encoder(enc_hook=written).encode
_decode_meta = msgspec.msgpack.Decoder(Meta, dec_hook=as_read).decode
_decode_open = msgspec.msgpack.Decoder(QueueSummary).decode
_decode_event = msgspec.msgpack.Decoder(TxEvent).decode
_decode_outcome = msgspec.msgpack.Decoder(Remembered).decode


def incomplete() -> StoreDamaged:
    """What is said of a state in which less, more or something else is found than its checkpoint counted."""
    return StoreDamaged("the queue state does not hold what its last checkpoint wrote")


def head_of(env: lmdb.Environment, txn: lmdb.Transaction) -> tuple[Meta, bool]:
    """The meta of the last checkpoint, and whether a log is known to lead on from it.

    No other table is opened, but for that of the declarations.

    Raises StoreDamaged, ValueError, lmdb.Error, of which NotFoundError says that nothing was ever written.
    """
    table = env.open_db(b"meta", txn=txn, create=False)
    data, begun = txn.get(_META_KEY, db=table), txn.get(_LOG_KEY, db=table) is not None
    if data is None:
        return Meta(), begun
    meta = _decode_meta(unsealed(_META_KEY, data))
    if int(txn.get(_VERSION_KEY, db=table) or 0) >= ROWS_SINCE:
        declared = env.open_db(b"declared", txn=txn, create=False)
        meta, _ = read_declared(txn, declared, table, meta)
    return meta, begun


class Tables:
    """Those of the state in ``directory``, made if they are to be; ``entries`` is the handle of that one.

    Everything is done within a transaction of LMDB that the caller begins and ends. Raises lmdb.Error throughout.
    """

    def __init__(self, env: lmdb.Environment, directory: Path, create: bool) -> None:
        self._env = env
        self._directory = directory
        self.entries = env.open_db(b"entries", create=create)
        self._transactions = env.open_db(b"transactions", create=create)
        self._meta = env.open_db(b"meta", create=create)
        self._outcomes = self._open_younger(b"outcomes", create)
        self._declared = self._open_younger(b"declared", create)
        self._rows = DeclaredRows(self._declared, self._meta)

    def _open_younger(self, name: bytes, create: bool) -> Any:
        """A table that states of the first versions have not; they get it when they are first opened to be written."""
        try:
            return self._env.open_db(name, create=create)
        except lmdb.NotFoundError:
            return None

    def load(self, txn: lmdb.Transaction) -> Loaded:
        """The last checkpoint, but for the queues' messages. Raises StoreDamaged, StoreError, struct.error."""
        version = self._version(txn)
        if version is None:
            return Loaded(Meta(), {}, [])
        data = txn.get(_META_KEY, db=self._meta)
        if data is None:
            raise StoreDamaged("the queue state holds no checkpoint")
        meta = _decode_meta(unsealed(_META_KEY, data))
        if version >= ROWS_SINCE:
            meta, rows = read_declared(txn, self._declared, self._meta, meta)
            self._rows.loaded(rows)
        transactions: dict[int, list[tuple[int, TxEvent]]] = {}
        there = QueueSummary()
        for key, value in txn.cursor(db=self._transactions):
            tx, sequence = _TX_KEY.unpack(key)
            transactions.setdefault(tx, []).append((sequence, _decode_event(unsealed(key, value))))
            there.put(tx, sequence)
        outcomes = () if self._outcomes is None else txn.cursor(db=self._outcomes)
        remembered = [_decode_outcome(unsealed(key, value)) for key, value in outcomes]
        if there != self._read_open(txn) or Outcomes(meta.outcomes, remembered).meta != meta.outcomes:
            raise incomplete()
        return Loaded(meta, transactions, remembered)

    def _version(self, txn: lmdb.Transaction) -> int | None:
        """The format of the last checkpoint, None if there never was one. Raises StoreDamaged, StoreError."""
        version: Any = txn.get(_VERSION_KEY, db=self._meta)
        if version is None:
            return None
        if not version.isdigit():
            raise StoreDamaged("the queue state has no format version")
        if not 1 <= (found := int(version)) <= FORMAT_VERSION:
            raise StoreError(
                f"{self._directory} has format version {found}; this version of txha reads 1 to {FORMAT_VERSION}"
            )
        return found

    def log_begun(self, txn: lmdb.Transaction) -> bool:
        """Whether the log that leads on from this state is known to have a segment."""
        return txn.get(_LOG_KEY, db=self._meta) is not None

    def confirm(self, txn: lmdb.Transaction, log_begun: bool) -> None:
        """Change something that says nothing, so that LMDB commits; and note that the log has begun if it has."""
        txn.put(_OPENED_KEY, b"%d" % (int(txn.get(_OPENED_KEY, db=self._meta) or 0) + 1), db=self._meta)
        if log_begun:
            txn.put(_LOG_KEY, b"", db=self._meta)

    def write(self, txn: lmdb.Transaction, checkpoint: Checkpoint) -> None:
        """Bring all tables forward to this checkpoint; ``committed`` is to be called when the transaction has been."""
        with txn.cursor(db=self.entries) as cursor:
            for queue, kept in checkpoint.dropped:
                drop(cursor, queue, kept)
            for queue in sorted(checkpoint.changes):
                write_changes(cursor, queue, checkpoint.changes[queue])
        self._write_transactions(txn, checkpoint)
        self._write_outcomes(txn, checkpoint)
        version = FORMAT_VERSION if checkpoint.meta.access.events else WITHOUT_USERS
        txn.put(_VERSION_KEY, str(version).encode(), db=self._meta)
        meta = self._rows.write(txn, checkpoint.meta)
        txn.put(_META_KEY, sealed(_META_KEY, _encode(meta)), db=self._meta)

    def committed(self) -> None:
        """What was written last has become durable."""
        self._rows.committed()

    def _write_transactions(self, txn: lmdb.Transaction, checkpoint: Checkpoint) -> None:
        summary = self._read_open(txn)
        with txn.cursor(db=self._transactions) as cursor:
            for tx in checkpoint.tx_ended:
                while cursor.set_range(_TX_KEY.pack(tx, 0)) and _TX_KEY.unpack(cursor.key())[0] == tx:
                    summary.take(*_TX_KEY.unpack(cursor.key()))
                    cursor.delete()
            for tx, events in checkpoint.tx_events:
                for sequence, event in events:
                    key = _TX_KEY.pack(tx, sequence)
                    if not cursor.set_key(key):
                        summary.put(tx, sequence)
                    cursor.put(key, sealed(key, _encode(event)))
        txn.put(_OPEN_KEY, sealed(_OPEN_KEY, _encode(summary)), db=self._meta)

    def _write_outcomes(self, txn: lmdb.Transaction, checkpoint: Checkpoint) -> None:
        if checkpoint.remember_anew:
            txn.drop(self._outcomes, delete=False)
        for key, remembered in checkpoint.remembered.items():
            if remembered is None:
                txn.delete(key, db=self._outcomes)
            else:
                txn.put(key, sealed(key, _encode(remembered)), db=self._outcomes)

    def check_invariants(self, txn: lmdb.Transaction, checkpoint: Checkpoint) -> None:
        """They are what this checkpoint was to make of them. Raises AssertionError, StoreDamaged."""
        meta = _decode_meta(unsealed(_META_KEY, txn.get(_META_KEY, b"", db=self._meta)))
        meta, _ = read_declared(txn, self._declared, self._meta, meta)
        check_meta(meta, checkpoint)
        tables = (self.entries, self._outcomes, self._transactions)
        entries, outcomes, transactions = (int(txn.stat(each)["entries"]) for each in tables)
        check_counts(meta, entries, outcomes, transactions, self._read_open(txn).count)

    def _read_open(self, txn: lmdb.Transaction) -> QueueSummary:
        """Count and digest of the events of open transactions."""
        data = txn.get(_OPEN_KEY, db=self._meta)
        return QueueSummary() if data is None else _decode_open(unsealed(_OPEN_KEY, bytes(data)))
