"""Making durable what a store is read as, before any component relies on it: its reader may see what is in memory
alone."""

from __future__ import annotations

from pathlib import Path

from recovery.store.files import REAL_FILES, Files, explain, renew_directory, write_again
from recovery.store.lmdb_state import LmdbState
from recovery.store.segment import segment_firsts, segment_path


def make_durable(store: Path) -> None:
    """The log and the queue state of this store, whose node does not run. Raises StoreError."""
    if not (store / "log").is_dir() or not (store / "state").is_dir():
        return
    make_log_durable(store / "log")
    state = LmdbState(store / "state")
    try:
        state.confirm(False)
    finally:
        state.close()


def make_log_durable(log: Path, files: Files = REAL_FILES) -> None:
    """Write the last segment as it is once more: those before it were synced before it was begun. Raises StoreError."""
    firsts = segment_firsts(log, files)
    try:
        if not firsts:
            renew_directory(log, files)
            return
        path = segment_path(log, firsts[-1])
        descriptor = files.open(path)
        try:
            write_again(files, descriptor, path, 0)
        finally:
            files.close(descriptor)
    except OSError as error:
        raise explain(error, log) from error
