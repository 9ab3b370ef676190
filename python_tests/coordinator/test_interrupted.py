"""A worker's time is over, or somebody presses Ctrl-C, in the middle of a call: the next transaction goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from python_tests.coordinator.resources import Queue, Table
from python_tests.postgresql import PostgreSQL
from recovery.coordinator.branches import OutcomeUnknown
from recovery.coordinator.broker import Broker
from recovery.coordinator.coordinator import Coordinator
from recovery.coordinator.decisions import DecisionUnknown
from recovery.coordinator.log import DecisionLog
from recovery.coordinator.postgresql import Postgresql
from recovery.dtx import with_pika
from recovery.dtx.methods import DtxMethod


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
