"""Carrying a plan out, so that behind a run that is killed in the middle another one finishes the same plan.

The plan's actions are written down before the first is carried out. From then on ``unfinished`` finds them, and no new
plan is made from stores that are half changed, unless what is there is no longer what the plan was made for
(``overtaken``): then it is given up, and kept. Every action does nothing if it has been done. Nothing is ever
deleted and no log says anything else: a store is set aside by renaming its parts, its identity last.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from ha.membership.record import CasConflict, Coordination, CoordinationError, RecordStore
from recovery.planner.plan import Action, SetAside, SetRecordAside, TakeOut, WriteRecord
from recovery.planner.survey import is_damaged
from recovery.store.aside import set_aside
from recovery.store.crash_points import crash_point
from recovery.store.durable import make_durable
from recovery.store.files import REAL_FILES, explain
from recovery.store.identity import lock_directory, read_identity
from txobserver.ids import Member
from txobserver.ports.store import StoreBusy, StoreDamaged, StoreError

JOURNAL = "unfinished-recovery.json"
"""Beside the coordination record, while a plan is being carried out"""
KEPT = "recovery"
"""Then it is called ``recovery-1.json`` and so on."""
GIVEN_UP = "overtaken-recovery"
"""The same for a plan that was given up before its record was written"""
ASIDE = "set-aside"


class PlanProgress(StrEnum):
    """How far a plan is, whose record may count one day: from then on what it loses is lost."""

    PLANNED = "planned"
    """No run has written its record, or it has none."""
    WRITING = "writing"
    """A run was about to, and may have; or an earlier version of txha carried it out, which did not note it."""
    WRITTEN = "written"


class Journal(msgspec.Struct, frozen=True):
    """The actions of a plan, what the operator was shown of it, and how far it is."""

    actions: tuple[Action, ...]
    report: dict[str, Any]
    progress: PlanProgress = PlanProgress.WRITING

    @property
    def counts(self) -> bool:
        """Whether a plan that is kept is known to have taken effect: an overtaken one has if its record was written."""
        return "overtaken" not in self.report or self.progress is PlanProgress.WRITTEN


class ClusterPaths(msgspec.Struct, frozen=True):
    """Where things are: the nodes' directories, and the ``record`` of this cluster."""

    directories: Mapping[str, Path]
    cluster: str
    record: RecordStore

    def open_record(self) -> Coordination:
        """To write the record, also where there is no store yet."""
        return self.record.open(self.cluster, create=True)

    @property
    def journal(self) -> Path:
        """The file that tells of a plan in the middle."""
        return self.record.notes / JOURNAL


@contextmanager
def no_node_runs(directories: Mapping[str, Path], change: bool) -> Iterator[None]:
    """Keep nodes from starting. Raises StoreError if one runs.

    ``change``: make directories and lock files where there are none, so that no new node starts there either.
    """
    with ExitStack() as stack:
        for name, directory in sorted(directories.items()):
            if change:
                with suppress(OSError):
                    directory.mkdir(exist_ok=True)
            if not directory.is_dir() or not (change or (directory / "lock").exists()):
                continue
            try:
                descriptor = lock_directory(directory, create=change)
            except StoreBusy:
                raise StoreError(f"{name} is running: {directory} is in use; stop all of the cluster first") from None
            stack.callback(os.close, descriptor)
        yield


def unfinished(places: ClusterPaths) -> Journal | None:
    """The plan that a run was carrying out and did not finish. Raises StoreError if it cannot be read."""
    return _read(places.journal) if places.journal.exists() else None


def finished(places: ClusterPaths) -> list[Journal]:
    """The plans that were carried out here, the oldest first. Raises StoreError if one cannot be read."""
    found = []
    number = 1
    while (path := places.record.notes / f"{KEPT}-{number}.json").exists():
        found.append(_read(path))
        number += 1
    return found


def last(places: ClusterPaths) -> tuple[Path, Journal] | None:
    """The plan that was carried out last, and where it is kept. Raises StoreError if one cannot be read."""
    plans = finished(places)
    return (places.record.notes / f"{KEPT}-{len(plans)}.json", plans[-1]) if plans else None


def note(path: Path, journal: Journal) -> None:
    """Keep a plan that was carried out with what has become known since. Raises StoreError."""
    try:
        _write(path, journal)
    except OSError as error:
        raise explain(error, path) from error


def give_up(journal: Journal, places: ClusterPaths, why: str) -> Path:
    """Keep an unfinished plan that was overtaken, with a sentence; returns where. Raises StoreError.

    If its record counted, or may have, what it says of losses is remembered as that of a plan that was carried out.
    """
    try:
        _write(places.journal, msgspec.structs.replace(journal, report={**journal.report, "overtaken": why}))
        return _keep(places, GIVEN_UP if journal.progress is PlanProgress.PLANNED else KEPT)
    except OSError as error:
        raise explain(error, Path(error.filename or places.record.notes)) from error


def _keep(places: ClusterPaths, stem: str) -> Path:
    """Give the journal its place among the plans of before; returns that."""
    kept = _next(places.record.notes, stem, ".json")
    places.journal.rename(kept)
    REAL_FILES.sync_directory(places.record.notes)
    return kept


