"""A small file in the node's directory that is replaced whole, and says whose it is.

It is written under another name, synced, and renamed; then its directory is synced. So a crash leaves what was there
before, or what was written, and a write that failed may be done again at any time: each begins a new file.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import msgspec

from recovery.store.files import FILE_MODE, NOTHING_OF_THE_STORE, REAL_FILES, explain
from txobserver.ports.store import StoreDamaged, StoreError

FORMAT_VERSION = 1
T = TypeVar("T")


class FileOwner(NamedTuple):
    """Whose file it is. A node whose store was made anew has another ``incarnation``."""

    cluster_id: str
    node: str
    incarnation: str


class _Sealed(msgspec.Struct, frozen=True):
    format: int
    cluster_id: str
    node: str
    incarnation: str
    content: msgspec.Raw
    check: int

    def expected(self) -> int:
        """What ``check`` has to be: crc32 over the other fields."""
        head = "\0".join((str(self.format), self.cluster_id, self.node, self.incarnation, ""))
        return zlib.crc32(head.encode() + bytes(self.content))


class KeptFile(Generic[T]):
    """``kind`` is what it holds; ``way_out`` a sentence: what becomes of the node if a damaged file is moved away."""

    def __init__(self, path: Path, owner: FileOwner, kind: type[T], way_out: str) -> None:
        self.path = path
        self._owner = owner
        self._kind = kind
        self._way_out = way_out

    def read(self) -> tuple[FileOwner, T] | None:
        """Whose it was, and what it holds; None if there is none. Raises StoreError, also for another node's file."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno in NOTHING_OF_THE_STORE:
                raise explain(error, self.path) from error
            raise StoreError(f"{self.path} cannot be read: {error.strerror}; let this user read it") from error
        try:
            sealed = msgspec.json.decode(data, type=_Sealed)
            if sealed.format > FORMAT_VERSION:
                raise StoreError(
                    f"{self.path} has format version {sealed.format}; this version of txha reads {FORMAT_VERSION}: "
                    "start the node with the version that wrote it"
                )
            if sealed.check != sealed.expected():
                raise ValueError("its checksum does not match")
            content = msgspec.json.decode(sealed.content, type=self._kind)
        except (ValueError, RecursionError) as error:
            raise StoreDamaged(f"{self.path} is damaged ({error}); move it away: {self._way_out}") from error
        found = FileOwner(sealed.cluster_id, sealed.node, sealed.incarnation)
        if found[:2] != self._owner[:2]:
            raise StoreError(
                f"{self.path} is of node {found.node} of the cluster of identity {found.cluster_id}, and this is node "
                f"{self._owner.node} of {self._owner.cluster_id}: move it away, {self._way_out}"
            )
        return found, content

    def write(self, content: T) -> None:
        """Return when this is durable. Raises OSError; then the file is what it was, or this."""
        raw = msgspec.Raw(msgspec.json.encode(content))
        sealed = _Sealed(FORMAT_VERSION, *self._owner, raw, 0)
        data = msgspec.json.encode(msgspec.structs.replace(sealed, check=sealed.expected()))
        temporary = self.path.with_name(self.path.name + ".new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            REAL_FILES.write(descriptor, [data + b"\n"])
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(self.path)
        REAL_FILES.sync_directory(self.path.parent)
