"""What LMDB's errors say about a store: that its pages are damaged, that its disk is full, or nothing at all.

A store that is called damaged is given up by people and by ``txha recover``. So only what says that its pages are
damaged counts as that: what the machine is short of, memory or a descriptor, says nothing about the store.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import lmdb

from recovery.store.files import NOTHING_OF_THE_STORE
from txobserver.ports.store import StoreBusy, StoreDamaged, StoreError, StoreFull

DAMAGE = (
    lmdb.CorruptedError,
    lmdb.PageNotFoundError,
    lmdb.InvalidError,  # no file of LMDB's: its first pages are not what it writes there
    lmdb.NotFoundError,  # a table that every store has; what a table does not hold is None instead
    lmdb.IncompatibleError,  # a table's record names another kind of table than was ever made here
    lmdb.CursorFullError,  # pages that lead down deeper than any tree of LMDB's, such as in a circle
    lmdb.BadValsizeError,  # every key here has a length that LMDB takes, so a page has made it think otherwise
    lmdb.BadTxnError,  # a reader's transaction is used by no other thread, so it met such a page before
    lmdb.MapResizedError,  # no process writes behind MAP_SIZE, so the page that names the last page is wrong
)
"""What is wrong with pages. Not VersionMismatchError: another version of LMDB may read that file."""
SHORTAGE = (lmdb.MemoryError, lmdb.ReadersFullError, lmdb.TlsFullError, lmdb.LockError)
"""What is wrong with the machine, or with what else runs on it; LockError is EAGAIN."""
PAGE_SIZES = (4096, 8192, 16384, 32768, 65536)
"""LMDB takes that of the machine that made the file, and 32,768 where that is larger."""
_META = struct.Struct("=16xI4x8x8xI92xQ8x")
"""A meta page of a machine with addresses of 64 bits: magic, page size, last page."""
_MAGIC = 0xBEEFC0DE


def explained(error: Exception, directory: Path) -> StoreError:
    """The error of the right kind, with one sentence for people."""
    text = str(error)
    if isinstance(error, lmdb.DiskError | lmdb.MapFullError) or "No space" in text:
        return StoreFull(f"no space is left for {directory}; make room and start the node again")
    if isinstance(error, DAMAGE):
        return StoreDamaged(f"the queue state in {directory} cannot be read: {text}")
    # LMDB has no class for some of the system's errors, and names them in its text.
    if isinstance(error, SHORTAGE) or any(os.strerror(code) in text for code in NOTHING_OF_THE_STORE):
        return StoreBusy(f"{directory} could not be read ({text}); start again")
    return StoreError(f"{directory} failed: {text}")


def impossible_map(error: lmdb.Error, directory: Path, map_size: int) -> bool:
    """Whether LMDB failed to open this for a meta page that none has written: of a size, or of a last page, too large.

    LMDB makes its map as large as that page asks for. What the system then says sounds as if it lacked memory.
    """
    return isinstance(error, lmdb.MemoryError | lmdb.InvalidParameterError) and any(
        page_size not in PAGE_SIZES or (last + 1) * page_size > map_size
        for page_size, last in _metas(directory / "data.mdb")
    )


def _metas(path: Path) -> Iterator[tuple[int, int]]:
    """Page size and last page by each meta page that can be found."""
    at = 0
    try:
        with path.open("rb") as file:
            for _ in range(2):
                file.seek(at)
                magic, page_size, last = _META.unpack(file.read(_META.size))
                if magic == _MAGIC:
                    yield page_size, last
                at = page_size
    except (OSError, struct.error):
        return
