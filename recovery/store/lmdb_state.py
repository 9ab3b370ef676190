"""The queues' state as of a checkpoint, in LMDB. One checkpoint is one LMDB transaction: it is there as a whole or not.

LMDB does not check what its pages hold. So every value carries a checksum over its key and itself, which finds a value
that changed or moved; and a checkpoint keeps a count and a digest of each queue and of the open transactions, which
find what a damaged page hides. ``check`` compares them before anything is served, in a child process: a page number
that points behind the file's end makes LMDB's map end the process that follows it.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb

from recovery.store.child import in_a_child
from recovery.store.condemned import check_not_condemned, condemn
from recovery.store.crash_points import crash_point
from recovery.store.files import FILE_MODE, explain
from recovery.store.lmdb_entries import (
    entry_of,
    holds,
    ids_of,
    offset_of_key,
    page_of,
    rid_of,
    value_at,
    values,
)
from recovery.store.lmdb_errors import explained, impossible_map
from recovery.store.lmdb_tables import Tables, head_of, incomplete
from txobserver.invariants import checking
from txobserver.ports.store import (
    PAGE,
    Asked,
    Checkpoint,
    Entry,
    Ids,
    Loaded,
    Meta,
    Page,
    QueueSummary,
    StoreDamaged,
    StoreError,
)

MAP_SIZE = 256 << 30
"""Bytes of addresses; the file is as long as what it holds."""
MAX_TABLES = 5
MAX_READERS = 64
"""Of one environment, as LMDB counts them: tables, and threads that read at a time."""


def check(directory: Path) -> None:
    """Read the whole state, whether it is what its last checkpoint wrote; nothing is changed, not even a lock's byte.

    Only for a store that no process has open to write. Raises StoreDamaged, StoreBusy (it could not be checked),
    StoreError.
    """

    def read() -> None:
        state = LmdbState(directory, read_only=True)
        try:
            state.verify(state.load().meta)
        finally:
            state.close()

    try:
        check_not_condemned(directory)
        in_a_child(read, directory)
    except StoreDamaged as error:
        raise StoreDamaged(f"{directory} is damaged ({error}); let the node rejoin with a new store") from error


def read_meta(directory: Path) -> Meta:
    """The meta of the last checkpoint in this node's directory, also while the node runs; an empty one without any.

    One short read transaction in the table of readers, so that the node keeps those pages meanwhile. A child reads
    first, since a damaged page may end its process. Raises StoreDamaged, StoreBusy, StoreError.
    """
    state = directory / "state"
    return _read_checked(state)[0] if (state / "data.mdb").exists() else Meta()


def was_used(directory: Path) -> bool:
    """Whether the queue state of this node, which has no identity, was ever more than made; as ``read_meta``."""
    state = directory / "state"
    if not (state / "data.mdb").exists() or not (state / "data.mdb").stat().st_size:
        return False  # there is none, or the process that made it was killed before LMDB wrote anything
    return _read_checked(state) != (Meta(), False)


def _read_checked(state: Path) -> tuple[Meta, bool]:
    """The meta, and whether a log is known to lead on from it."""

    def read() -> None:
        _read(state)

    in_a_child(read, state)
    return _read(state)


def _read(state: Path) -> tuple[Meta, bool]:
    try:
        with _reader(state) as env, env.begin() as txn:
            return head_of(env, txn)
    except lmdb.NotFoundError:
        return Meta(), False
    except lmdb.Error as error:
        raise explained(error, state) from error
    except ValueError as error:
        raise StoreDamaged(f"{state} cannot be read: {error}") from error


def _reader(state: Path) -> lmdb.Environment:
    """An environment that writes nothing but its line in the table of readers, and not even that where it must not."""
    lock = os.access(state / "lock.mdb", os.W_OK)
    return lmdb.open(str(state), map_size=MAP_SIZE, max_dbs=MAX_TABLES, readonly=True, lock=lock)


class LmdbState:
    """Queue contents, meta and open transactions as of the last checkpoint; a ``txobserver.ports.store.Base``.

    ``read_only``: no byte of the directory is changed, not even a lock's; only for a store that no process has open.
    """

    def __init__(self, directory: Path, read_only: bool = False) -> None:
        self._directory = directory
        self._read_only = read_only
        options = {"readonly": True, "lock": False} if read_only else {}
        try:
            if not read_only:
                directory.mkdir(parents=True, exist_ok=True)
            self._env = lmdb.open(
                str(directory), MAP_SIZE, max_dbs=MAX_TABLES, max_readers=MAX_READERS, mode=FILE_MODE, **options
            )
            self._tables = Tables(self._env, directory, create=not read_only)
        except lmdb.Error as error:
            if impossible_map(error, directory, MAP_SIZE):
                raise StoreDamaged("the queue state's own pages ask for more than was ever written") from error
            raise explained(error, directory) from error
        except OSError as error:
            raise explain(error, directory) from error

    def load(self) -> Loaded:
        """The last checkpoint, but for the queues' messages. Raises StoreDamaged, StoreError."""
        with self._reading(), self._env.begin() as txn:
            return self._tables.load(txn)

    def verify(self, meta: Meta) -> None:
        """Compare all that is there, and can be found by its key, with what ``meta`` counts. Raises StoreDamaged.

        Takes about a second for a million messages. The search by key goes through the tree's upper pages, the scan
        does not: damage there would hide from one what the other sees.
        """
        found: dict[int, QueueSummary] = {}
        with self._reading(), self._views() as txn:
            for key, data in txn.cursor():
                if txn.get(key) is None:  # a search from the root; a cursor's would begin where it stands
                    raise incomplete()
                queue, offset = offset_of_key(key)
                summary = found.get(queue)
                if summary is None:
                    summary = found[queue] = QueueSummary()
                summary.put(offset, rid_of(data))
        expected = {queue: each for queue, each in meta.summaries.items() if each.count}
        if found.keys() != expected.keys() or any(
            (found[queue].count, found[queue].digest) != (each.count, each.digest) for queue, each in expected.items()
        ):
            raise incomplete()

    def get(self, queue: int, offset: int) -> Entry | None:
        """The entry, or None. Raises StoreDamaged."""
        with self._reading(serving=True), self._views() as txn:
            there = value_at(txn, queue, offset)
            return None if there is None else entry_of(*there)

    def holds(self, queue: int, offset: int) -> bool:
        """Whether a message stands there; none is read, however large it is. Raises StoreDamaged."""
        with self._reading(serving=True), self._views() as txn:
            return holds(txn, queue, offset)

    def read(self, asked: Asked) -> Page:
        """The messages that are asked for, by any thread. Raises StoreDamaged.

        What waits for the disk, and the checksums of large messages, is done while other threads run.
        """
        with self._reading(serving=True), self._views() as txn:
            return page_of(txn, asked)

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to ``limit`` (offset, entry) above ``after``, in order. Raises StoreDamaged."""
        with self._reading(serving=True), self._views() as txn:
            return [(offset, entry_of(key, data)) for offset, key, data in values(txn, queue, after, limit)]

    def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int] = ()) -> Ids:
        """Up to ``limit`` (offset, replication id) above ``after``, in order; no message is read. Raises StoreDamaged.

        So their checksums are not looked at: a damaged id is found by the digest of its queue.
        """
        with self._reading(serving=True), self._views() as txn:
            return ids_of(txn, queue, after, limit, hidden)

    def _views(self) -> lmdb.Transaction:
        """A transaction on the messages in which values are views, so that no more of them is copied than is read."""
        return self._env.begin(db=self._tables.entries, buffers=True)

    def ids(self, queue: int) -> Iterator[tuple[int, int]]:
        """All (offset, replication id) of a queue, in order."""
        page = Ids([], -1)
        while page.more:
            page = self.ids_page(queue, page.through, PAGE)
            yield from page.entries

    def write(self, checkpoint: Checkpoint) -> None:
        """Bring the state forward, in one atomic step that is on disk when this returns. Raises StoreError."""
        crash_point("checkpoint.before-write")
        try:
            # A reader that was killed within its transaction still stands in the table: as if it needed every page.
            self._env.reader_check()
            with self._env.begin(write=True) as txn:
                self._tables.write(txn, checkpoint)
                crash_point("checkpoint.before-commit")
        except lmdb.Error as error:
            raise explained(error, self._directory) from error
        self._tables.committed()
        crash_point("checkpoint.committed")

    def check_invariants(self, checkpoint: Checkpoint) -> None:
        """The state is what this checkpoint was to make of it. Raises InvariantBroken, StoreDamaged."""
        with checking(str(self._directory)), self._env.begin() as txn:
            self._tables.check_invariants(txn, checkpoint)

    @property
    def log_begun(self) -> bool:
        """Whether the log that leads on from this state is known to have a segment. Raises StoreDamaged."""
        with self._reading(), self._env.begin() as txn:
            return self._tables.log_begun(txn)

    def confirm(self, log_begun: bool) -> None:
        """Make durable what was found at the opening. Raises StoreError.

        The head page that names the last checkpoint may be in the page cache alone: its writer was killed before the
        sync of that page ended, or that sync failed and Linux takes the page for clean. What it leads to was synced
        before. A transaction of our own writes the other head page, behind a sync of the file, and names the same.
        """
        try:
            with self._env.begin(write=True) as txn:
                self._tables.confirm(txn, log_begun)
        except lmdb.Error as error:
            raise explained(error, self._directory) from error

    def close(self) -> None:
        """Let go of the files."""
        self._env.close()

    @contextmanager
    def _reading(self, serving: bool = False) -> Iterator[None]:
        """What a damaged page does to a reader, in one sentence; ``serving``: no start shall serve it again."""
        try:
            yield
        except lmdb.Error as error:
            raise self._condemned(explained(error, self._directory), serving) from error
        except struct.error as error:
            damage = StoreDamaged(f"the queue state cannot be read: {error}")
            raise self._condemned(damage, serving) from error
        except StoreDamaged as error:
            self._condemned(error, serving)
            raise

    def _condemned(self, error: StoreError, serving: bool) -> StoreError:
        """The error, for which this state is marked if it is damage."""
        if serving and not self._read_only and isinstance(error, StoreDamaged):
            condemn(self._directory, str(error))
        return error
