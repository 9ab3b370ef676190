"""Whose store a directory is: cluster, node, and the incarnation that is created with the store.

A cluster has a name, which an operator chooses and may choose twice, and an identity, which is random and given once,
when the cluster is founded (``recovery.planner.founding``). Format 1 knew only the name; such a store takes the
identity of its cluster's record when its node starts, if that was given to a cluster of before
(``docs/decisions/founding.md``).
"""

from __future__ import annotations

import errno
import fcntl
import os
import zlib
from pathlib import Path

import msgspec

from recovery.store.crash_points import crash_point
from recovery.store.files import FILE_MODE, NOTHING_OF_THE_STORE, REAL_FILES, explain
from txobserver.ids import Member, Position
from txobserver.ports.store import StoreBusy, StoreDamaged, StoreError

FORMAT_VERSION = 2
"""Version 1, which holds no ``cluster_id`` and is the same otherwise, can be read too."""
FILE = "identity.json"
GIVEN_LATER = "00000000"
"""How an identity begins that a cluster got when it met this version, having been founded before there were any. A
store that is as old may take such a one, and no other: that of a cluster which was founded since is not its own."""


class Identity(msgspec.Struct, frozen=True):
    """Identity of a store. A store that was made anew has another incarnation, and is another member."""

    format: int
    cluster: str
    node: str
    incarnation: str
    check: int = 0
    """crc32 over the other fields: a flipped bit would make the node another member, or refuse its own store"""
    cluster_id: str = ""
    """Random identity that the cluster was founded with; empty in a store that has not met its record since format 1"""
    rebuilt: Position | None = None
    """Where the log of a store ended when ``txha rebuild`` made it; None for every other. Versions that do not know
    this field, nor the next, pass over both: they are not among the fields of ``check``."""
    rebuilt_check: int = 0
    """crc32 over ``rebuilt``, and whose it is"""

    def expected(self) -> int:
        """What ``check`` has to be."""
        fields = [str(self.format), self.cluster, self.node, self.incarnation]
        if self.format > 1 or self.cluster_id:  # the second: format 1 has no such field, so it is damage there
            fields.append(self.cluster_id)
        return zlib.crc32("\0".join(fields).encode())

    def expected_rebuilt(self) -> int:
        """What ``rebuilt_check`` has to be."""
        return zlib.crc32(f"{self.incarnation}\0{self.rebuilt}".encode()) if self.rebuilt is not None else 0

    def is_as_rebuilt(self, tail: Position) -> bool:
        """Whether ``txha rebuild`` made this store, whose log ends at ``tail``, and no primary has given it any event.

        What its node's store before held, it knows nothing of. A node that has been primary since does.
        """
        return self.rebuilt is not None and tail <= self.rebuilt

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
        if error.errno in NOTHING_OF_THE_STORE:
            raise explain(error, path) from error
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    try:
        identity = msgspec.json.decode(data, type=Identity)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreDamaged(f"{path} is damaged; restore it or let the node rejoin with a new store") from error
    if not 1 <= identity.format <= FORMAT_VERSION:
        raise StoreError(
            f"{path} has format version {identity.format}; this version of txha reads 1 to {FORMAT_VERSION}"
        )
    if (identity.check, identity.rebuilt_check) != (identity.expected(), identity.expected_rebuilt()):
        raise StoreDamaged(f"{path} is damaged (its checksum does not match); restore it or rejoin with a new store")
    return identity


def check_identity(directory: Path, cluster: str, node: str, cluster_id: str = "") -> Identity | None:
    """As ``read_identity``; raises StoreError for a store of another cluster or node.

    ``cluster_id``: of the record; empty if that is not known here. A store that has none yet may take one that was
    given to a cluster of before, and no other.
    """
    identity = read_identity(directory)
    if identity is not None and (identity.cluster, identity.node) != (cluster, node):
        raise StoreError(
            f"{directory} belongs to node {identity.node} of cluster {identity.cluster}, "
            f"not to node {node} of cluster {cluster}"
        )
    if identity is not None and cluster_id and identity.cluster_id not in ("", cluster_id):
        raise StoreError(
            f"{directory} belongs to another cluster that is also called {cluster} (identity {identity.cluster_id}; "
            f"the coordination record has {cluster_id}): name the right `coordination`, or ask `txha recover` if that "
            "record was founded over a lost one"
        )
    if identity is not None and cluster_id and not identity.cluster_id and not may_take(cluster_id):
        raise StoreError(nobodys(directory, cluster, cluster_id))
    return identity


def may_take(cluster_id: str) -> bool:
    """Whether a store that knows no identity of its cluster may take this one.

    A store that was made since knows one, however it was made. So one that knows none is of a cluster of before
    (``an_archive_of_another_cluster_of_the_same_name``).
    """
    return cluster_id.startswith(GIVEN_LATER)


def nobodys(directory: Path, cluster: str, cluster_id: str) -> str:
    """Why a store that knows no identity of its cluster does not take this one, and what to do."""
    return (
        f"{directory} does not know the identity of its cluster, and the one in the coordination record, {cluster_id}, "
        f"was founded since under the same name {cluster}: name the right `coordination`, write its record with `txha "
        "recover` if it was lost, or make the store again if it is from `txha rebuild`, with `--cluster-id`"
    )


def create_identity(directory: Path, identity: Identity) -> None:
    """Write the identity of a store, whole or not at all, over that which is there. Raises StoreError."""
    temporary = directory / (FILE + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(_encoded(identity))
            file.flush()
            os.fsync(file.fileno())
        crash_point("store.identity-synced")
        temporary.rename(directory / FILE)
        REAL_FILES.sync_directory(directory)
    except OSError as error:
        raise explain(error, directory) from error
    crash_point("store.identity-written")


def _encoded(identity: Identity) -> bytes:
    """With its checksums. What a store is not is not written: a flipped bit in the name of a field must be found."""
    fields = {**msgspec.structs.asdict(identity), "check": identity.expected()}
    if identity.rebuilt is None:
        del fields["rebuilt"], fields["rebuilt_check"]
    else:
        fields["rebuilt_check"] = identity.expected_rebuilt()
    return msgspec.json.encode(fields)


def adopt(directory: Path, identity: Identity, cluster_id: str) -> Identity:
    """Give a store of format 1 the identity of its cluster; its data is not touched. Raises StoreError."""
    adopted = msgspec.structs.replace(identity, format=FORMAT_VERSION, cluster_id=cluster_id)
    create_identity(directory, adopted)
    return adopted


def lock_directory(directory: Path, create: bool = True) -> int:
    """Keep every other process out of this store; returns the lock's descriptor. Raises StoreBusy, StoreError.

    Without ``create`` nothing is written, and a directory without a lock file is an error.
    """
    try:
        descriptor = _open_lock(directory / "lock", create)
    except OSError as error:
        raise explain(error, directory) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise StoreBusy(f"{directory} is in use by another process") from None
    except OSError as error:
        os.close(descriptor)
        raise StoreError(f"{directory} cannot be locked, so whether it is in use is not known: {error}") from error
    return descriptor


def _open_lock(path: Path, create: bool) -> int:
    """To write: NFS gives no lock that keeps others out (EBADF) to who has opened a file to read.

    Where nothing can be written, who only looks has it opened to read; a lock on that is as good on a local disk.
    """
    if create:
        return os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        return os.open(path, os.O_RDWR)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return os.open(path, os.O_RDONLY)
