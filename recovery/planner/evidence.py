"""What coordinators and databases know of the branches in doubt. Everything is only read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from recovery.coordinator.decision_log import read_decisions
from recovery.coordinator.decisions import Decision, DecisionRefused
from recovery.coordinator.names import branch_xid
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import ResourceLost, ResourceRefused
from recovery.coordinator.table import TABLE, TableDecisions
from recovery.planner.facts import DatabaseFacts, Evidence, LogFacts
from txobserver.outcomes import BranchOutcome
from txobserver.ports.store import StoreError
from txobserver.xid import Xid


def gather(logs: Sequence[Path], databases: Sequence[tuple[str, str]], branches: Iterable[Xid]) -> Evidence:
    """``databases``: (address to be shown, dsn). What cannot be read says so in its ``fault``."""
    read = [_read_log(path) for path in logs]
    decisions = {name: each for _, found in read for name, each in found.items()}
    asked = tuple(branches)
    return Evidence(
        logs=[facts for facts, _ in read], databases=[_ask(shown, dsn, asked, decisions) for shown, dsn in databases]
    )


def _read_log(path: Path) -> tuple[LogFacts, dict[str, Decision]]:
    try:
        whose, decisions, ended = read_decisions(path)
    except StoreError as error:
        return LogFacts(path=str(path), fault=str(error)), {}
    commits = {name: each.commit for name, each in decisions.items()}
    return LogFacts(path=str(path), whose=whose, commits=commits, ended=frozenset(ended)), {**decisions, **ended}


def _ask(shown: str, dsn: str, branches: Sequence[Xid], decisions: dict[str, Decision]) -> DatabaseFacts:
    database = Postgresql(dsn)
    try:
        prepared = tuple(database.in_doubt())
        fates = _fates(database, decisions)
        whose, earlier, commits = _table(dsn, (*branches, *prepared))
    except (ResourceLost, ResourceRefused, DecisionRefused) as error:
        return DatabaseFacts(address=shown, fault=f"the database does not answer: {error}")
    finally:
        database.close()
    return DatabaseFacts(address=shown, prepared=prepared, fates=fates, whose=whose, earlier=earlier, commits=commits)


def _fates(database: Postgresql, decisions: dict[str, Decision]) -> dict[Xid, BranchOutcome]:
    """What this database has made of the commits that it takes part in."""
    found = {}
    for name, decision in decisions.items():
        for participant in decision.participants:
            if participant.resource == database.name:
                xid = branch_xid(name, participant.branch)
                found[xid] = database.fate(xid, participant.ticket)
    return found


def _table(dsn: str, branches: Iterable[Xid]) -> tuple[str, str, dict[str, bool]]:
    """Whose decisions the table holds that the DSN leads to, by both names, and those on these branches.

    Those of no database if there is no table.
    """
    with psycopg.connect(dsn, autocommit=True) as connection:
        if not _exists(connection):
            return "", "", {}
    decisions = TableDecisions(dsn)
    names = {str(name) for xid in branches if (name := decisions.owns(xid)) is not None}
    found = {name: decisions.decision(name) for name in sorted(names)}
    commits = {name: each.commit for name, each in found.items() if each is not None}
    return decisions.whose, decisions.table.earlier, commits


def _exists(connection: psycopg.Connection[Any]) -> bool:
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", [TABLE]).fetchone()
    return bool(row and row[0])
