"""What becomes of a branch in doubt: every kind of word that there is, and every contradiction."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.coordinator.names import branch_xid
from recovery.planner.facts import BranchInDoubt, DatabaseFacts, Evidence, LogFacts, Loss, PromotedContents, ToldClient
from recovery.planner.losses import DECISION, GLOBAL
from recovery.planner.verdicts import TO_BECOME, By, Verdict, said_before, verdicts
from txobserver.ids import Position
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

WHOSE, NAME = "0123456789abcdef", "0123456789abcdef.65000000.aa"
X = branch_xid(NAME, "broker")
AT_DATABASE = branch_xid(NAME, "database")
FOREIGN = Xid(1, b"theirs", b"b")
SILENT = LogFacts(path="log", whose=WHOSE)
COMMIT = LogFacts(path="log", whose=WHOSE, commits={NAME: True})
ABORT = LogFacts(path="log", whose=WHOSE, commits={NAME: False})
ENDED = LogFacts(path="log", whose=WHOSE, ended=frozenset({NAME}))
DAMAGED = LogFacts(path="log", fault="log is damaged")
OTHER = LogFacts(path="other", whose="another")


def lost(kind: str, name: object, commit: bool, told: ToldClient = ToldClient.UNKNOWN) -> Loss:
    at = Position(2, 70)
    return Loss(kind=kind, name=str(name), position=at, nodes=("c",), commit=commit, told=told)


def verdict(xid: Xid = X, *logs: LogFacts, sure: bool = True, loss: Loss | None = None, **more: Any) -> Verdict:
    """On one branch in doubt."""
    globally, databases, earlier = more.get("globally"), more.get("databases", ()), more.get("earlier", {})
    branch = BranchInDoubt(xid=xid, prepared_ms=0, puts={}, takes={})
    contents = PromotedContents(branches=(branch,), globally={} if globally is None else {xid.globally: globally})
    found = verdicts(contents, [loss] if loss else [], sure, Evidence(logs=logs, databases=databases), earlier)
    return found[0]


TABLE = DatabaseFacts(address="db", whose=WHOSE, commits={NAME: True})
EMPTY_TABLE = DatabaseFacts(address="db", whose=WHOSE)
AGAINST = DatabaseFacts(address="db", fates={AT_DATABASE: BranchOutcome.ROLLED_BACK})
ALONG = DatabaseFacts(address="db", fates={AT_DATABASE: BranchOutcome.COMMITTED})
HOLDS = DatabaseFacts(address="db", prepared=(Xid(1, b"theirs", b"d"),))
SILENT_DATABASE = DatabaseFacts(address="db", fault="it does not answer")
BEFORE = {str(X): Verdict(xid=X, resource="broker", outcome=BranchOutcome.UNKNOWN, by=By.NONE, reason="")}
BEFORE_BY_HAND = {
    str(X): Verdict(xid=X, resource="broker", outcome=BranchOutcome.COMMITTED, by=By.HAND, reason="c held it")
}

CASES: dict[str, tuple[Verdict, str, str, str]] = {
    "the log says commit": (verdict(X, COMMIT), "commit", "dtx recover", "log says commit"),
    "the log says abort": (verdict(X, ABORT), "roll back", "dtx recover", "log says abort"),
    "the log says nothing": (verdict(X, SILENT), "roll back", "dtx recover", "presumed abort"),
    "the log says nothing, and something is lost": (
        verdict(X, SILENT, sure=False),
        "operator",
        "nobody",
        "an abort cannot be presumed",
    ),
    "the log says commit, whatever is lost": (verdict(X, COMMIT, sure=False), "commit", "dtx recover", "says commit"),
    "every participant had made it, so what the broker knew of it is lost": (
        verdict(X, ENDED, sure=False),
        "commit",
        "by hand",
        "every participant has made it",
    ),
    "the log is damaged": (verdict(X, DAMAGED), "operator", "nobody", "log is damaged"),
    "the log is another's": (verdict(X, OTHER), "operator", "nobody", "hangs on the decisions 0123456789abcdef"),
    "no log is given": (verdict(X), "operator", "nobody", "were not given"),
    "the right one of two logs": (verdict(X, OTHER, COMMIT), "commit", "dtx recover", "log says commit"),
    "a coordinator that is not ours": (verdict(FOREIGN, COMMIT), "operator", "nobody", "not ours: ask it"),
    "one whose database holds a branch, too": (
        verdict(FOREIGN, databases=[HOLDS]),
        "operator",
        "nobody",
        "db has a branch of it prepared",
    ),
    "a global decision in the stream": (
        verdict(X, globally=True),
        "commit",
        "new primary",
        "stream holds the decision",
    ),
    "a global decision to roll back": (
        verdict(FOREIGN, globally=False),
        "roll back",
        "new primary",
        "decision to roll back",
    ),
    "a global decision, and the log agrees": (
        verdict(X, COMMIT, globally=True),
        "commit",
        "new primary",
        "stream holds",
    ),
    "a global decision against the log": (verdict(X, ABORT, globally=True), "operator", "nobody", "but log says abort"),
    "a decision that only a lost node holds": (
        verdict(X, SILENT, sure=False, loss=lost(DECISION, X, True)),
        "commit",
        "by hand",
        "c held the decision to commit it at 2.70",
    ),
    "the same for its global transaction": (
        verdict(FOREIGN, sure=False, loss=lost(GLOBAL, FOREIGN.globally, False)),
        "roll back",
        "by hand",
        "may have been told",
    ),
    "one that no client can have been told of": (
        verdict(X, ABORT, loss=lost(DECISION, X, True, ToldClient.NEVER)),
        "roll back",
        "dtx recover",
        "says abort",
    ),
    "one against the log": (
        verdict(X, ABORT, sure=False, loss=lost(DECISION, X, True)),
        "operator",
        "nobody",
        "but log says abort",
    ),
    "the table says commit": (verdict(X, databases=[TABLE]), "commit", "dtx recover", "the table in db says commit"),
    "the table has no row": (verdict(X, databases=[EMPTY_TABLE]), "roll back", "dtx recover", "presumed abort"),
    "the database cannot be asked": (verdict(X, databases=[SILENT_DATABASE]), "operator", "nobody", "does not answer"),
    "the database has done otherwise": (
        verdict(X, COMMIT, databases=[AGAINST]),
        "operator",
        "nobody",
        "its part is rolled back",
    ),
    "the database has done the same": (verdict(X, COMMIT, databases=[ALONG]), "commit", "dtx recover", "says commit"),
    "an earlier plan had lost something": (
        verdict(X, SILENT, earlier=BEFORE),
        "operator",
        "nobody",
        "an abort cannot be presumed",
    ),
    "an earlier plan had lost something, and now there is a log": (
        verdict(X, COMMIT, earlier=BEFORE),
        "commit",
        "dtx recover",
        "log says commit",
    ),
    "an earlier plan knew from a node that has been set aside": (
        verdict(X, SILENT, earlier=BEFORE_BY_HAND),
        "commit",
        "by hand",
        "c held it",
    ),
    "the same, and the log that is given now agrees": (
        verdict(X, COMMIT, databases=[ALONG], earlier=BEFORE_BY_HAND),
        "commit",
        "by hand",
        "c held it",
    ),
    "the same, and its part in a database has ended otherwise": (
        verdict(X, SILENT, databases=[AGAINST], earlier=BEFORE_BY_HAND),
        "operator",
        "nobody",
        "c held it, but db says that its part is rolled back",
    ),
    "only a lost node holds the decision, and its part in a database has ended otherwise": (
        verdict(X, COMMIT, sure=False, loss=lost(DECISION, X, True), databases=[AGAINST]),
        "operator",
        "nobody",
        "which may have been told, but db says that its part is rolled back",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_branch_becomes(name: str) -> None:
    found, outcome, by, reason = CASES[name]
    assert (TO_BECOME[found.outcome], found.by.value, found.resource) == (outcome, by, "broker")
    assert reason in found.reason


def test_by_hand_against_the_log() -> None:
    """The first plan was made without the log. What it said by hand is not done against a log that is given later."""
    first = verdict(X, sure=False, loss=lost(DECISION, X, False))
    assert (first.outcome, first.by) == (BranchOutcome.ROLLED_BACK, By.HAND)
    later = verdict(X, COMMIT, earlier={str(X): first})  # c has been overwritten meanwhile: nothing is lost now
    assert (later.outcome, later.by) == (BranchOutcome.UNKNOWN, By.NONE)
    assert later.reason == f"{first.reason}, but log says commit"
    assert verdict(X, ABORT, earlier={str(X): first}) == first == verdict(X, SILENT, earlier={str(X): first})
    ended = verdict(X, ENDED, earlier={str(X): first})
    assert ended.by is By.NONE and "every participant has made it" in ended.reason


def test_what_an_operator_decided_otherwise_is_told() -> None:
    contents = PromotedContents(heuristic={X: False, FOREIGN: True})
    [found] = verdicts(contents, [], True, Evidence(logs=[COMMIT]), {})
    assert found.xid == X and found.outcome is BranchOutcome.UNKNOWN and "it is mixed" in found.reason
    assert verdicts(contents, [], True, Evidence(logs=[ABORT]), {}) == []


def test_branches_of_databases() -> None:
    database = DatabaseFacts(address="db", prepared=(AT_DATABASE, Xid(1, b"others", b"d")))
    for log, outcome in (
        (COMMIT, BranchOutcome.COMMITTED),
        (ABORT, BranchOutcome.ROLLED_BACK),
        (SILENT, BranchOutcome.ROLLED_BACK),
    ):
        [found] = verdicts(PromotedContents(), [], True, Evidence(logs=[log], databases=[database]), {})
        assert (found.resource, found.xid, found.outcome) == ("db", AT_DATABASE, outcome)
    assert verdicts(PromotedContents(), [], True, Evidence(databases=[database]), {}) == [], "no run settles it"
    contents = PromotedContents(globally={AT_DATABASE.globally: True})
    [found] = verdicts(contents, [], True, Evidence(logs=[SILENT], databases=[database]), {})
    assert found.outcome is BranchOutcome.UNKNOWN, "the broker's stream says commit, and no log does"


def test_what_a_plan_said_that_was_carried_out() -> None:
    row = {"xid": str(X), "resource": "broker", "outcome": "commit", "by": "by hand", "reason": "c held it"}
    report = {"nothing_acknowledged_is_lost": False, "branches": [row, {**row, "resource": "db"}]}
    assert said_before(report) == BEFORE_BY_HAND
    assert said_before({**report, "nothing_acknowledged_is_lost": True}) == {}
