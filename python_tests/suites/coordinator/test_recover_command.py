"""``txha dtx recover`` as an operator runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from broker_plugin.cli.addresses import named, shown
from broker_plugin.cli.asking import best_node
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator.resources import Queue, Table
from recovery.coordinator.coordinated_branches import CoordinatedBranches
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.names import branch_xid, new_global_name
from recovery.coordinator.recover import BEGAN_A_MOMENT_AGO
from recovery.coordinator.resources import Resource
from recovery.coordinator.table import create_table
from recovery.dtx.with_pika import DtxConnection
from recovery.reader.node_admin import ask
from tests.support.commands import txha_here
from txobserver.xid import Xid


class Killed(BaseException):
    """A coordinator that does nothing more, not even clean up."""


class Site:
    """A table, a queue, and a log; ``die`` leaves a transaction of a coordinator that died at a step."""

    def __init__(self, directory: Path, dsn: str, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.places = {"database": Table(dsn), "broker": Queue(cluster.urls)}
        self.log = directory / "log"
        self.dsn = dsn

    def die(self, step: str) -> str:
        """Returns the name of the transaction."""

        def reached(made: str) -> None:
            if made == step:
                raise Killed

        resources: dict[str, Resource] = {part: place.open() for part, place in self.places.items()}
        work = CoordinatedBranches(DecisionLog(self.log, reached=reached), resources, reached=reached)
        for part, place in self.places.items():
            work.begin(part)
            place.work(resources[part])
        work.abandon = lambda: None  # type: ignore[method-assign]
        with pytest.raises(Killed):
            work.commit()
        for resource in resources.values():
            resource.close()
        return work.name

    def recover(self, *options: str, broker: str | None = None) -> tuple[int, dict[str, Any], str]:
        """Exit status, report, and what was said on standard error."""
        words = ["dtx", "recover", "--json", "--log", str(self.log)]
        words += ["--database", self.dsn, "--broker", broker or ",".join(self.cluster.urls), *options]
        answer = txha_here(*words)
        return answer.returncode, json.loads(answer.stdout), answer.stderr

    def look(self) -> list[int]:
        """Rows and messages."""
        return [len(place.look()) for place in self.places.values()]


@pytest.fixture(scope="module")
def cluster(may_kill_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node is enough here."""
    with LocalCluster(tmp_path_factory.mktemp("recover") / "cluster", 1) as running:
        yield running


@pytest.fixture
def site(tmp_path: Path, postgresql: PostgreSQL, cluster: LocalCluster) -> Iterator[Site]:
    site = Site(tmp_path, postgresql.dsn, cluster)
    yield site
    site.recover("--grace", "0", "--forget")
    for place in site.places.values():
        place.close()


@pytest.mark.parametrize(("step", "left"), [("broker prepared", 0), ("decision synced", 1)])
def test_what_was_in_doubt_is_settled_as_decided(site: Site, step: str, left: int) -> None:
    name = site.die(step)
    status, report, _ = site.recover("--grace", "0")
    assert status == 0 and report["settled"]
    assert {row["transaction"] for row in report["branches"]} == {name}
    assert {row["state"] for row in report["branches"]} == {"committed" if left else "rolled back"}
    assert site.look() == [left, left]
    status, report, _ = site.recover("--grace", "0")
    asked = {name.partition(":")[0] for name in report.pop("asked").values()}
    assert status == 0 and asked == {"postgresql", "amqp"} and report.pop("settled")
    assert not any(report.values()) and [*report] == [
        "branches",
        "waiting",
        "unreachable",
        "not_asked",
        "others",
        "older",
    ]


def test_a_transaction_that_began_a_moment_ago_is_left(site: Site) -> None:
    site.die("broker prepared")
    status, report, _ = site.recover()
    assert status == 1 and not report["settled"]
    assert {row["why"] for row in report["branches"]} == {BEGAN_A_MOMENT_AGO}
    assert site.recover("--grace", "0")[0] == 0


