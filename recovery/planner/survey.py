"""Reading the stores of a cluster that is down: with the checks that its nodes would make, and no byte is changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ha.apply.replica import Replica, UnknownEvents
from recovery.planner.facts import BranchInDoubt, PromotedContents, StoreCondition, SurveyedStore
from recovery.reader.log_reader import LogReader
from recovery.store.identity import Identity, read_identity
from recovery.store.lmdb_state import LmdbState, check
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo, read_header, segment_firsts, segment_path
from txobserver.actions import FLAG, MEMBERS_FLAG
from txobserver.calls import CALL, CallRecord
from txobserver.events import Configure
from txobserver.frames import Frame, TornFrame
from txobserver.ids import Member, Position
from txobserver.ports.store import Loaded, StoreDamaged, StoreError
from txobserver.state.transaction_table import described
from txobserver.vhosts import shown_name


@dataclass(frozen=True)
class Surveyed:
    """A store, and what its last checkpoint holds beside the messages; None if that cannot be read."""

    facts: SurveyedStore
    directory: Path
    loaded: Loaded | None = None


def survey(node: str, directory: Path, cluster: str, cluster_id: str = "", deep: bool = False) -> Surveyed:
    """What is there of this node, which must not run. Raises StoreError for what this version cannot read.

    ``cluster_id``: the identity of the cluster, if it is known already. ``deep``: segments are read, too, that the node
    does not read when it starts.
    """
    found = _survey(node, directory, cluster, cluster_id)
    if found.loaded is None or found.facts.condition not in (StoreCondition.WHOLE, StoreCondition.DAMAGED):
        return found
    unread = _unread(directory / "log", found.facts.applied)
    if unread is None or not deep:
        return replace(found, facts=msgspec.structs.replace(found.facts, unread=unread))
    return replace(found, facts=msgspec.structs.replace(found.facts, rotten=_rot(directory, *unread)))


def _unread(log: Path, applied: Position) -> tuple[int, int] | None:
    """The events in segments that end in front of what the checkpoint leads on to."""
    firsts = segment_firsts(log)
    begin = max((first for first in firsts if first <= applied.sequence + 1), default=0)
    return (firsts[0], begin - 1) if firsts and begin > firsts[0] else None


def _rot(directory: Path, first: int, last: int) -> str:
    """Why these events cannot all be read; empty if they can."""
    read = first - 1
    try:
        for frame in LogReader(directory).frames(first):
            read = frame.last
            if read >= last:
                break
    except StoreDamaged as error:
        return f"{error} (events {read + 1} to {last} of the log were to be read; the node starts without them)"
    return ""


def _survey(node: str, directory: Path, cluster: str, cluster_id: str) -> Surveyed:
    try:
        if not directory.is_dir():
            return _nothing(node, directory, StoreCondition.MISSING, f"there is no {directory}")
        identity, fault = None, ""
        try:
            identity = read_identity(directory)
        except StoreDamaged as error:
            fault = str(error)
        owner = identity or _newest_header(directory)
        if owner is None and not fault:
            if not segment_firsts(directory / "log") and not (directory / "state" / "data.mdb").exists():
                return _nothing(node, directory, StoreCondition.EMPTY, "it holds no store")
        elif owner is not None and (owner.cluster, owner.node) != (cluster, node):
            why = f"it belongs to node {owner.node} of cluster {owner.cluster}"
            return _nothing(node, directory, StoreCondition.FOREIGN, why)
        elif identity is not None and (log := _newest_header(directory)) and _differ(log, identity):
            why = f"its log/ is that of node {log.node} of cluster {log.cluster}: put each log back where it belongs"
            return _nothing(node, directory, StoreCondition.FOREIGN, why)
        elif identity is not None and cluster_id and identity.cluster_id not in ("", cluster_id):
            held = _read(node, directory, identity.member, "")
            ours = f"(identity {identity.cluster_id}, not {cluster_id})"
            why = f"it belongs to another cluster that is also called {cluster} {ours}"
            has_data = held.facts.condition is not StoreCondition.EMPTY
            facts = SurveyedStore(
                node=node, condition=StoreCondition.FOREIGN, why=why, cluster_id=identity.cluster_id, has_data=has_data
            )
            return Surveyed(facts, directory)
        if identity is None and not fault:
            fault = f"{directory / 'identity.json'} is gone"
        member = Member(owner.node, owner.incarnation) if owner is not None else None
        found = _read(node, directory, member, fault)
        if identity is not None:
            facts = msgspec.structs.replace(
                found.facts,
                cluster_id=identity.cluster_id,
                rebuilt=found.facts.condition is StoreCondition.WHOLE and identity.is_as_rebuilt(found.facts.tail),
            )
            return Surveyed(facts, directory, found.loaded)
        return found
    except OSError as error:
        raise StoreError(f"{error.filename or directory} cannot be read: {error.strerror}") from error


def _differ(log: SegmentInfo, identity: Identity) -> bool:
    """Whether a log is another node's than the identity beside it says."""
    return (log.cluster, log.node) != (identity.cluster, identity.node)


def is_damaged(node: str, directory: Path) -> bool:
    """Whether there is a store of this node's that it would not start with, of whatever cluster. Raises StoreError."""
    owner = whose(directory)
    return survey(node, directory, owner.cluster if owner else "").facts.condition is StoreCondition.DAMAGED


def whose(directory: Path) -> Identity | SegmentInfo | None:
    """What says of which node and cluster a store is: its identity, or else its log; None if neither does.

    Raises StoreError for what this version cannot read, OSError.
    """
    identity = None
    with suppress(StoreDamaged):
        identity = read_identity(directory)
    return identity or _newest_header(directory)


