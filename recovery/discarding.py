"""Giving a store up, so that its node comes back as a new member: what is given up, why it must not be, and doing it.

Nothing is deleted: the store is renamed into ``discarded-<time>`` in its directory (``recovery.aside``).
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from ha.coordination import Coordination, CoordinationError, Record
from recovery.aside import PARTS, set_aside
from recovery.files import explain
from recovery.planner.facts import Condition, Store
from recovery.planner.survey import Surveyed, contents_of, survey
from txobserver.store import StoreError

STEM = "discarded"


class GivenUp(msgspec.Struct, frozen=True, kw_only=True):
    """What a store holds.

    ``queues``: messages by name, as far as they can be known. ``ready``: whether the record lists it; ``others``: the
    nodes that it lists beside it; ``generation``: of the record.
    """

    store: Store
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
    if surveyed.facts.condition is Condition.FOREIGN:
        raise StoreError(f"{directory}: {surveyed.facts.why}")
    member, record = surveyed.facts.member, _record(coordination, cluster, node)
    ready = member is not None and member in record.ready
    others = tuple(each.node for each in record.ready if each != member)
    if ready and not others:
        raise StoreError(
            f"{node} is the only member of the ready set, and may alone hold what was acknowledged: promote another "
            "node with `txha promote --accept-data-loss` first, or ask `txha recover`"
        )
    queues = _queues(surveyed)
    return GivenUp(store=surveyed.facts, queues=queues, ready=ready, others=others, generation=record.generation)


def discard(directory: Path) -> Path:
    """Set the store in this directory, which is locked, aside; returns where it is then. Raises StoreError."""
    try:
        aside = set_aside(directory, STEM, lambda: _name(directory), "discard.part-set-aside")
    except OSError as error:
        raise explain(error, directory) from error
    if aside is None:
        raise StoreError(f"{directory} holds no store: there is nothing to discard")
    return aside


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
    if surveyed.facts.condition is Condition.WHOLE:
        return {name: count for name, (count, _) in contents_of(surveyed).queues.items()}
    if surveyed.loaded is None:
        return {}
    meta = surveyed.loaded.meta
    names = {spec.number: spec.name for spec in meta.configuration.queues.values()}
    return {names[number]: each.count for number, each in meta.summaries.items() if number in names}