def test_a_resource_that_cannot_be_reached_is_named_and_waited_for(site: Site, tmp_path: Path) -> None:
    name = site.die("decision synced")
    address = tmp_path / "broker"
    address.write_text("amqp://somebody:secret@127.0.0.1:1/")
    address.chmod(0o600)
    status, report, _ = site.recover("--grace", "0", broker=f"@{address}")
    assert status == 1 and not report["settled"]
    assert list(report["unreachable"]) == ["amqp://somebody@127.0.0.1:1/"]
    assert [row["transaction"] for row in report["waiting"]] == [name]
    assert site.places["database"].look() == ["word"] and site.places["broker"].look() == []
    assert site.recover()[0] == 0
    assert site.look() == [1, 1]


def test_an_operator_who_decided_otherwise_is_reported_until_that_is_forgotten(site: Site) -> None:
    name = site.die("decision synced")
    node = best_node(site.cluster.directory)["name"]
    ask(site.cluster.directory / node, "dtx.rollback", {"xid": str(branch_xid(name, "broker"))})
    for options in ((), ("--forget",)):
        status, report, _ = site.recover(*options)
        assert status == 3
        assert [row["state"] for row in report["branches"] if row["contradicted"]] == ["heuristically rolled back"]
    assert site.look() == [1, 0]
    status, report, _ = site.recover()
    assert status == 0 and report["branches"] == []


def test_an_administrator_who_rolled_back_is_reported(site: Site) -> None:
    name = site.die("decision synced")
    xid = branch_xid(name, "database")
    site.places["database"].open().settle(xid, False, "")
    status, report, _ = site.recover()
    assert status == 3
    assert [row["state"] for row in report["branches"] if row["contradicted"]] == ["rolled back"]
    assert site.recover("--forget")[0] == 3
    assert site.recover()[0] == 0


