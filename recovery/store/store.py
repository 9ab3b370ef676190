"""Store: one node's directory. The log in ``log/``, the queue state in ``state/``, its identity, a lock.

The event loop never waits for a sync, nor for large messages: the log is written by one thread, checkpoints by another,
so that a large checkpoint does not delay an acknowledgement, and a third one reads the queues' messages. Every report
comes back through ``post``, of each thread in the order of the calls.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recovery.store.files import REAL_FILES, Files, explain, make_directory, renew_directory
from recovery.store.identity import FORMAT_VERSION, Identity, adopt, check_identity, create_identity, lock_directory
from recovery.store.invariants import check_order
from recovery.store.lmdb_state import LmdbState, check, was_used
from recovery.store.log import Log
from recovery.store.retention import retention_of
from recovery.store.segment import SegmentInfo, segment_firsts
from recovery.store.worker import Post, Report, Worker
from txobserver.frames import Frame
from txobserver.ids import Member, Position
from txobserver.invariants import CHECKS
from txobserver.ports.store import Asked, Base, Checkpoint, Loaded, Page, StoreDamaged, StoreError

CLOSE_SECONDS = 10.0
"""How long the end of a node waits for its disk."""


class StoreHung(StoreError):
    """The disk has neither done what it was to do nor failed."""


@dataclass(frozen=True)
class StoreSettings:
    """How long the log is kept for joiners, audits and the data pipeline, and how large its segments are."""

    retention_seconds: float = 3600.0
    segment_bytes: int = 64 << 20


class State(Base, Protocol):
    """The queue state as of the last checkpoint, and how it is brought forward: LMDB, or plain memory."""

    def load(self) -> Loaded:
        """The last checkpoint, but for the queues' messages. Raises StoreError."""
        ...

    def write(self, checkpoint: Checkpoint) -> None:
        """Bring it forward, in one atomic step that is durable when this returns."""
        ...

    @property
    def log_begun(self) -> bool:
        """Whether the log that leads on from it is known to have a segment."""
        ...

    def confirm(self, log_begun: bool) -> None:
        """Make durable what was found at the opening, also if the process that wrote it never saw its sync succeed."""
        ...


class Jobs(Protocol):
    """Does jobs in order, one at a time, and reports each."""

    def submit(self, job: Callable[[], None], done: Report) -> None:
        """Do this after all before it."""
        ...