def check_directories(journal: Journal, places: ClusterPaths) -> None:
    """Raises StoreError, with nothing done, if the plan needs the directory of a node that was not given."""
    needed = {action.node for action in journal.actions if isinstance(action, SetAside)}
    for action in journal.actions:
        if isinstance(action, WriteRecord):
            needed |= {member.node for member in action.record.ready}
        elif isinstance(action, TakeOut):
            needed.add(action.left.node)
    if not (lacking := sorted(needed - places.directories.keys())):
        return
    were = journal.report.get("directories", {})
    named = " and ".join(f"{node} (it was {were[node]})" if node in were else node for node in lacking)
    raise StoreError(
        f"a plan is in the middle of being carried out ({places.journal}), and it needs the directory of {named}: "
        "name that, too"
    )


def carry_out(journal: Journal, places: ClusterPaths) -> Path:
    """Begin, or go on with, these actions; returns where the finished plan is kept. No node runs. Raises StoreError."""
    check_directories(journal, places)
    try:
        if not places.journal.exists():
            journal = _noted(journal, PlanProgress.PLANNED, places)
        crash_point("recover.plan-written")
        for action in journal.actions:
            journal = _do(action, journal, places)
            crash_point("recover.action-done")
        return _keep(places, KEPT)
    except OSError as error:
        raise explain(error, Path(error.filename or places.record.notes)) from error


def _do(action: Action, journal: Journal, places: ClusterPaths) -> Journal:
    """Returns the plan with what is noted of it."""
    if isinstance(action, WriteRecord):
        return _write_record(action, journal, places)
    if isinstance(action, TakeOut):
        _take_out(action, places)
    elif isinstance(action, SetRecordAside):
        _set_record_aside(places)
    else:
        _set_aside(action, places.directories[action.node])
    return journal


def _write_record(action: WriteRecord, journal: Journal, places: ClusterPaths) -> Journal:
    """By compare-and-set, unless it is there. One that is neither it nor the expected one has overtaken the plan.

    The stores that it names are made durable first: a node that was killed may have written what it had not synced,
    and a power cut would take that from who alone counts then (``record_written_from_what_is_not_on_the_disk``). That
    it is written is noted in the plan, before and behind it: a record that has gone on since may have done so without
    it, in the same generation (``begun_though_never_written``).
    """
    with _record_of(places) as store:
        if store.read() != action.record:
            for member in action.record.ready:
                _check_whose(member, places)
                make_durable(places.directories[member.node])
            journal = _noted(journal, PlanProgress.WRITING, places)
            store.compare_and_set(action.expected, action.record)
    return _noted(journal, PlanProgress.WRITTEN, places)


def _take_out(action: TakeOut, places: ClusterPaths) -> None:
    with _record_of(places) as store:
        if store.read() != action.record:
            store.compare_and_set(action.expected, action.record)


@contextmanager
def _record_of(places: ClusterPaths) -> Iterator[Coordination]:
    """To change it. Raises StoreError."""
    store = places.open_record()
    try:
        yield store
    except CasConflict as error:
        raise StoreError(
            f"the coordination record cannot be written: {error}, so it has been changed since the plan was made; "
            "run `txha recover` again for a new plan"
        ) from error
    except CoordinationError as error:
        raise StoreError(f"the coordination record cannot be written: {error}") from error
    finally:
        store.close()


def _check_whose(member: Member, places: ClusterPaths) -> None:
    """Whether the store that is to count is there. Raises StoreError."""
    directory = places.directories[member.node]
    identity = read_identity(directory)
    if identity is None or identity.member != member:
        there = f"that of {identity.member}" if identity else "none"
        raise StoreError(
            f"the coordination record is not written: the store in {directory} was to count as that of {member}, and "
            f"there is {there} now; run `txha recover` again for a new plan"
        )


def _set_record_aside(places: ClusterPaths) -> None:
    """Unless it can be read: then it is the one that was written in its place.

    A store that gives no answer is an error: its record may be a good one.
    """
    with _record_of(places) as store:
        if store.snapshot().damage:
            places.record.set_aside()


def _set_aside(action: SetAside, directory: Path) -> None:
    if not is_damaged(action.node, directory):
        return  # it has been restored, or it is aside already
    try:
        identity = read_identity(directory)
    except StoreDamaged:
        identity = None
    # One whose incarnation could not be read, and that has one now, is no longer the store that was damaged either.
    if identity is not None and identity.incarnation != action.incarnation:
        return  # a new store has taken its place
    set_aside(directory, ASIDE, lambda: _next(directory, ASIDE, "").name, "recover.part-set-aside")


def _next(directory: Path, stem: str, suffix: str) -> Path:
    """The first name that is free: stem-1, stem-2, …"""
    number = 1
    while (path := directory / f"{stem}-{number}{suffix}").exists():
        number += 1
    return path


def _read(path: Path) -> Journal:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Journal)
    except (msgspec.DecodeError, OSError) as error:
        raise StoreError(f"{path} cannot be read: {error}; move it away to make a new plan") from None


def _noted(journal: Journal, progress: PlanProgress, places: ClusterPaths) -> Journal:
    """The unfinished plan, which says from then on that it is so far."""
    if journal.progress is progress and places.journal.exists():
        return journal
    journal = msgspec.structs.replace(journal, progress=progress)
    _write(places.journal, journal)
    return journal


def _write(path: Path, journal: Journal) -> None:
    """Whole or not at all, and on disk."""
    temporary = path.with_name(path.name + ".new")
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(journal), indent=2))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    REAL_FILES.sync_directory(path.parent)
