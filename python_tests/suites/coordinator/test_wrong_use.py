"""Coordinators that are used against their rules: an error says so, and no transaction is halved."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import transaction

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.resources import Queue, Table
from python_tests.suites.coordinator.shop import Shop
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.coordinator import Coordinator, Transaction
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.table import TableDecisions

WRONG_DSNS = ["port=1 password=hun ter=2", "postgresql://me:hun%ter@host/db", "hunter"]


class Bank:
    """A coordinator, and what it works on: a row in a table, and a message in a queue."""

    def __init__(self, dsn: str, urls: list[str], directory: Path) -> None:
        self.table, self.queue = Table(dsn), Queue(urls)
        self.coordinator = Coordinator(DecisionLog(directory / "log"), Broker(*urls), Postgresql(dsn))

    def insert(self, t: Transaction) -> None:
        """The row."""
        t.database.execute(f"INSERT INTO {self.table.own} VALUES ('word')".encode())

    def work(self, t: Transaction) -> None:
        """The row and the message."""
        self.insert(t)
        t.broker.basic_publish("", self.queue.own, b"m")

    def look(self) -> tuple[int, int]:
        """How many rows and messages there are."""
        return len(self.table.look()), len(self.queue.look())


@pytest.fixture
def bank(postgresql: PostgreSQL, urls: list[str], tmp_path: Path) -> Iterator[Bank]:
    """It ends with nothing in doubt, and its coordinator can be used still."""
    bank = Bank(postgresql.dsn, urls, tmp_path)
    yield bank
    before = bank.look()
    with bank.coordinator.transaction() as t:
        bank.work(t)
    assert bank.look() == (before[0] + 1, before[1] + 1)
    assert bank.coordinator.recover(grace=0).settled
    bank.coordinator.close()


def in_thread(call: Callable[[], object]) -> list[BaseException]:
    """Call it in another thread, to its end; what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised


def test_two_threads_with_one_coordinator(bank: Bank) -> None:
    """The second one's work went into the branches of the first one, or the other way round."""

    def second() -> None:
        with bank.coordinator.transaction() as t:
            bank.work(t)

    with bank.coordinator.transaction() as t:
        t.broker.basic_publish("", bank.queue.own, b"m")
        (refused,) = in_thread(second)
        bank.insert(t)
    assert "one transaction at a time" in str(refused)
    assert bank.look() == (1, 1)


def test_a_transaction_within_another(bank: Bank) -> None:
    with pytest.raises(RuntimeError, match="one transaction at a time"), bank.coordinator.transaction() as t:
        bank.work(t)
        with bank.coordinator.transaction() as inner:
            bank.work(inner)
    assert bank.look() == (0, 0)


def test_a_recovery_run_within_a_transaction(bank: Bank) -> None:
    with pytest.raises(RuntimeError, match="one transaction at a time"), bank.coordinator.transaction() as t:
        bank.work(t)
        bank.coordinator.recover()
    assert bank.look() == (0, 0)


@pytest.mark.parametrize("part", ["broker", "database"])
def test_work_behind_the_end_is_no_work_of_nobody(bank: Bank, part: str) -> None:
    """It was done in a branch that no code would end, and was gone without a word."""
    with bank.coordinator.transaction() as t:
        bank.work(t)
    with pytest.raises(RuntimeError, match="this transaction has ended"):
        getattr(t, part)
    assert bank.look() == (1, 1)


@pytest.mark.parametrize("ending", ["COMMIT", "ROLLBACK", "PREPARE TRANSACTION 'mine'"])
@pytest.mark.parametrize("with_broker", [True, False])
def test_a_transaction_that_sql_has_ended(bank: Bank, ending: str, with_broker: bool) -> None:
    """It was told committed, while what it had written was prepared under a name that was not known, or rolled back."""
    with pytest.raises(TransactionRolledBack, match="ended in the middle, by SQL"), bank.coordinator.transaction() as t:
        bank.insert(t)
        if with_broker:
            t.broker.basic_publish("", bank.queue.own, b"m")
        t.database.execute(ending.encode())
    if "PREPARE" in ending:
        with psycopg.connect(bank.table.dsn, autocommit=True) as connection:
            connection.execute("ROLLBACK PREPARED 'mine'")
    assert bank.look() == (1 if ending == "COMMIT" else 0, 0)


def test_a_child_of_fork_with_its_parent_s_coordinator(bank: Bank) -> None:
    """It would speak on the parent's connections."""
    with bank.coordinator.transaction() as t:
        bank.work(t)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with bank.coordinator.transaction():
                pass
        except RuntimeError as error:
            status = 0 if "made before fork" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bank.look() == (1, 1)


def test_a_broker_of_two_threads_under_sqlalchemy(shop: Shop) -> None:
    def second() -> None:
        with transaction.manager:  # a manager for each thread
            orm.place(shop.broker, shop.sessions(), shop.queue.own, "b")

    with transaction.manager:
        orm.place(shop.broker, shop.sessions(), shop.queue.own, "a")
        (refused,) = in_thread(second)
    assert "one transaction at a time" in str(refused)
    assert shop.look() == (1, 1)
    assert in_thread(second) == []  # between transactions it may change hands
    assert shop.look() == (2, 2)


def test_wrong_parts_of_a_coordinator(tmp_path: Path) -> None:
    log, broker, database = DecisionLog(tmp_path / "log"), Broker("amqp://host/"), Postgresql("")
    swapped: tuple[Any, ...] = (log, database, broker)
    with pytest.raises(TypeError, match="decisions, a Broker and a Postgresql, in this order"):
        Coordinator(*swapped)


def test_the_path_of_a_log_may_be_text(tmp_path: Path) -> None:
    path: Any = f"{tmp_path}/log"
    assert DecisionLog(path).whose == DecisionLog(tmp_path / "log").whose


@pytest.mark.parametrize("dsn", [*WRONG_DSNS, 17])
@pytest.mark.parametrize("make", [Postgresql, TableDecisions])
def test_a_dsn_that_cannot_be(dsn: Any, make: Callable[[str], object]) -> None:
    """psycopg's own error quotes what it cannot read, which may be the password."""
    with pytest.raises(ValueError, match="the DSN cannot be read") as told:
        make(dsn)
    assert "hun" not in str(told.value) and "ter" not in str(told.value).replace("written", "")
    error = told.value
    assert error.__suppress_context__ or error.__context__ is None, "nor does a trace show it"
