"""Giving a store up, so that its node comes back as a new member: what is given up, why it must not be, and doing it.

Nothing is deleted: the store is renamed into ``discarded-<time>`` in its directory (``recovery.store.aside``). Before
that, the member is taken out of the ready set by compare-and-set: a record that went on listing it would say of the
next store that another one is left (PROTOCOL, "Who is primary").
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from ha.membership.record import CasConflict, Coordination, CoordinationError, Record
from recovery.planner.facts import StoreCondition, SurveyedStore
from recovery.planner.survey import Surveyed, contents_of, survey
from recovery.store.aside import PARTS, set_aside
from recovery.store.crash_points import crash_point
from recovery.store.files import explain
from txobserver.ids import Member
from txobserver.ports.store import StoreError
from txobserver.vhosts import shown_name

STEM = "discarded"
ATTEMPTS = 100
"""So often the record is read again that a primary has changed in between."""


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds.

    ``queues``: messages by name, as far as they can be known. ``ready``: whether the record lists it; ``others``: the
    nodes that it lists beside it; ``generation``: of the record.
    """

    store: SurveyedStore
    queues: dict[str, int]
    ready: bool
    others: tuple[str, ...]
    generation: int

    @property
    def messages(self) -> int:
        """In all queues together."""
        return sum(self.queues.values())


def look(directory: Path, cluster: str, node: str, coordination: Coordination) -> GivenUp:
    """What would be given up, of a node that does not run.

    Raises StoreError where it must not be, or there is none.
    """
    if not any((directory / part).exists() for part in PARTS):
        raise StoreError(f"{directory} holds no store: there is nothing to discard")
    surveyed = survey(node, directory, cluster)
    if surveyed.facts.condition is StoreCondition.FOREIGN:
        raise StoreError(f"{directory}: {surveyed.facts.why}")
    record = _record(coordination, cluster, node)
    _refuse_stranger(record, surveyed.facts, directory)
    listed = _listed(record, surveyed.facts, node)
    return GivenUp(
        store=surveyed.facts,
        queues=_queues(surveyed),
        ready=bool(listed),
        others=_others(record, listed, node),
        generation=record.generation,
    )


def discard(directory: Path, cluster: str, found: GivenUp, coordination: Coordination) -> Path:
    """Take the member out of the ready set, then set its store aside; returns where that is then.

    ``directory`` is locked, and ``found`` what ``look`` found there. Done again after a crash, it goes on. Raises
    StoreError, and then nothing of the store is undone if the member could not be taken out.
    """
    _leave(cluster, found.store, coordination)
    crash_point("discard.left-ready-set")
    try:
        aside = set_aside(directory, STEM, lambda: _name(directory), "discard.part-set-aside")
    except OSError as error:
        raise explain(error, directory) from error
    if aside is None:
        raise StoreError(f"{directory} holds no store: there is nothing to discard")
    return aside


def _leave(cluster: str, store: SurveyedStore, coordination: Coordination) -> None:
    """Take the member out of the ready set; a primary that renews its lease meanwhile goes on from there.

    Also one that is not listed: a change of the primary's that adds it may be on its way, and would land behind the
    reading. It expects the version that was read, so another version is what keeps it out
    (``discarded_while_an_addition_is_on_its_way``).
    """
    for _ in range(ATTEMPTS):
        record = _record(coordination, cluster, store.node)
        listed = _listed(record, store, store.node)
        _others(record, listed, store.node)
        ready = tuple(member for member in record.ready if member not in listed)
        try:
            coordination.compare_and_set(record.version, msgspec.structs.replace(record, ready=ready))
        except CasConflict:
            continue
        except CoordinationError as error:
            raise StoreError(
                f"whether {store.node} is out of the ready set cannot be known: {error}; its store is untouched, "
                "run `txha discard` again"
            ) from error
        return
    raise StoreError(
        f"the coordination record changes all the time, so {store.node} cannot be taken out of the ready set: "
        "run `txha discard` again"
    )


def _refuse_stranger(record: Record, store: SurveyedStore, directory: Path) -> None:
    """Raises StoreError for a store that another cluster than the record's may need, of the same name."""
    if store.condition is not StoreCondition.EMPTY and store.cluster_id and store.cluster_id != record.cluster_id:
        raise StoreError(
            f"{store.node}'s store belongs to the cluster of identity {store.cluster_id}, and the record to that of "
            f"{record.cluster_id or 'none'}, whose nodes may have nothing of it: name the right `coordination`; if the "
            "record was founded over a lost one, stop all nodes, move its file away and let `txha recover` write a new "
            f"one; if the store shall be given up all the same, move {directory} away"
        )


def _listed(record: Record, store: SurveyedStore, node: str) -> frozenset[Member]:
    """As which members the record lists this store: as any of its node, if the store does not say which it is."""
    return frozenset(m for m in record.ready if m == store.member or (store.member is None and m.node == node))


def _others(record: Record, listed: frozenset[Member], node: str) -> tuple[str, ...]:
    """The nodes of the other members of the ready set. Raises StoreError if the record lists this store alone."""
    others = tuple(member.node for member in record.ready if member not in listed)
    if listed and not others:
        raise StoreError(
            f"{node} is the only member of the ready set, and may alone hold what was acknowledged: promote another "
            "node with `txha promote --accept-data-loss` first, or ask `txha recover`"
        )
    return others


def _name(directory: Path) -> str:
    """One that is free."""
    stem = name = f"{STEM}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    number = 1
    while (directory / name).exists():
        number += 1
        name = f"{stem}-{number}"
    return name


def _record(coordination: Coordination, cluster: str, node: str) -> Record:
    """The record, which says whether the store is needed. Raises StoreError."""
    try:
        record = coordination.read()
    except CoordinationError as error:
        raise StoreError(f"whether {node}'s store is needed cannot be known: {error}") from error
    if record is None:
        raise StoreError(
            f"there is no coordination record of cluster {cluster}, so {node}'s store may alone hold what was "
            "acknowledged: write a new record with `txha recover` first"
        )
    return record


def _queues(surveyed: Surveyed) -> dict[str, int]:
    """Of a whole store as of the end of its log, of another one as of its checkpoint, if that can be read."""
    if surveyed.facts.condition is StoreCondition.WHOLE:
        return {name: count for name, (count, _) in contents_of(surveyed).queues.items()}
    if surveyed.loaded is None:
        return {}
    meta = surveyed.loaded.meta
    names = {spec.number: shown_name(spec.name) for spec in meta.configuration.queues.values()}
    return {names[number]: each.count for number, each in meta.summaries.items() if number in names}
