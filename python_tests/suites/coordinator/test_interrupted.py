"""A worker's time is over, or a user presses Ctrl-C, in the middle of a call: the next transaction goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator.resources import Queue, Table
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.coordinator import Coordinator
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.decisions import DecisionUnknown
from recovery.coordinator.postgresql import Postgresql
from recovery.dtx import with_pika
from recovery.dtx.errors import OutcomeUnknown
from txobserver.dtx_wire import DtxMethod


class TimeOver(Exception):
    """What the handler of a signal raises."""


class Site:
    """One coordinator's work: a row and a message."""

    def __init__(self, dsn: str, urls: list[str], directory: Path) -> None:
        self.table, self.queue = Table(dsn), Queue(urls)
        self.log = DecisionLog(directory / "log")
        database, broker = self.table.open(), self.queue.open()
        assert isinstance(database, Postgresql) and isinstance(broker, Broker)
        self.database, self.broker = database, broker
        self.coordinator = Coordinator(self.log, broker, database)

    def work(self) -> None:
        """One transaction."""
        with self.coordinator.transaction() as t:
            t.database.execute(f"INSERT INTO {self.table.own} VALUES ('word')".encode())
            t.broker.basic_publish("", self.queue.own, b"word")

    def look(self) -> tuple[int, int]:
        """Rows and messages."""
        return len(self.table.look()), len(self.queue.look())


@pytest.fixture
def site(postgresql: PostgreSQL, urls: list[str], tmp_path: Path) -> Iterator[Site]:
    site = Site(postgresql.dsn, urls, tmp_path)
    yield site
    site.queue.close()
    site.table.close()


def interrupt(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The next request of this name is sent, and its answer not waited for."""
    asks: Any = with_pika.DtxConnection._ask

    def ask(self: with_pika.DtxConnection, method: DtxMethod) -> DtxMethod:
        if type(method).__name__ != name:
            return asks(self, method)  # type: ignore[no-any-return]
        monkeypatch.undo()
        self.channel._impl._rpc(
            with_pika._CARRIED[method.index](method), lambda answer: None, [with_pika._CARRIED[method.index + 1]]
        )
        raise TimeOver

    monkeypatch.setattr(with_pika.DtxConnection, "_ask", ask)


@pytest.mark.parametrize(("request_name", "committed"), [("Start", 0), ("End", 0), ("Prepare", 0), ("Commit", 1)])
def test_an_interrupted_call_to_the_broker(
    site: Site, monkeypatch: pytest.MonkeyPatch, request_name: str, committed: int
) -> None:
    interrupt(monkeypatch, request_name)
    with pytest.raises(TimeOver):
        site.work()
    assert site.coordinator.recover(0.0).settled, "over the coordinator's own connections"
    assert site.look() == (committed, committed)
    site.work()
    assert site.look() == (committed + 1, committed + 1)


@pytest.mark.parametrize("resource", [Broker, Postgresql])
def test_an_interrupt_as_a_begin_returns(site: Site, monkeypatch: pytest.MonkeyPatch, resource: type) -> None:
    """Only the resource knows of the branch, which is asked by a recovery run then, and begins the next one."""
    begins = resource.begin

    def begin(self: Any, xid: Any) -> None:
        begins(self, xid)
        raise TimeOver

    with monkeypatch.context() as patched:
        patched.setattr(resource, "begin", begin)
        with pytest.raises(TimeOver):
            site.work()
    assert site.coordinator.recover(0.0).settled
    assert site.look() == (0, 0)
    site.work()
    assert site.look() == (1, 1)


def test_an_interrupt_as_the_broker_has_begun(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next transaction begins, though the connection is in the middle of this one."""
    asks = Broker._answered

    @contextmanager
    def answered(self: Broker) -> Iterator[with_pika.DtxConnection]:
        with asks(self) as client:
            yield client
        raise TimeOver

    with pytest.raises(TimeOver), site.coordinator.transaction() as t, monkeypatch.context() as patched:
        patched.setattr(Broker, "_answered", answered)
        assert t.broker
    site.work()
    assert site.look() == (1, 1)


def test_an_interrupt_between_begin_and_mark(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    begins = psycopg.Connection.tpc_begin

    def begin(self: psycopg.Connection[Any], xid: Any) -> None:
        begins(self, xid)
        raise TimeOver

    with monkeypatch.context() as patched:
        patched.setattr(psycopg.Connection, "tpc_begin", begin)
        with pytest.raises(TimeOver):
            site.work()
    site.work()
    assert site.look() == (1, 1)


@pytest.mark.parametrize("end", ["SELECT 1 / 0", "COMMIT"])
def test_a_recovery_run_behind_a_commit_that_was_none(site: Site, end: str) -> None:
    """Of the database alone. Its connection stays, and can be asked."""
    with pytest.raises(TransactionRolledBack), site.coordinator.transaction() as t:
        before = t.database
        with suppress(psycopg.Error):
            t.database.execute(end.encode())
    assert site.coordinator.recover(0.0).settled
    assert site.database.connection is before
    site.work()
    assert site.look() == (1, 1)


def test_an_interrupted_commit_of_the_broker_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(monkeypatch, "Commit")
    with pytest.raises(TimeOver), site.coordinator.transaction() as t:
        t.broker.basic_publish("", site.queue.own, b"word")
    assert site.coordinator.recover(0.0).settled
    site.work()
    assert site.look()[0] == 1


def test_a_recovery_run_behind_an_unknown_decision(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of the log has failed; the program makes it anew, and recovers over the same resources."""

    def fails(*given: Any) -> bool:
        raise DecisionUnknown("the disk has failed")

    with monkeypatch.context() as patched:
        patched.setattr(DecisionLog, "decide", fails)
        with pytest.raises(OutcomeUnknown):
            site.work()
    again = Coordinator(DecisionLog(site.log.path), site.broker, site.database)
    report = again.recover(0.0)
    assert report.settled and len(report.rows) == 2
    assert site.look() == (0, 0)
    site.work()
    assert site.look() == (1, 1)
