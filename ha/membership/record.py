"""The coordination record and what a store of it must do (PROTOCOL, "Who is primary").

One versioned record holds the generation, the primary with its lease, and the ready set. Every change is a
compare-and-set on the version, synced before it is reported. A renewal of the lease is a change like any other: it
raises the version, and a candidate that sees a version stand still knows that nobody renews.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from txobserver.ids import Member


class Record(msgspec.Struct, frozen=True):
    """The coordination record of a cluster. Version 0 never exists: it stands for "no record"."""

    cluster: str
    version: int
    generation: int
    primary: Member | None
    ready: tuple[Member, ...]
    released: bool = False
    """The primary gave its lease up on purpose; candidates need not wait for it to run out."""
    preferred: str = ""
    """The node that should take over after a release."""
    cluster_id: str = ""
    """Random identity that the cluster was founded with; empty in a record that is older than such identities."""
    loss_accepted: int = 0
    """Generation of the last promotion for which an operator accepted the loss of data; 0 if there was none."""
    loss_unknown: int = 0
    """An earlier record was lost: a loss may have been accepted for any generation up to this one. 0: none was lost."""


class CoordinationError(Exception):
    """The coordination store cannot be reached or is damaged; the change may or may not have been made."""


class CasConflict(Exception):
    """The record is of another version; ``current`` is what it is now (None: there is no record)."""

    def __init__(self, current: Record | None) -> None:
        super().__init__(f"the coordination record is at version {current.version if current else 0}")
        self.current = current


def may_follow(record: Record, current: Record | None) -> bool:
    """Whether ``record`` can come after ``current``, whatever their versions say.

    A cluster keeps its identity, a generation its primary, and generations never fall: so nobody who went by another
    record than the one that is there changes it, though the versions may be the same by chance.
    """
    if current is None:
        return True
    if current.cluster_id not in ("", record.cluster_id) or record.generation < current.generation:
        return False
    return record.generation > current.generation or record.primary == current.primary


class Coordination(Protocol):
    """A store of one record. Calls block; the shell makes them in a thread."""

    def read(self) -> Record | None:
        """The record, or None before the first. Raises CoordinationError."""
        ...

    def compare_and_set(self, expected: int, record: Record) -> Record:
        """Store ``record`` as version ``expected + 1`` if the version is ``expected``; returns what is stored.

        Raises CasConflict if it is not, CoordinationError if the outcome is unknown.
        """
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class MemoryCoordination:
    """A coordination store in plain memory, for the simulator and for tests."""

    def __init__(self) -> None:
        self.record: Record | None = None

    def read(self) -> Record | None:
        return self.record

    def compare_and_set(self, expected: int, record: Record) -> Record:
        if (self.record.version if self.record else 0) != expected or not may_follow(record, self.record):
            raise CasConflict(self.record)
        self.record = msgspec.structs.replace(record, version=expected + 1)
        return self.record


def first_record(cluster: str, cluster_id: str, founder: Member) -> Record:
    """The record that an operator founds a cluster with: its first member may stand at once, in generation 1."""
    return Record(cluster, 1, 0, None, (founder,), released=True, cluster_id=cluster_id)