def _nothing(node: str, directory: Path, condition: StoreCondition, why: str) -> Surveyed:
    return Surveyed(SurveyedStore(node=node, condition=condition, why=why), directory)


def _newest_header(directory: Path) -> SegmentInfo | None:
    """Whose log it is, as the newest of its segments says whose header is whole."""
    for first in reversed(segment_firsts(directory / "log")):
        with suppress(FileNotFoundError, TornFrame, StoreDamaged):
            return read_header(segment_path(directory / "log", first))[0]
    return None


def _read(node: str, directory: Path, member: Member | None, fault: str) -> Surveyed:
    loaded: Loaded | None = None
    begun, identity_fault = False, fault
    try:
        loaded, begun = _load(directory / "state")
    except StoreDamaged as error:
        fault = fault or str(error)
    applied = loaded.meta.applied if loaded else Position(0, 0)
    history = list(loaded.meta.history) if loaded else []
    raised = loaded is not None and MEMBERS_FLAG in loaded.meta.calls.names_of(FLAG)
    if loaded is not None and loaded.meta.resyncing and not fault:
        facts = SurveyedStore(
            node=node,
            condition=StoreCondition.RESYNCING,
            why="a primary was overwriting it; it can only be copied again",
            member=member,
            tail=applied,
            applied=applied,
            history=tuple(history),
            may_change_members=raised,
        )
        return Surveyed(facts, directory, loaded)
    tail, complete = applied, True
    state_fault = fault if loaded is None and not identity_fault else ""
    try:
        for frame in behind(directory, applied if loaded else None, begun):
            if not history or frame.generation > history[-1].generation:
                history.append(Position(frame.generation, frame.first))
            tail = frame.position
            raised = raised or _raises_members_flag(frame)
    except StoreDamaged as error:
        fault, complete = fault or str(error), False
    facts = SurveyedStore(
        node=node,
        condition=StoreCondition.DAMAGED if fault else StoreCondition.WHOLE if tail.sequence else StoreCondition.EMPTY,
        why=fault or ("" if tail.sequence else "nothing was ever written to it"),
        member=member,
        tail=tail,
        applied=applied,
        history=tuple(history),
        complete=complete and (loaded is not None or tail.sequence > 0),
        log_alone=bool(state_fault) and complete and tail.sequence > 0 and segment_firsts(directory / "log")[:1] == [1],
        may_change_members=raised,
    )
    return Surveyed(facts, directory, loaded)


def _raises_members_flag(frame: Frame) -> bool:
    """Few frames hold a call, and no other is decoded. One of a later version is refused when its store is read."""
    if CALL.encode() not in frame.data:
        return False
    try:
        steps = [each for each in frame.events() if isinstance(each, Configure) and each.operation == CALL]
        flags = [msgspec.msgpack.decode(each.arguments, type=CallRecord) for each in steps if each.name == FLAG]
    except ValueError:
        return False
    return any(each.name == MEMBERS_FLAG for each in flags)


def _load(state: Path) -> tuple[Loaded, bool]:
    """The last checkpoint, checked as at the start of a node, and whether a log leads on from it.

    Raises StoreDamaged, StoreError.
    """
    if not (state / "data.mdb").exists():
        raise StoreDamaged(f"{state} is gone")
    check(state)
    with _opened(state) as base:
        return base.load(), base.log_begun


@contextmanager
def _opened(state: Path) -> Iterator[LmdbState]:
    base = LmdbState(state, read_only=True)
    try:
        yield base
    finally:
        base.close()


def behind(directory: Path, applied: Position | None, begun: bool = False) -> Iterator[Frame]:
    """The frames of a log behind its checkpoint, or all of them; the same that a node reads when it starts.

    ``begun``: whether the checkpoint's store says that there is a log. Raises StoreDamaged, StoreError.
    """
    firsts = segment_firsts(directory / "log")
    before = applied if applied is not None else Position(0, firsts[0] - 1 if firsts else 0)

    def describe(first: int) -> SegmentInfo:
        raise AssertionError("nothing is written")

    yield from Log(directory / "log", describe, 1, before).inspect(before, begun)


def contents_of(surveyed: Surveyed) -> PromotedContents:
    """What a whole store leads to when everything in its log counts, as it does when its node is promoted."""
    assert surveyed.loaded is not None
    with _opened(surveyed.directory / "state") as base:
        replica = Replica(base, *surveyed.loaded)
        for frame in behind(surveyed.directory, surveyed.loaded.meta.applied):
            try:
                replica.restore(frame)
            except UnknownEvents as error:
                raise StoreError(f"{surveyed.directory}: {error}; use the version that wrote it") from None
        replica.apply(replica.tail.sequence)
        contents = replica.contents
        names = {spec.number: shown_name(spec.name) for spec in contents.configuration.queues.values()}
        branches = []
        for buffer in contents.table.prepared.values():
            each = described(buffer)
            puts = {names.get(queue, str(queue)): count for queue, count in each.enqueues.items()}
            takes = {names.get(queue, str(queue)): len(entries) for queue, entries in each.locked.items()}
            branches.append(BranchInDoubt(xid=each.xid, prepared_ms=each.prepared_ms, puts=puts, takes=takes))
        outcomes = contents.table.outcomes
        queues = {name: contents.queues.summary(number) for number, name in names.items()}
        return PromotedContents(
            branches=tuple(branches),
            globally={name: each.commit for name, each in outcomes.globals.items()},
            heuristic={xid: each.commit for xid, each in outcomes.heuristics.items()},
            queues={name: (summary.count, summary.digest) for name, summary in sorted(queues.items())},
            open_transactions=len(replica.buffers) - len(branches),
        )
