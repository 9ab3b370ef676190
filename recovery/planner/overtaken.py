"""Whether a plan that was cut short is still the plan for what is there: somebody may have been busy in between.

Whoever starts the nodes, restores a file or gives a store up makes the plan one for other stores. What it says of
losses and of whom to set aside need not be true any more: the store that it found damaged may be the only one that
counts (``a_plan_cut_short_is_finished_on_other_stores``). So the rest is carried out only if the record is the one that
the plan writes, or if record and stores are as they were found. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ha.coordination import Record
from recovery.planner.apply import Journal
from recovery.planner.facts import Condition, RecordState, Site, Store
from recovery.planner.plan import SetAside, SetRecordAside, TakeOut, WriteRecord

_NOT_THERE = (Condition.EMPTY, Condition.MISSING)
"""The same here: whoever carries a plan out makes the directories that are missing."""


def overtaken(journal: Journal, site: Site) -> str:
    """Why the rest of the plan must not be carried out, as the end of a sentence; empty if it may be.

    Of nodes whose directories were not given nothing is compared.
    """
    written = _writes(journal)
    if written is not None and site.record == written:
        return ""
    if not _record_as_found(journal, site):
        return "the coordination record is neither the one that it was made for nor the one that it writes"
    rows = {row["node"]: row for row in journal.report["stores"]}
    leaves = {action.node for action in journal.actions if isinstance(action, SetAside)}
    for store in site.stores:
        if store.node in leaves:
            same = store.condition is Condition.DAMAGED or store.condition in _NOT_THERE
        else:
            same = _store_as_found(rows.get(store.node), store)
        if not same:
            return f"the store of {store.node} is not as it was found: it is {store.condition.value}, at {store.tail}"
    return ""


def has_begun(journal: Journal, site: Site) -> bool:
    """Whether the record of a plan that was overtaken counted once, or may have: its losses are losses then."""
    written = _writes(journal)
    if written is None:
        return False
    known = (store.tail.generation for store in site.stores if store.condition is not Condition.FOREIGN)
    now = site.record
    gone_on = now is not None and now.version > written.version and now.generation >= written.generation
    return gone_on or max(known, default=0) >= written.generation


def _writes(journal: Journal) -> Record | None:
    return next((action.record for action in journal.actions if isinstance(action, WriteRecord)), None)


def _record_as_found(journal: Journal, site: Site) -> bool:
    """A damaged one may have been set aside since, and members whose stores are set aside taken out."""
    then = journal.report["record"]
    found = msgspec.convert(then, Record) if then is not None else None
    taken_out = [action.record for action in journal.actions if isinstance(action, TakeOut)]
    if site.record not in (found, *taken_out):
        return False
    damaged = any(isinstance(action, SetRecordAside) for action in journal.actions)
    return damaged or site.record_state is not RecordState.DAMAGED


def _store_as_found(row: dict[str, Any] | None, store: Store) -> bool:
    if row is None or row["condition"] in _NOT_THERE:
        return store.condition in _NOT_THERE or (row is None and store.condition is Condition.FOREIGN)
    now = (store.condition.value, str(store.tail), str(store.applied))
    return (row["condition"], row["position"], row["checkpoint"]) == now
