"""Whose store a directory is: cluster, node, and the incarnation that is created with the store."""

from __future__ import annotations

import fcntl
import os
import zlib
from pathlib import Path

import msgspec

from recovery.crash_points import crash_point
from recovery.files import REAL_FILES, explain
from txobserver.ids import Member
from txobserver.store import StoreDamaged, StoreError

FORMAT_VERSION = 1
FILE = "identity.json"


class Identity(msgspec.Struct, frozen=True):
    """Identity of a store. A store that was made anew has another incarnation, and is another member."""

    format: int
    cluster: str
    node: str
    incarnation: str
    check: int = 0
    """crc32 over the other fields: a flipped bit would make the node another member, or refuse its own store"""

    def expected(self) -> int:
        """What ``check`` has to be."""
        return zlib.crc32("\0".join((str(self.format), self.cluster, self.node, self.incarnation)).encode())

    @property
    def member(self) -> Member:
        """The member that this store makes its node."""
        return Member(self.node, self.incarnation)


def read_identity(directory: Path) -> Identity | None:
    """The identity of the store in this directory, None if there is no store. Raises StoreError."""
    path = directory / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    try:
        identity = msgspec.json.decode(data, type=Identity)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreDamaged(f"{path} is damaged; restore it or let the node rejoin with a new store") from error
    if identity.format != FORMAT_VERSION:
        raise StoreError(f"{path} has format version {identity.format}; this version of txha reads {FORMAT_VERSION}")
    if identity.check != identity.expected():
        raise StoreDamaged(f"{path} is damaged (its checksum does not match); restore it or rejoin with a new store")
    return identity


def check_identity(directory: Path, cluster: str, node: str) -> Identity | None:
    """As ``read_identity``; raises StoreError for a store of another cluster or node."""
    identity = read_identity(directory)
    if identity is not None and (identity.cluster, identity.node) != (cluster, node):
        raise StoreError(
            f"{directory} belongs to node {identity.node} of cluster {identity.cluster}, "
            f"not to node {node} of cluster {cluster}"
        )
    return identity


def create_identity(directory: Path, identity: Identity) -> None:
    """Write the identity of a new store, whole or not at all. Raises StoreError."""
    temporary = directory / (FILE + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(msgspec.json.encode(msgspec.structs.replace(identity, check=identity.expected())))
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(directory / FILE)
        REAL_FILES.sync_directory(directory)
    except OSError as error:
        raise explain(error, directory) from error
    crash_point("store.identity-written")


def lock_directory(directory: Path, create: bool = True) -> int:
    """Keep every other process out of this store; returns the lock's descriptor. Raises StoreError.

    Without ``create`` nothing is written, and a directory without a lock file is an error.
    """
    try:
        descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT if create else os.O_RDONLY, 0o640)
    except OSError as error:
        raise explain(error, directory) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise StoreError(f"{directory} is in use by another process") from None
    return descriptor
