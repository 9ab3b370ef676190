"""Breaches planted into the branches of a run (``fates``); each tells what must be found, as those in ``plants``."""

from __future__ import annotations

from typing import Any

from tests.recovery.pipeline.audit.fates import CUT, GLOBALLY, LATER, LOGGED, LOSER, PAIR, SLOW, ZOMBIE
from tests.recovery.pipeline.audit.ground import Found, Ground
from txobserver.events import DtxDecision, DtxOpen, DtxPrepare, GlobalDecision
from txobserver.xid import Xid


def _events(ground: Ground, xid: Xid, kind: type) -> list[tuple[int, Any]]:
    """Where the events of this kind of a branch stand, in whichever log holds them."""
    log = {at: stored.event for each in ground.run.stored.logs.values() for at, stored in each.items()}
    numbers = {event.tx for event in log.values() if isinstance(event, DtxOpen) and event.xid == xid}
    return [(at, event) for at, event in sorted(log.items()) if isinstance(event, kind) and event.tx in numbers]


def turned_round(ground: Ground, xid: Xid) -> int:
    """The branch ends the other way, in all logs; its number."""
    [(at, decision)] = _events(ground, xid, DtxDecision)
    ground.run.stored.change(at, DtxDecision(decision.tx, not decision.commit, decision.heuristic, decision.at_ms))
    return int(decision.tx)


def _number_of(ground: Ground, xid: Xid) -> int:
    """Of the branch's transaction."""
    [(_, opened)] = _events(ground, xid, DtxOpen)
    return int(opened.tx)


def _rolled_back_against_a_commit(ground: Ground) -> set[Found]:
    return {("disobeyed", turned_round(ground, GLOBALLY))}


def _by_the_next_primary(ground: Ground) -> set[Found]:
    """Which had to make up for a decision that the last one did not come to."""
    return {("disobeyed", turned_round(ground, CUT))}


def _by_a_later_primary(ground: Ground) -> set[Found]:
    return {("disobeyed", turned_round(ground, LATER))}


def _committed_against_a_rollback(ground: Ground) -> set[Found]:
    return {("disobeyed", turned_round(ground, LOSER))}


def _not_fenced(ground: Ground) -> set[Found]:
    """It had begun before the decision to roll back, and prepares behind it."""
    [(at, decision)] = _events(ground, ZOMBIE, DtxDecision)
    later = ground.mark_behind(at)
    ground.run.stored.change(at, DtxPrepare(decision.tx, 2, [], decision.at_ms))
    ground.run.stored.change(later, DtxDecision(decision.tx, True, False, decision.at_ms))
    return {("disobeyed", decision.tx)}


def _one_of_a_pair(ground: Ground) -> set[Found]:
    turned_round(ground, PAIR[1])
    return {("split", str(PAIR[1].globally))}


def _against_the_coordinator(ground: Ground) -> set[Found]:
    """Its log is written the other way round, by the test (``fates.log_of_decisions``)."""
    return {("disobeyed", _number_of(ground, LOGGED))}


def _globally_decided_otherwise_on_one_node(ground: Ground) -> set[Found]:
    log = ground.run.stored.logs[ground.run.tail]
    [(at, decision)] = [
        (at, stored.event)
        for at, stored in log.items()
        if isinstance(stored.event, GlobalDecision) and stored.event.gtrid == SLOW.gtrid
    ]
    other = GlobalDecision(decision.format_id, decision.gtrid, not decision.commit, decision.at_ms)
    ground.run.stored.change(at, other, ground.run.tail)
    return {("two-decisions", str(SLOW.globally))}


PLANTS = (
    _rolled_back_against_a_commit, _by_the_next_primary, _by_a_later_primary, _committed_against_a_rollback,
    _not_fenced, _one_of_a_pair, _against_the_coordinator, _globally_decided_otherwise_on_one_node,
)  # fmt: skip
