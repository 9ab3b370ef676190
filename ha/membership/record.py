"""The coordination record and what a store of it must do (PROTOCOL, "Who is primary").

One versioned record holds the generation, the primary with its lease, and the ready set. Every change is a
compare-and-set on the version, synced before it is reported. A renewal of the lease is a change like any other: it
raises the version, and a candidate that sees a version stand still knows that no primary renews.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from ha.membership.members import Membership
from ha.membership.watchdog import Renewals, Watchdog
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
    membership: Membership | msgspec.UnsetType = msgspec.UNSET
    """Which nodes belong to the cluster; unset, and not stored, where each node goes by its own file."""


class CoordinationError(Exception):
    """The coordination store cannot be reached or is damaged; the change may or may not have been made."""


class ForeignRecord(CoordinationError):
    """The store holds the record of a cluster of another name. Whatever its state, it is not ours to change."""


class CasConflict(Exception):
    """The record is of another version; ``current`` is what it is now (None: there is no record)."""

    def __init__(self, current: Record | None) -> None:
        super().__init__(f"the coordination record is at version {current.version if current else 0}")
        self.current = current


def may_follow(record: Record, current: Record | None) -> bool:
    """Whether ``record`` can come after ``current``, whatever their versions say.

    A cluster keeps its identity, a generation its primary, and generations never fall, nor do the numbers of changes of
    its members (``record_rewritten_without_members``): so no process that went by
    another record than the one that is there changes it, though the versions may be the same by chance.
    """
    if current is None:
        return True
    if current.cluster_id not in ("", record.cluster_id) or record.generation < current.generation:
        return False
    if changes_of(record) < changes_of(current):  # its writer knows nothing of members, or not of the last change
        return False
    return record.generation > current.generation or record.primary == current.primary


def changes_of(record: Record) -> int:
    """How often the members have been changed."""
    return 0 if isinstance(record.membership, msgspec.UnsetType) else record.membership.number


class Snapshot(NamedTuple):
    """What a coordination store held at one moment, whole.

    ``version``: of the record, 0 where there is none. ``damage``: why what is there cannot be read as a record, in one
    sentence; empty if it can, and where nothing is there. ``content``: what is there and cannot be read, else nothing.
    """

    version: int
    record: Record | None
    damage: str = ""
    content: bytes = b""


class Waiter(Protocol):
    """What one call of ``Coordination.watch`` waits on; a ``threading.Event`` is one. Once set, it stays set."""

    def wait(self, timeout: float) -> bool:
        """Block until it is set, or for so many seconds; returns whether it is set."""
        ...

    def set(self) -> None:
        """Let who waits go on. From any thread."""
        ...

    def is_set(self) -> bool:
        """Whether it was set."""
        ...


class Coordination(Protocol):
    """The port to a store of one record; ``broker_plugin.coordination`` has the adapters.

    *Compare-and-set.* A change is made where the version is the expected one and ``may_follow`` allows it, with no
    other in between, or not at all. It is synced before it is reported: what was told, read or watched is still there
    after a crash of the store. *Version.* It rises by one with each change, and the store never gives one twice; what
    is stored, version included, is what every later reading finds. *Readings* are of the newest version that was
    reported to any caller when the reading began.

    *Errors.* ``CasConflict``: the change was not made and never will be. ``CoordinationError``: the store cannot be
    reached or is damaged; whether a change was made is unknown, and it may still be made later. ``ForeignRecord``: the
    store is another cluster's. Nothing else is raised. An adapter makes no change a second time whose outcome is
    unknown: its caller decides.

    *Blocking and deadlines.* Every call blocks, for a bounded time that the adapter names; calls are made by one thread
    at a time. Only ``give_up`` and ``Waiter.set`` may come from other threads. What a node uses for its lifetime holds
    nothing that others wait for, should the node's process be stopped in the middle of a call.
    """

    def read(self) -> Record | None:
        """The record, or None before the first. Raises CoordinationError."""
        ...

    def compare_and_set(self, expected: int, record: Record) -> Record:
        """Store ``record`` as version ``expected + 1`` if the version is ``expected``; returns what is stored.

        Raises CasConflict if it is not, CoordinationError if the outcome is unknown.
        """
        ...

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """Wait until the version is another one than ``after`` (0: that of no record), or for so many seconds.

        Returns a reading that began after this call, so that the caller knows that a version stands still as of now.
        ``UNSEEN`` waits for nothing. None: the caller has set ``waiter`` before there was anything to tell, and no
        reading is made then. An adapter may set it too, to wake itself. Raises CoordinationError at the first reading
        that fails.
        """
        ...

    def snapshot(self) -> Snapshot:
        """What is there, for operators and the planner: nothing is changed by it, not even what a crash has left.

        It tells of damage instead of raising it. Raises CoordinationError where the store cannot be reached, and
        ForeignRecord.
        """
        ...

    def give_up(self) -> None:
        """From any thread: the answers to the call that is on its way and to later ones are not waited for any more."""
        ...

    def close(self) -> None:
        """Let go of the store; what is on its way ends first."""
        ...


class Served(NamedTuple):
    """A coordination store, as a node uses it for its lifetime, and the watchdog that its loop shows its turns to."""

    coordination: Coordination
    watchdog: Watchdog


class RecordStore(ABC):
    """Where the record of a cluster is kept, as an address names it: what a configuration, a node's start and an
    operator's commands go by. ``str``: the address, as it was written. Two that name the same place are equal."""

    @property
    @abstractmethod
    def notes(self) -> Path:
        """The directory in which plans for this record are kept while they are carried out, and afterwards.

        Raises CoordinationError where the address has to name one, and does not.
        """

    @abstractmethod
    def open(self, cluster: str, create: bool = False, confirm: bool = False) -> Coordination:
        """For one command; nothing is opened before the first call.

        ``create``: make the store at the first compare-and-set that expects no record. ``confirm``: make what is found
        durable before it is told, also if the process that wrote it never saw its sync succeed.
        """

    @abstractmethod
    def serve(self, cluster: str, answer_seconds: float, renewals: Renewals) -> Served:
        """For a node, for as long as it lives. No store is made, what is read is confirmed, and a call that gives no
        answer in so many seconds has failed.

        The last change that this node has made is renewed as ``renewals`` say, while the watchdog is shown turns of its
        generation. Such a renewal changes the version alone, and what this node asks for next need not know of it: a
        change within the same generation that expects the version that was told last meets that of the renewal.
        """

    @abstractmethod
    def check_writable(self) -> None:
        """Whether a record could be written there, as far as can be said without writing. Raises CoordinationError."""

    @abstractmethod
    def check_readable(self) -> None:
        """Whether what is there may be a store of this kind at all. Raises CoordinationError."""

    @abstractmethod
    def check_expected(self, expected: Collection[RecordStore]) -> None:
        """Whether a record that is lost may be written anew here; ``expected``: where the nodes look for it.

        Raises CoordinationError.
        """

    @abstractmethod
    def set_aside(self) -> None:
        """Keep what is there under another name, whatever it is, durably: there is no record then.

        Raises OSError, or CoordinationError: it may have been done then.
        """


