"""``txha recover`` with everything that coordinators leave behind: their log, the database's branches and its table."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator.resources import Table
from python_tests.suites.coordinator.test_recover_command import Site
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.names import GlobalName, branch_xid
from recovery.coordinator.resources import Participant
from recovery.coordinator.table import create_table, find_table, insert_commit
from recovery.planner.evidence import gather
from recovery.planner.facts import DatabaseFacts
from txobserver.outcomes import BranchOutcome

TXHA = (sys.executable, "-m", "broker_plugin.cli.main")
DROP = "DROP TABLE IF EXISTS txha_decisions"


@pytest.fixture
def table(postgresql: PostgreSQL) -> Iterator[Table]:
    table = Table(postgresql.dsn)
    yield table
    database = table.open()
    for xid in database.in_doubt():
        database.settle(xid, False, "")
    table.close()
    with psycopg.connect(postgresql.dsn, autocommit=True) as connection:
        connection.execute(DROP)


def prepared(table: Table, name: str) -> Participant:
    """A branch that the database holds in doubt."""
    database, xid = table.open(), branch_xid(name, "database")
    database.begin(xid)
    table.work(database)
    participant = database.prepare(xid)
    assert participant is not None
    return participant


def asked(table: Table, logs: list[Path], *names: str) -> DatabaseFacts:
    """What the database says, given the broker's branches of these transactions."""
    branches = [branch_xid(name, "broker") for name in names]
    [facts] = gather(logs, [("bank", table.dsn)], branches).databases
    return facts


def test_a_log_and_what_the_database_made_of_its_decisions(table: Table, tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log")
    waiting, done, against, aborted = (str(GlobalName(log.whose, 1, which)) for which in ("w", "d", "a", "r"))
    for name in (waiting, done, against):
        log.decide(name, True, [prepared(table, name)])
    log.decide(aborted, False)
    table.open().settle(branch_xid(done, "database"), True, "")
    table.open().settle(branch_xid(against, "database"), False, "")
    log.finish(done)
    before = log.path.read_bytes()
    log.path.write_bytes(before + b"a torn line")
    evidence = gather([log.path], [("bank", table.dsn)], [])
    assert log.path.read_bytes() == before + b"a torn line", "nothing is cut"
    [facts], [found] = evidence.databases, evidence.logs
    assert (found.whose, found.ended, found.fault) == (log.whose, {done}, "")
    assert found.commits == {waiting: True, against: True, aborted: False}
    assert facts.prepared == (branch_xid(waiting, "database"),) and not facts.fault
    fates = {waiting: BranchOutcome.PREPARED, done: BranchOutcome.COMMITTED, against: BranchOutcome.ROLLED_BACK}
    assert facts.fates == {branch_xid(name, "database"): fate for name, fate in fates.items()}
    log.close()


def test_a_table_of_decisions(table: Table) -> None:
    assert asked(table, [], "any.1.x").whose == "", "there is none"
    with psycopg.connect(table.dsn) as connection:
        create_table(connection)
        found = find_table(connection)
        decided, silent = (str(GlobalName(found.whose, 1, which)) for which in ("d", "s"))
        insert_commit(connection, found, decided, Participant("amqp:c", "broker"), ())
    facts = asked(table, [], decided, silent)
    assert (facts.whose, facts.commits) == (found.whose, {decided: True})


def test_what_cannot_be_read_says_so(table: Table, tmp_path: Path) -> None:
    log = DecisionLog(tmp_path / "log")
    log.decide("x.1.y", True)
    log.close()
    damaged = bytearray(log.path.read_bytes())
    damaged[20] ^= 1
    log.path.write_bytes(damaged)
    evidence = gather([log.path, tmp_path / "none"], [("none", "host=127.0.0.1 port=1 dbname=bank")], [])
    assert ["damaged" in log.fault or "cannot be read" in log.fault for log in evidence.logs] == [True, True]
    assert evidence.databases[0].fault.startswith("the database does not answer")


def plan(site: Site, how: str, status: int) -> dict[str, Any]:
    words = ["recover", how, str(site.cluster.directory), "--decisions", str(site.log), "--database", site.dsn]
    answer = subprocess.run([*TXHA, *words, "--json"], capture_output=True, text=True, check=False)
    assert answer.returncode == status, answer.stderr
    return dict(json.loads(answer.stdout))


@pytest.mark.every
def test_a_crash_of_everything_is_planned_and_settled(
    may_kill_nodes: None, postgresql: PostgreSQL, table: Table, tmp_path: Path
) -> None:
    """Coordinator and broker are dead. The plan reports what an administrator decided otherwise, and is followed."""
    cluster = LocalCluster(tmp_path / "cluster", 1)
    with cluster:
        site = Site(tmp_path, postgresql.dsn, cluster)
        against, followed = site.die("decision synced"), site.die("decision synced")
        undecided = site.die("broker prepared")
        cluster.kill("node-1")
    found = plan(site, "--apply", 0)
    planned = {
        (str(branch_xid(name, resource)), outcome, "dtx recover")
        for name, outcome in ((against, "commit"), (followed, "commit"), (undecided, "roll back"))
        for resource in ("broker", "database")
    }
    assert {(row["xid"], row["outcome"], row["by"]) for row in found["branches"]} == planned
    site.places["database"].open().settle(branch_xid(against, "database"), False, "")
    contrary = [row for row in plan(site, "--plan", 1)["branches"] if row["outcome"] == "operator"]
    assert len(contrary) == 1 and "its part is rolled back" in contrary[0]["reason"]
    settle(site, found, against, followed, undecided)
    for place in site.places.values():
        place.close()


def settle(site: Site, found: dict[str, Any], against: str, followed: str, undecided: str) -> None:
    """The last command of the plan, as it stands: it finds the database's contradiction, and settles all the rest."""
    with site.cluster:
        words = shlex.split(found["next"][-1]["command"])
        command = [*TXHA, *words[1:], "--grace", "0", "--json"]
        for point in ("settle.recovered", ""):
            answer = subprocess.run(
                command, capture_output=True, text=True, check=False, env={**os.environ, "TXHA_CRASH_POINT": point}
            )
            assert answer.returncode == (-signal.SIGKILL if point else 1), answer.stderr
        rows = json.loads(answer.stdout)["branches"]
        broker = {row["xid"]: row["state"] for row in rows if row["resource"] == "broker"}
        assert broker == {
            str(branch_xid(name, "broker")): state
            for name, state in ((against, "committed"), (followed, "committed"), (undecided, "rolled back"))
        }
        left = [(row["xid"], row["state"]) for row in rows if not row["settled"]]
        assert left == [(str(branch_xid(against, "database")), "rolled back")]
        assert [row["xid"] for row in rows if row["contrary"]] == [left[0][0]]
        assert site.look() == [1, 2]
