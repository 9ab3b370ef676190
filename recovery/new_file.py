"""Files that appear whole or not at all, and are on the disk when that is reported."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def written_beside(path: Path, data: bytes, mode: int) -> Path:
    """A file with this content and mode beside ``path``, under a name of its own, for its caller to move or remove.

    Raises OSError, with nothing left.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def write_new(path: Path, data: bytes, mode: int) -> None:
    """A file that is not there yet. Raises FileExistsError if one is there, also if it came meanwhile, and OSError."""
    temporary = written_beside(path, data, mode)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
