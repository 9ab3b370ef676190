"""A queue state in which damage was found while it was served is marked, so that its node does not start with it again.

A start looks at every page, and not at the bodies of messages: that would take as long as reading them all. Without the
mark a node that has left the ready set because of a body would be taken into it again, and be counted on.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from recovery.store.files import FILE_MODE, NOTHING_OF_THE_STORE, REAL_FILES, explain
from txobserver.ports.store import StoreDamaged

NAME = "damaged"


def condemn(state: Path, reason: str) -> None:
    """Mark it, durably if that can be: what else is broken there must not hide the reason."""
    with suppress(OSError):
        descriptor = os.open(state / NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            os.write(descriptor, reason.encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        REAL_FILES.sync_directory(state)


def check_not_condemned(state: Path) -> None:
    """Raises StoreDamaged with what was found then, StoreBusy if that could not be looked at."""
    try:
        reason = (state / NAME).read_text(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        if error.errno in NOTHING_OF_THE_STORE:
            raise explain(error, state) from error
        reason = f"{NAME}: {error.strerror}"
    raise StoreDamaged(f"{reason or 'damage'}, found while it was served")