class Store:
    """A log and the state that it leads to. ``make_log`` gets the position that the state stands at.

    Segments last written before ``reclaim_before()`` (seconds since 1970) are past their retention. Raises StoreError
    (one sentence) where it cannot do what is asked.
    """

    def __init__(
        self,
        member: Member,
        state: State,
        make_log: Callable[[Position], Log],
        writer: Jobs,
        keeper: Jobs,
        reader: Jobs,
        reclaim_before: Callable[[], float],
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        self.member = member
        self.base = state
        self.loaded = state.load()
        self.meta = self.loaded.meta
        self._log = make_log(self.meta.applied)
        self._writer = writer
        self._keeper = keeper
        self._reader = reader
        self._reclaim_before = reclaim_before
        self._on_close = on_close
        self._appends: deque[Frame] = deque()
        self.syncs = self.synced_bytes = 0
        """Of the log since the process began: counted by its writer, read by any thread"""
        self._checkpointed = self.meta

    def suffix(self) -> Iterator[Frame]:
        """Frames of the log with events behind the last checkpoint; to be read to the end before any write.

        Raises StoreDamaged also for a log that has begun and is gone, StoreError.
        """
        begun = self.base.log_begun
        if self.meta.resyncing:
            self.base.confirm(begun)  # there may be any part of a log: it begins anew with the end of the copy
            return iter(())
        if not begun:
            self._log.begin(self.meta.applied)
        self.base.confirm(True)
        return self._log.recover(self.meta.applied, begun)

    @property
    def first(self) -> int:
        """First sequence that the log still holds."""
        return self._log.first

    @property
    def waiting(self) -> int:
        """Frames that wait for the log's writer."""
        return len(self._appends)

    @property
    def tail(self) -> Position:
        """Position of the last event in the log."""
        return self._log.tail

    def append(self, frame: Frame, done: Report) -> None:
        """Write and sync a frame, together with all that are asked for while the disk is busy with earlier ones."""
        waiting = self._appends
        waiting.append(frame)
        self._writer.submit(lambda: self._append(waiting), done)

    def truncate(self, last: int, tail: Position, done: Report) -> None:
        """Cut the log after sequence ``last``; ``tail`` is the position of that event."""
        self._appends = deque()
        self._writer.submit(lambda: self._log.truncate(last, tail), done)

    def reset(self, before: Position, done: Report) -> None:
        """Begin the log anew behind ``before``. Only a store that is marked as resyncing survives a crash meanwhile."""
        self._appends = deque()
        self._writer.submit(lambda: self._log.reset(before), done)

    def checkpoint(self, checkpoint: Checkpoint, done: Report) -> None:
        """Bring the queue state forward in one atomic step, then drop segments past their retention."""
        self._keeper.submit(lambda: self._checkpoint(checkpoint), done)

    def read(self, first: int, max_bytes: int) -> list[Frame]:
        """Frames from the log, from any thread. Raises LogReclaimed or StoreDamaged."""
        return self._log.read(first, max_bytes)

    def read_queue(self, asked: Asked, done: Callable[[Page | None, StoreError | None], None]) -> None:
        """Read messages of a queue; either a page comes, or what went wrong."""
        pages: list[Page] = []
        job = lambda: pages.append(self.base.read(asked))  # noqa: E731
        self._reader.submit(job, lambda error: done(pages[0] if error is None else None, error))

    def close(self) -> None:
        """Finish what was submitted and let go of everything.

        Raises StoreHung where the disk does not finish it in CLOSE_SECONDS: then a thread holds all that there is, and
        only the end of the process lets go of it.
        """
        self._on_close()
        self._log.close()

    def _append(self, waiting: deque[Frame]) -> None:
        """The first job of several takes all their frames; the others find them written, or the log broken."""
        frames = []
        while waiting:
            frames.append(waiting.popleft())
        self._log.append(frames)
        if frames:
            self.syncs += 1
            self.synced_bytes += sum(len(frame.data) for frame in frames)

    def _checkpoint(self, checkpoint: Checkpoint) -> None:
        if CHECKS.on:
            check_order(self._checkpointed, checkpoint)
        self.base.write(checkpoint)
        if CHECKS.on and isinstance(self.base, LmdbState):
            self.base.check_invariants(checkpoint)
        self._checkpointed = checkpoint.meta
        if not checkpoint.meta.resyncing:
            self._log.reclaim(checkpoint.meta.applied.sequence, self._reclaim_before())


def open_store(
    directory: Path,
    *,
    cluster: str,
    node: str,
    settings: StoreSettings,
    post: Post,
    new_incarnation: Callable[[], str],
    now_ms: Callable[[], int],
    files: Files = REAL_FILES,
    cluster_id: str = "",
) -> Store:
    """Open the store of this node, or make one in an empty directory. On StoreError nothing is written.

    ``cluster_id``: the identity that stands in the coordination record. A new store gets it, one of format 1 takes it,
    and one of another cluster is refused. Empty: the store's own is not compared.
    """
    check_parts(directory, cluster, node, cluster_id)
    try:
        make_directory(directory)
    except OSError as error:
        raise explain(error, directory) from error
    lock = lock_directory(directory)
    try:
        # Once more: until it was locked, another process could set the store aside, and leave a node without what it
        # has acknowledged (``test_a_store_that_is_set_aside_before_it_is_locked_is_not_opened_as_it_was``).
        identity = check_parts(directory, cluster, node, cluster_id)
        if identity is None:
            identity = Identity(FORMAT_VERSION, cluster, node, new_incarnation(), cluster_id=cluster_id)
            make_store(directory, identity)
        else:
            (directory / "log").mkdir(exist_ok=True)
            check(directory / "state")
            if cluster_id and not identity.cluster_id:
                identity = adopt(directory, identity, cluster_id)
            _confirm_names(directory)
        return _opened(directory, identity, settings, post, now_ms, lock, files)
    except OSError as error:
        os.close(lock)
        raise explain(error, directory) from error
    except StoreError:
        os.close(lock)
        raise


def make_store(directory: Path, identity: Identity) -> None:
    """Make an empty store in a directory that is locked. Raises StoreError, OSError."""
    (directory / "log").mkdir(exist_ok=True)
    # The identity comes last: where it is, everything else is.
    LmdbState(directory / "state").close()
    REAL_FILES.sync_directory(directory / "state")
    _sync_parent(directory)
    create_identity(directory, identity)


def _confirm_names(directory: Path) -> None:
    """The process that made the store, or gave it an identity, may have been killed before the names were on the
    disk."""
    renew_directory(directory / "state")
    renew_directory(directory)
    _sync_parent(directory)


def _sync_parent(directory: Path) -> None:
    """Its own name too, where we may look at what it is in."""
    with suppress(PermissionError):
        REAL_FILES.sync_directory(directory.parent)


def check_parts(directory: Path, cluster: str, node: str, cluster_id: str = "") -> Identity | None:
    """Whose store this is, None if there is none; with all that belongs to it. Raises StoreError."""
    identity = check_identity(directory, cluster, node, cluster_id)
    if identity is not None and not (directory / "state" / "data.mdb").exists():
        raise StoreDamaged(f"{directory / 'state'} is gone; restore it or let the node rejoin with a new store")
    if identity is None and segment_firsts(directory / "log"):
        raise StoreError(f"{directory} holds a log without {directory / 'identity.json'}; restore that file")
    if identity is None and was_used(directory):
        raise StoreError(
            f"{directory} holds a queue state without {directory / 'identity.json'}; restore that file, or move "
            f"{directory / 'state'} away to begin without what it holds"
        )
    return identity


def _opened(
    directory: Path,
    identity: Identity,
    settings: StoreSettings,
    post: Post,
    now_ms: Callable[[], int],
    lock: int,
    files: Files,
) -> Store:
    state = LmdbState(directory / "state")
    workers = [Worker(name, post) for name in ("log-writer", "checkpoint-writer", "queue-reader")]
    writer, keeper, reader = workers

    def describe(first: int) -> SegmentInfo:
        return SegmentInfo(identity.cluster, identity.node, identity.incarnation, first, now_ms())

    def make_log(applied: Position) -> Log:
        return Log(directory / "log", describe, settings.segment_bytes, applied, files)

    def on_close() -> None:
        until = time.monotonic() + CLOSE_SECONDS
        if not all(each.stop(max(0.0, until - time.monotonic())) for each in workers):
            raise StoreHung(
                f"{directory} has not finished what it was to write within {CLOSE_SECONDS:g} s, so the node ends "
                "without it, as if it had been killed; look at the disk before you start the node again"
            )
        state.close()
        os.close(lock)

    retention = retention_of(
        directory / "log",
        settings.retention_seconds,
        lambda: now_ms() / 1000,
        lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        files,
    )
    return Store(identity.member, state, make_log, writer, keeper, reader, retention.removable_before, on_close)