UNSEEN = -1
"""The version that a watcher is behind who has seen none"""


class MemoryCoordination:
    """A coordination store in plain memory, for the simulator and for tests."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self._waiting: list[Waiter] = []

    @property
    def version(self) -> int:
        """Of the record; 0 without one."""
        return self.record.version if self.record else 0

    def read(self) -> Record | None:
        return self.record

    def compare_and_set(self, expected: int, record: Record) -> Record:
        if self.version != expected or not may_follow(record, self.record):
            raise CasConflict(self.record)
        self.record = msgspec.structs.replace(record, version=expected + 1)
        for waiter in self._waiting:
            waiter.set()
        return self.record

    def watch(self, after: int, seconds: float, waiter: Waiter) -> Snapshot | None:
        """As the port says. A change sets the waiter."""
        self._waiting.append(waiter)
        try:
            if self.version == after and waiter.wait(seconds) and self.version == after:
                return None
        finally:
            self._waiting.remove(waiter)
        return self.snapshot()

    def snapshot(self) -> Snapshot:
        return Snapshot(self.version, self.record)

    def give_up(self) -> None:
        """Nothing is waited for."""

    def close(self) -> None:
        """Nothing is held."""


def first_record(cluster: str, cluster_id: str, founder: Member) -> Record:
    """The record that an operator founds a cluster with: its first member may stand at once, in generation 1."""
    return Record(cluster, 1, 0, None, (founder,), released=True, cluster_id=cluster_id)
