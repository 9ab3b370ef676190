"""Secrets in files, which only their owner may be able to use: a password, or the secrets of a link.

Every user of a machine sees its processes with their command lines and, of its own user, their environment. So a secret
is given by the name of a file: ``@FILE``.
"""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from ha.messages.proof import CERTIFIED, SHORTEST_SECRET
from recovery.new_file import write_new

MARK = "@"
"""What a value begins with that names a file. Two of them stand for one, and no file is meant."""
BY_CERTIFICATE = "certificate"
"""Stands for a secret while certificates take its place, or it theirs"""
_LONGEST = 65536
"""Characters that are read of a file: some, as /dev/zero, have no end."""
_AT_A_TIME = 2
"""Secrets of a link that are valid while one takes the other's place"""


class SecretFileError(Exception):
    """The file cannot be used; one sentence says why, and nothing of what stands in it."""


def refuse_others(path: Path, mode: int) -> None:
    """Raises SecretFileError for a regular file of this mode that others than its owner may use."""
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        real = path.resolve()  # /dev/stdin is another file for chmod
        raise SecretFileError(f"others than its owner may use {real}: take that away with chmod go= {real}")


def read_secret(path: Path, what: str) -> str:
    """The only line of this file. ``what`` should stand there, for messages. Raises SecretFileError."""
    text = _read_private(path)
    if len(text.splitlines()) != 1:
        raise SecretFileError(f"{path} must hold {what}")
    return text


def read_link_secrets(given: str) -> tuple[bytes, ...]:
    """The secrets of a link, of ``@FILE`` those that stand there: one, or two while one takes the other's place.

    The first is the one to prove oneself by. ``certificate`` stands for none. Raises SecretFileError, which tells
    nothing of them.
    """
    named = given.startswith(MARK)
    words = (_read_private(Path(given[len(MARK) :])) if named else given).split()
    where = given[len(MARK) :] if named else "it"
    if not 1 <= len(words) <= _AT_A_TIME:
        raise SecretFileError(f"{where} must hold one secret, or two while one takes the other's place")
    if any(len(word) < SHORTEST_SECRET and word != BY_CERTIFICATE for word in words):
        raise SecretFileError(
            f"{where} holds a secret of fewer than {SHORTEST_SECRET} characters, which can be guessed: let a machine "
            "draw it, for example with head -c 32 /dev/urandom | base64"
        )
    return tuple(CERTIFIED if word == BY_CERTIFICATE else word.encode() for word in words)


def make_link_secret(path: Path) -> bool:
    """Draw a secret and write it there, with mode 0600, whole or not at all; False if there is a file already.

    Raises OSError.
    """
    if path.exists():
        return False
    try:
        write_new(path, f"{secrets.token_urlsafe(32)}\n".encode(), 0o600)
    except FileExistsError:
        return False
    return True


def read_bytes(path: Path, most: int = -1, private: bool = False) -> bytes:
    """What stands in this file, of which ``most`` bytes are read, -1 for all; ``private``: others may not use it.

    Raises SecretFileError, also of a pipe: to open one is to wait for its writer.
    """
    try:
        if stat.S_ISFIFO(path.stat().st_mode):
            raise SecretFileError(f"{path} is a pipe: write what comes from it into a file first")
        with path.open("rb") as file:
            if private:
                refuse_others(path, os.fstat(file.fileno()).st_mode)
            return file.read(most)
    except OSError as error:
        raise SecretFileError(f"{path} cannot be read: {error.strerror}") from None


def _read_private(path: Path) -> str:
    try:
        with path.open() as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_LONGEST + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecretFileError(f"{path} cannot be read: {why}") from None
    refuse_others(path, mode)
    if len(text) > _LONGEST:
        raise SecretFileError(f"{path} is no file of a secret: it holds more than {_LONGEST} characters")
    return text.strip()
