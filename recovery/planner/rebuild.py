"""A new node's store, made from the events of the stream instead of being copied from a primary.

The events go through the code that nodes apply them with (``ha.apply.replica``), and reach the queue state in portions,
as a node's checkpoints do: memory holds one portion and the open transactions, however long the stream is. What has not
certainly passed the commit point is not applied; it becomes the log of the new store, and its node holds it back until
a primary says that it counts.

Everything is made in ``rebuilding/`` below the new node's directory, its identity last. Then the parts are moved into
their places, the identity last again: no node can start with half of it, and a run that was killed begins anew, or goes
on moving (``recovery.planner.rebuild_note`` says which).
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec

from ha.apply.replica import Replica
from recovery.planner.rebuild_note import PARTS, Making, is_half_moved, note
from recovery.reader.log_reader import LogReader
from recovery.store.aside import REBUILDING
from recovery.store.crash_points import crash_point
from recovery.store.files import REAL_FILES, explain, make_directory
from recovery.store.identity import Identity, create_identity, lock_directory
from recovery.store.lmdb_state import LmdbState, check
from recovery.store.log import Log, LogReclaimed
from recovery.store.segment import SegmentInfo, segment_firsts
from recovery.store.store import StoreSettings
from txobserver.events import Event
from txobserver.frames import Frame
from txobserver.ids import Position
from txobserver.ports.store import StoreError
from txobserver.table import IllegalTransition
from txobserver.vhosts import shown_name

PORTION_BYTES = 64 << 20
"""Of changes, between two checkpoints; the same as a node's default."""
PORTION_EVENTS = 100_000
GROUP_BYTES = 8 << 20

Located = tuple[Position, Event]
Progress = Callable[[int], None]
"""Told the sequence up to which events are in the new store."""


@dataclass(frozen=True)
class Rebuilt:
    """The new store: up to where it is applied, where its log ends, (messages, digest) of each queue by its name."""

    applied: Position
    tail: Position
    queues: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class OutcomeLimits:
    """How many outcomes the cluster remembers, and for how long: its ``outcomes_kept`` and ``outcome_seconds``."""

    kept: int = 100_000
    seconds: float = 86_400.0


def rebuild(
    into: Path,
    identity: Identity,
    archive: Iterable[Located],
    log: Path | None,
    commit: int,
    outcomes: OutcomeLimits = OutcomeLimits(),
    progress: Progress = lambda sequence: None,
    portion_events: int = PORTION_EVENTS,
    archive_name: str = "",
) -> Rebuilt:
    """Make the store of a node that has none, in ``into``, whose name and cluster are ``identity``'s.

    ``archive``: the events from the first on, as far as there are any; all have passed the commit point. ``log``: the
    directory of a node whose log goes on behind them, and of which what is up to ``commit`` has passed the commit
    point. ``archive_name``: what tells the archive from another one. Raises StoreError, with one sentence, for a gap or
    for what cannot follow, and leaves nothing then; also for a directory that holds another store.
    """
    work = into / REBUILDING
    making = Making(
        cluster=identity.cluster,
        cluster_id=identity.cluster_id,
        node=identity.node,
        incarnation=identity.incarnation,
        log=str(log.absolute()) if log is not None else "",
        archive=archive_name,
        outcomes_kept=outcomes.kept,
        outcome_seconds=outcomes.seconds,
    )
    try:
        new = not into.exists()
        make_directory(into)
        lock = lock_directory(into)
        try:
            if not is_half_moved(into, making):
                shutil.rmtree(work, ignore_errors=True)
                try:
                    note(into, making)
                    _build(work, identity, archive, log, commit, outcomes, progress, portion_events)
                except (StoreError, OSError):
                    shutil.rmtree(into if new else work, ignore_errors=True)
                    raise
            _move(into)
        finally:
            os.close(lock)
    except OSError as error:
        raise explain(error, Path(error.filename or into)) from error
    return _describe(into)


def _build(
    work: Path,
    identity: Identity,
    archive: Iterable[Located],
    log: Path | None,
    commit: int,
    outcomes: OutcomeLimits,
    progress: Progress,
    portion_events: int,
) -> None:
    (work / "log").mkdir()
    state = LmdbState(work / "state")
    try:
        replica = Replica(state, *state.load())
        replica.contents.table.outcomes.keep(outcomes.kept, outcomes.seconds)
        events = archive if log is None else chain(archive, _behind(log, replica, commit))
        _apply(replica, state, events, progress, portion_events)
        applied = replica.tail
    finally:
        state.close()
    if not applied.sequence and (log is None or not _begins_at_first(log)):
        raise StoreError("there is no event that could be applied: neither an archive, nor a log up to a commit point")
    check(work / "state")
    tail = _copy_log(work / "log", identity, () if log is None else _frames(log, applied.sequence + 1), applied)
    state = LmdbState(work / "state")
    try:
        state.confirm(log_begun=True)
    finally:
        state.close()
    REAL_FILES.sync_directory(work / "state")
    create_identity(work, msgspec.structs.replace(identity, rebuilt=tail))


