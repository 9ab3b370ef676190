"""A secret in a file: one line, which only its owner and group may read.

Every user of a machine sees its processes with their command lines and, of its own user, their environment. So a secret
is given by the name of a file: ``@FILE``.
"""

from __future__ import annotations

import stat
from pathlib import Path

MARK = "@"
"""What a value begins with that names a file. Two of them stand for one, and no file is meant."""
_LONGEST = 65536
"""Characters that are read of a file: some, as /dev/zero, have no end."""


class SecretFileError(Exception):
    """The file cannot be used; one sentence says why, and nothing of what stands in it."""


def read_secret(path: Path, what: str) -> str:
    """The only line of this file. ``what`` should stand there, for messages. Raises SecretFileError."""
    try:
        with path.open() as file:
            mode = path.stat().st_mode
            text = file.read(_LONGEST).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecretFileError(f"{path} cannot be read: {why}") from None
    if stat.S_ISREG(mode) and mode & stat.S_IRWXO:
        real = path.resolve()  # /dev/stdin is another file for chmod
        raise SecretFileError(f"every user of this machine may use {real}: take that away with chmod o= {real}")
    if len(text.splitlines()) != 1:
        raise SecretFileError(f"{path} must hold {what}")
    return text
