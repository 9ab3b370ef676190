"""The few file operations that durability rests on, in one place, so that tests can make them fail."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from txobserver.store import StoreError, StoreFull


class Files:
    """Real files. Every method raises OSError as the system does."""

    def write(self, descriptor: int, buffers: Sequence[bytes]) -> None:
        """Write all buffers at the end, in order."""
        pending = [memoryview(buffer) for buffer in buffers]
        while pending:
            written = os.writev(descriptor, pending[:512])
            while pending and written >= len(pending[0]):
                written -= len(pending.pop(0))
            if written:
                pending[0] = pending[0][written:]

    def sync(self, descriptor: int) -> None:
        """Return only when what was written is on disk."""
        os.fdatasync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        """Make the creation and removal of files in this directory durable."""
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def explain(error: OSError, what: Path) -> StoreError:
    """One sentence for people, of the right kind."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StoreFull(f"no space is left for {what}; make room and start the node again")
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreFull(f"{what} cannot be written ({os.strerror(error.errno)}); mount it writable and start again")
    return StoreError(f"{what} failed: {error.strerror or error}")
