"""Whether a plan that was cut short is still the plan for what is there: stores or the record may have changed in
between.

An operator who starts the nodes, restores a file or gives a store up makes the plan one for other stores. What it says
of losses and of whom to set aside need not be true any more: the store that it found damaged may be the only one that
counts (``a_plan_cut_short_is_finished_on_other_stores``). So the rest is carried out only if the record is the one that
the plan writes, and the stores that count by it are there, or if record and stores are as they were found. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ha.membership.record import Record
from recovery.planner.apply import Journal, PlanProgress
from recovery.planner.facts import RecordState, Site, StoreCondition, SurveyedStore
from recovery.planner.plan import SetAside, SetRecordAside, TakeOut, WriteRecord
from txobserver.ids import Member, Position

_NOT_THERE = (StoreCondition.EMPTY, StoreCondition.MISSING)
"""The same here: the run that carries a plan out makes the directories that are missing."""


def overtaken(journal: Journal, site: Site) -> str:
    """Why the rest of the plan must not be carried out, as the end of a sentence; empty if it may be.

    Of nodes whose directories were not given nothing is compared.
    """
    rows = {row["node"]: row for row in journal.report["stores"]}
    written = _writes(journal)
    if written is not None and site.record == written:
        return _counted_lost(written, rows, site)
    if not _record_as_found(journal, site):
        return "the coordination record is neither the one that it was made for nor the one that it writes"
    leaves = {action.node for action in journal.actions if isinstance(action, SetAside)}
    for store in site.stores:
        row = rows.get(store.node)
        same = _damaged_as_found(row, store) if store.node in leaves else _store_as_found(row, store)
        if not same:
            return f"the store of {store.node} is not as it was found: {_now(row, store)}"
    return ""


def progress_of(journal: Journal, site: Site) -> PlanProgress:
    """How far a plan came that was overtaken. If its record may have counted, its losses may be losses."""
    written = _writes(journal)
    if written is None:
        return PlanProgress.PLANNED
    if site.record == written or journal.progress is PlanProgress.WRITTEN:
        return PlanProgress.WRITTEN
    if journal.progress is PlanProgress.PLANNED or _never_written(journal, written, site):
        return PlanProgress.PLANNED
    return PlanProgress.WRITING


def _never_written(journal: Journal, written: Record, site: Site) -> bool:
    """Whether the record that is there cannot have come behind this one: none of these ever falls.

    A generation does not say it: the next promotion has the same if the plan was killed before its record.
    """
    now = site.record
    if now == _found(journal):
        return True
    if now is None:
        return False
    fallen = now.generation < written.generation or now.loss_accepted < written.loss_accepted
    return fallen or now.version <= written.version


def _writes(journal: Journal) -> Record | None:
    return next((action.record for action in journal.actions if isinstance(action, WriteRecord)), None)


def _found(journal: Journal) -> Record | None:
    then = journal.report["record"]
    return msgspec.convert(then, Record) if then is not None else None


def _record_as_found(journal: Journal, site: Site) -> bool:
    """A damaged one may have been set aside since, and members whose stores are set aside taken out."""
    taken_out = [action.record for action in journal.actions if isinstance(action, TakeOut)]
    if site.record not in (_found(journal), *taken_out):
        return False
    damaged = any(isinstance(action, SetRecordAside) for action in journal.actions)
    return damaged or site.record_state is not RecordState.DAMAGED


def _counted_lost(written: Record, rows: Mapping[str, dict[str, Any]], site: Site) -> str:
    """Why the record that the plan has written is not all that is needed: the rest gives up what the others hold.

    Then they are looked at again: what they hold may be all that is left (``chosen_lost_since``).
    """
    for member in written.ready:
        store, row = site.store(member.node), rows.get(member.node)
        if store is None:
            continue
        whole = store.condition is StoreCondition.WHOLE and store.member == member
        if not whole or (row is not None and not store.holds(_position(row["position"]))):
            return f"the store of {member.node}, which is to be promoted, is not there any more: {_now(row, store)}"
    return ""


def _position(text: str) -> Position:
    generation, sequence = text.split(".")
    return Position(int(generation), int(sequence))


def _damaged_as_found(row: dict[str, Any] | None, store: SurveyedStore) -> bool:
    """Or set aside already, or a part of it, also that which says whose it is."""
    if store.condition in _NOT_THERE:
        return True
    return store.condition is StoreCondition.DAMAGED and (store.member is None or _whose_as_found(row, store))


def _store_as_found(row: dict[str, Any] | None, store: SurveyedStore) -> bool:
    if row is None or row["condition"] in _NOT_THERE:
        return store.condition in _NOT_THERE or (row is None and store.condition is StoreCondition.FOREIGN)
    now = (store.condition.value, str(store.tail), str(store.applied))
    return (row["condition"], row["position"], row["checkpoint"]) == now and _whose_as_found(row, store)


def _whose_as_found(row: dict[str, Any] | None, store: SurveyedStore) -> bool:
    """A report of an earlier version does not say it."""
    if row is None or "member" not in row:
        return True
    return (row["member"], row["rebuilt"]) == (_member(store.member), store.rebuilt)


def _member(member: Member | None) -> str | None:
    return str(member) if member is not None else None


def _now(row: dict[str, Any] | None, store: SurveyedStore) -> str:
    another = "" if store.member is None or _whose_as_found(row, store) else f", and another one ({store.member})"
    return f"it is {store.condition.value}, at {store.tail}{another}"