def test_people_get_a_table_and_mistakes_a_sentence(site: Site) -> None:
    site.die("decision synced")
    command = [sys.executable, "-m", "broker_plugin.cli.main", "dtx", "recover"]
    given = ["--log", str(site.log), "--database", site.dsn, "--broker", site.cluster.urls[0]]
    answer = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    assert answer.returncode == 0 and "commit" in answer.stdout
    with psycopg.connect(site.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS txha_decisions")
    given = ["--database", site.dsn, "--broker", site.cluster.urls[0], "--json"]
    answer = subprocess.run([*command, *given], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    [why] = json.loads(answer.stdout)["unreachable"].values()
    assert '"txha_decisions" does not exist' in why
    answer = subprocess.run([*command, "--log", "/nowhere/log"], capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stderr) == (2, "txha: there is no decision log /nowhere/log\n")


@pytest.mark.parametrize("step", ["decision synced", "database committed"])
def test_an_older_copy_of_the_log_is_refused(site: Site, step: str) -> None:
    """It lacks the decision, and the broker's branch was rolled back, with exit status 0."""
    DecisionLog(site.log).close()
    copied = site.log.read_bytes()
    site.die(step)
    newest = site.log.read_bytes()
    before = site.look()
    site.log.write_bytes(copied)
    status, report, said = site.recover("--grace", "0")
    assert status == 2 and not report["branches"] and not report["settled"]
    assert [*report["older"]] == [str(site.log)]
    assert "Put the newest copy of the log in its place" in said and len(said.splitlines()) == 1
    assert site.look() == before
    site.log.write_bytes(newest)
    assert site.recover("--grace", "0")[0] == 0 and site.look() == [1, 1]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return txha_here("dtx", "recover", "--grace", "0", *words)


def test_a_run_that_does_not_ask_all_that_the_log_names(site: Site) -> None:
    """With some of the resources, or a wrong database, an empty table and exit status 0 said that all was well."""
    site.die("decision synced")
    site.recover("--grace", "0")
    site.die("database prepared")
    given = ["--log", str(site.log), "--broker", ",".join(site.cluster.urls)]
    other = site.dsn.replace("dbname=bank", "dbname=postgres")
    for databases in ((), ("--database", other)):
        answer = run(*given, *databases)
        assert answer.returncode == 1
        assert "takes part in transactions of the log, and was not asked: name it" in answer.stderr
        assert "asked " in answer.stdout and "which is amqp:" in answer.stdout
    answer = run(*given, "--gone", "postgresql:no")
    assert answer.returncode == 2 and "the log names no resource 'postgresql:no'" in answer.stderr
    [name] = [each for each in DecisionLog(site.log).resources() if each.startswith("postgresql:")]
    assert run(*given, "--gone", name).returncode == 0
    assert site.recover("--grace", "0")[0] == 0 and site.look() == [1, 1]


def test_a_run_with_a_wrong_table_says_on_what_the_branches_hang(site: Site) -> None:
    DecisionLog(site.log).close()
    with psycopg.connect(site.dsn, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS txha_decisions")
        create_table(connection)
    xid = branch_xid(str(new_global_name("cafe/5/16390")), "broker")
    with DtxConnection(*site.cluster.urls) as broker:
        broker.tpc_begin(xid)
        broker.channel.queue_declare("wrong-table", durable=True)
        broker.channel.basic_publish("", "wrong-table", b"x")
        assert broker.tpc_prepare()
    given = ["--database", site.dsn, "--broker", ",".join(site.cluster.urls)]
    try:
        answer = run(*given)
        assert answer.returncode == 1
        assert "1 branches that are in doubt at amqp:" in answer.stderr
        assert "hang on the log or table cafe/5/16390: run this with that" in answer.stderr
        [other] = json.loads(run(*given, "--json").stdout)["others"]
        assert (other["branch"], other["decisions"]) == (str(xid), "cafe/5/16390")
    finally:
        with DtxConnection(*site.cluster.urls) as broker:
            broker.tpc_rollback(xid)
            broker.channel.queue_delete("wrong-table")
    assert run(*given).returncode == 0
    assert run(*given[:2]).returncode == 2, "no broker is named"


def test_branches_of_other_programs_count_where_all_is_asked_for(site: Site) -> None:
    xid = Xid(1, b"theirs", b"x")
    with DtxConnection(*site.cluster.urls) as broker:
        broker.tpc_begin(xid)
        broker.channel.queue_declare("theirs", durable=True)
        broker.channel.basic_publish("", "theirs", b"x")
        assert broker.tpc_prepare()
    site.die("decision synced")
    try:
        assert site.recover()[0] == 0
        status, report, _ = site.recover("--all")
        assert status == 1 and [each["branch"] for each in report["others"]] == [str(xid)]
    finally:
        with DtxConnection(*site.cluster.urls) as broker:
            broker.tpc_rollback(xid)
            broker.channel.queue_delete("theirs")
    assert site.recover("--all")[0] == 0


@pytest.mark.parametrize(
    "dsn", ["nonsense", "host=a..b dbname=x", f"host={'x' * 70}", "host=h port=a", "postgresql://[::1", "service=none"]
)
def test_a_nonsense_dsn_is_one_sentence(tmp_path: Path, dsn: str) -> None:
    """79 lines of traceback told of it, with the DSN in them."""
    answer = run("--database", dsn, "--broker", "amqp://127.0.0.1:1/")
    assert answer.returncode in (1, 2) and answer.stderr.startswith("txha: ")
    assert len(answer.stderr.splitlines()) == 1 and "Traceback" not in answer.stderr


def test_no_password_is_shown() -> None:
    assert shown("amqp://me:secret@host/") == "amqp://me@host/"
    assert shown("host=a password=secret dbname=b") == "host=a password=… dbname=b"
    assert shown("host=a password='se cret' dbname=b") == "host=a password=… dbname=b"
    assert shown("postgresql://me:secret@host/bank") == "postgresql://me@host/bank"
    assert shown("postgresql://host/bank?password=secret&port=1") == "postgresql://host/bank?password=…&port=1"


def test_every_address_is_asked_whatever_is_shown_of_it() -> None:
    """Of two by one name only one would be, and the report would call the other one's branches settled."""
    addresses = [f"postgresql://host/bank?options=-cpassword={word}" for word in ("a", "b")]
    assert list(named([*addresses, *addresses]).values()) == addresses