def _begins_at_first(log: Path) -> bool:
    """Whether a log goes on from nothing: then its events need not be applied here, and wait for a primary's word."""
    firsts = segment_firsts(log / "log")
    return firsts[:1] == [1] and next(_frames(log, 1), None) is not None


def _apply(
    replica: Replica, state: LmdbState, events: Iterable[Located], progress: Progress, portion_events: int
) -> None:
    """Take events that have passed the commit point, and write them in portions."""
    count = 0
    for position, event in events:
        _take(replica, position, event)
        count += 1
        if count % 1000 == 0 or count >= portion_events:
            replica.durable = position.sequence
            replica.apply(position.sequence)
            if count >= portion_events or replica.contents.dirty_bytes >= PORTION_BYTES:
                _write(replica, state, progress)
                count = 0
    if count:
        replica.durable = replica.tail.sequence
        replica.apply(replica.tail.sequence)
        _write(replica, state, progress)


def _take(replica: Replica, position: Position, event: Event) -> None:
    before = replica.tail
    if position.sequence != before.sequence + 1:
        raise StoreError(_gap(before.sequence + 1, position.sequence))
    if position.generation < before.generation:
        raise StoreError(f"the event {position} cannot follow {before}: the two are of different histories")
    try:
        replica.append(position.generation, event)
    except (ValueError, IllegalTransition) as error:
        raise StoreError(f"the event {position} cannot be: {error}") from None


def _gap(expected: int, found: int) -> str:
    if found < expected:
        return f"the event {found} comes twice, or out of order: {expected} was to come"
    return f"the events {expected} to {found - 1} are in neither the archive nor the log"


def _write(replica: Replica, state: LmdbState, progress: Progress) -> None:
    state.write(replica.checkpoint())
    replica.checkpoint_written()
    progress(replica.tail.sequence)


def _behind(log: Path, replica: Replica, commit: int) -> Iterator[Located]:
    """The events of a log behind what the replica has by now, up to ``commit``, if they are of the same history."""
    tail = replica.tail
    for frame in chain(_joint(log, tail), _frames(log, tail.sequence + 1)):
        for offset, event in enumerate(frame.events()):
            position = Position(frame.generation, frame.first + offset)
            if position.sequence == tail.sequence and position != tail:
                raise StoreError(f"the archive ends at {tail}, and the log holds {position} there: another history")
            if tail.sequence < position.sequence <= commit:
                yield position, event
        if frame.last >= commit:
            return


def _joint(log: Path, tail: Position) -> Iterator[Frame]:
    """The frame with the last archived event, if the log still holds that."""
    firsts = segment_firsts(log / "log")
    if tail.sequence and firsts and firsts[0] <= tail.sequence:
        for frame in LogReader(log).frames(tail.sequence):
            if frame.last == tail.sequence:
                yield frame  # else the frame goes on behind it, and is read there
            return


def _frames(log: Path, first: int) -> Iterator[Frame]:
    try:
        yield from LogReader(log).frames(first)
    except LogReclaimed:
        begins = segment_firsts(log / "log")[0]
        raise StoreError(f"{_gap(first, begins)}: the log of {log} begins at {begins}") from None


def _copy_log(directory: Path, identity: Identity, frames: Iterable[Frame], applied: Position) -> Position:
    """What is behind the applied event, byte for byte, in segments of the new store; one without a frame otherwise.

    Returns where the stream that the store holds ends.
    """
    now = time.time_ns() // 1_000_000

    def describe(first: int) -> SegmentInfo:
        return SegmentInfo(identity.cluster, identity.node, identity.incarnation, first, now)

    def begun(before: Position) -> Log:
        made = Log(directory, describe, StoreSettings().segment_bytes, before)
        made.begin(before)
        return made

    log: Log | None = None
    group: list[Frame] = []
    size = 0
    tail = applied
    for frame in frames:
        if frame.generation < applied.generation:
            raise StoreError(f"the log's {frame.position} cannot follow {applied}: the two are of different histories")
        log = log or begun(Position(0, frame.first - 1))
        group.append(frame)
        size += len(frame.data)
        tail = frame.position
        if size >= GROUP_BYTES:
            log.append(group)
            group, size = [], 0
    log = log or begun(applied)
    log.append(group)
    log.close()
    return tail


def _move(into: Path) -> None:
    """Put the parts in their places, each durably before the next: also a power cut leaves them in this order."""
    work = into / REBUILDING
    for part in PARTS:
        if (work / part).exists():
            (work / part).rename(into / part)
            REAL_FILES.sync_directory(into)
            REAL_FILES.sync_directory(work)
            crash_point("rebuild.part-moved")
    shutil.rmtree(work)


def _describe(into: Path) -> Rebuilt:
    state = LmdbState(into / "state", read_only=True)
    try:
        meta = state.load().meta
    finally:
        state.close()
    tail = meta.applied
    for frame in LogReader(into).frames(next(iter(segment_firsts(into / "log")), 1)):
        tail = max(tail, frame.position)
    names = {spec.number: shown_name(name) for name, spec in meta.configuration.queues.items()}
    queues = {names[number]: (each.count, each.digest) for number, each in meta.summaries.items() if number in names}
    return Rebuilt(meta.applied, tail, queues)
