"""Sessions whose COMMIT is not answered, or with an error: what became of it is told, or that it is not known."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import transaction
import zope.sqlalchemy
from sqlalchemy import event, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.database_door import DatabaseDoor
from python_tests.suites.coordinator.orm import Order
from python_tests.suites.coordinator.shop import Shop
from python_tests.suites.coordinator.test_no_xid import make_foreign_ledger
from recovery.coordinator.own_statements import COMMITTED
from recovery.coordinator.recover import Report
from recovery.coordinator.table import TableDecisions
from recovery.dtx.errors import OutcomeUnknown


def fail(session: Session, *ended: object) -> None:
    """As a listener of the application's own may."""
    raise ZeroDivisionError


@pytest.fixture
def lossy(shop: Shop, postgresql: PostgreSQL) -> Any:
    """The shop's sessions come through a door."""
    with DatabaseDoor(postgresql.port) as door:
        shop.sessions = orm.sessions(shop.dsn.replace(f"port={postgresql.port}", f"port={door.port}"))
        yield door


def test_a_lost_commit_that_was_one_is_told_as_one(shop: Shop, lossy: DatabaseDoor) -> None:
    shop.at["decision written"] = lambda: setattr(lossy, "lose_answer", b"COMMIT\0")
    shop.place("a")
    assert lossy.lost == 1
    assert shop.look() == (1, 1)
    assert shop.queue.open().in_doubt() == []
    shop.at.clear()
    shop.place("b")
    assert shop.look() == (2, 2)


def test_a_lost_commit_that_was_none_is_rolled_back(shop: Shop, lossy: DatabaseDoor) -> None:
    shop.at["decision written"] = lambda: setattr(lossy, "lose_request", b"COMMIT")
    with pytest.raises(OperationalError):
        shop.place("a")
    assert lossy.lost == 1
    assert shop.look() == (0, 0)
    assert shop.queue.open().in_doubt() == []


def test_a_lost_commit_that_nobody_can_be_asked_for_is_unknown(shop: Shop, lossy: DatabaseDoor) -> None:
    def lose() -> None:
        lossy.lose_answer, lossy.shut = b"COMMIT\0", True

    shop.at["decision written"] = lose
    with pytest.raises(OutcomeUnknown):
        shop.place("a")
    assert shop.look() == (1, 0)
    assert shop.recover().settled
    assert shop.look() == (1, 1)


def test_a_lost_commit_that_a_recovery_run_has_finished_is_told_as_one(shop: Shop, lossy: DatabaseDoor) -> None:
    """It takes minutes, perhaps, to notice the loss; the run has removed the row by then."""
    reports: list[Report] = []

    def run() -> None:
        reports.append(shop.recover())

    lossy.meanwhile = run
    shop.at["decision written"] = lambda: setattr(lossy, "lose_answer", b"COMMIT\0")
    shop.place("a")
    assert lossy.lost == 1 and reports[0].settled and shop.decisions() == 0
    assert shop.look() == (1, 1)
    shop.at.clear()
    shop.place("b")
    assert shop.look() == (2, 2)


def test_a_lost_commit_whose_number_another_transaction_was_given_is_none(
    shop: Shop, lossy: DatabaseDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash had lost it. The broker's branch is prepared, so no run has removed its row."""
    shop.at["decision written"] = lambda: setattr(lossy, "lose_request", b"COMMIT")
    monkeypatch.setattr(TableDecisions, "status", lambda self, ticket: COMMITTED)
    with pytest.raises(OperationalError):
        shop.place("a")
    assert lossy.lost == 1
    assert shop.look() == (0, 0)
    assert shop.queue.open().in_doubt() == []


def test_an_error_before_the_commit_is_told_as_it_is(shop: Shop) -> None:
    """The session is open, and its row stands in the way of a query for it."""
    session = shop.sessions()
    event.listen(session, "before_commit", fail)
    with pytest.raises(ZeroDivisionError), transaction.manager:
        orm.place(shop.broker, session, shop.queue.own, "a")
    event.remove(session, "before_commit", fail)
    assert shop.look() == (0, 0)
    assert shop.queue.open().in_doubt() == []


def test_an_error_behind_a_commit_in_which_the_broker_has_no_part(shop: Shop) -> None:
    """No row tells of it; the transaction's number does."""
    session = shop.sessions()
    event.listen(session, "after_commit", fail)
    with transaction.manager:
        shop.broker.join(session)
        session.add(Order(number="a", customer="a"))
    event.remove(session, "after_commit", fail)
    assert shop.look() == (1, 0)
    with pytest.raises(IntegrityError), transaction.manager:
        shop.broker.join(session)
        session.add(Order(number="b", customer="a"))
    assert shop.look() == (1, 0)


def test_an_error_behind_a_commit_in_which_one_of_two_brokers_has_no_part(shop: Shop) -> None:
    """They vote in any order."""
    second, session = orm.transactional(shop.urls, lambda step: None), shop.sessions()
    event.listen(session, "after_commit", fail)
    for turn in range(6):
        with transaction.manager:
            orm.place(shop.broker, session, shop.queue.own, f"order {turn}")
            second.join(session)
    event.remove(session, "after_commit", fail)
    assert shop.look() == (6, 6)
    second.broker.close()


def test_the_next_transaction_leaves_to_recovery_what_is_in_doubt(shop: Shop, lossy: DatabaseDoor) -> None:
    """When it begins, the package aborts the failed one once more, whose decision no server could be asked for."""

    def lose() -> None:
        lossy.lose_answer, lossy.shut = b"COMMIT\0", True

    shop.at["decision written"] = lose
    with pytest.raises(OutcomeUnknown):
        shop.place("a")
    transaction.begin()
    transaction.abort()
    assert shop.recover().settled
    assert shop.look() == (1, 1)


@pytest.mark.parametrize(
    ("which", "lost", "told", "orders"),
    [("lose_answer", b"COMMIT\0", OutcomeUnknown, 1), ("lose_request", b"COMMIT", OperationalError, 0)],
)
def test_a_lost_commit_of_a_database_alone(
    shop: Shop, lossy: DatabaseDoor, which: str, lost: bytes, told: type[Exception], orders: int
) -> None:
    """Nothing was published, so no row tells whether it was one; its number may be another's now, if it committed."""
    shop.at["broker prepared"] = lambda: setattr(lossy, which, lost)
    with pytest.raises(told), transaction.manager:
        work_alone(shop, "a", "a")
    assert lossy.lost == 1 and shop.look() == (orders, 0)


def test_a_commit_of_a_database_alone_that_it_refuses_is_rolled_back(shop: Shop) -> None:
    shop.place("a")
    with pytest.raises(IntegrityError), transaction.manager:
        work_alone(shop, "b", "a")
    assert shop.look() == (1, 1)


@pytest.mark.parametrize("behind", ["after_commit", "after_transaction_end"])
def test_an_error_behind_a_commit_that_has_written_to_a_foreign_table_alone(
    shop: Shop, postgresql: PostgreSQL, behind: str
) -> None:
    """It has no number. Its caller was told that it failed, and would have written the row a second time."""
    make_foreign_ledger(postgresql)
    session = shop.sessions()
    with transaction.manager:
        shop.broker.join(session)
        session.execute(text("INSERT INTO ledger VALUES (1)"))
        event.listen(session, behind, fail)
    event.remove(session, behind, fail)
    with psycopg.connect(shop.dsn) as connection:
        assert connection.execute("SELECT n FROM ledger").fetchall() == [(1,)]


def test_a_commit_without_a_number_that_fails_behind_a_savepoint_is_told_as_it_is(
    shop: Shop, postgresql: PostgreSQL
) -> None:
    """The release of a savepoint is told to listeners like a commit, and is none."""
    make_foreign_ledger(postgresql)
    with psycopg.connect(postgresql.dsn.replace("dbname=bank", "dbname=postgres")) as there:
        there.execute("ALTER TABLE ledger ADD UNIQUE (n) DEFERRABLE INITIALLY DEFERRED")
    session = shop.sessions()

    def write_twice(session: Session) -> None:
        for _ in range(2):
            with session.begin_nested():
                session.execute(text("INSERT INTO ledger VALUES (1)"))

    with pytest.raises(IntegrityError), transaction.manager:
        shop.broker.join(session)
        session.get(Order, "a")
        event.listen(session, "before_commit", write_twice, once=True)
    with psycopg.connect(shop.dsn) as connection:
        assert connection.execute("SELECT n FROM ledger").fetchall() == []


def test_an_error_in_front_of_a_commit_without_a_number_is_told_as_it_is(shop: Shop) -> None:
    """Nothing was committed."""
    session = shop.sessions()
    event.listen(session, "before_commit", fail)
    with pytest.raises(ZeroDivisionError), transaction.manager:
        shop.broker.join(session)
        assert session.get(Order, "a") is None
    event.remove(session, "before_commit", fail)


def work_alone(shop: Shop, number: str, customer: str) -> None:
    """An order that the broker is told nothing of."""
    session = shop.sessions()
    shop.broker.join(session)
    session.add(Order(number=number, customer=customer))


@pytest.mark.parametrize("keep", [False, True])
def test_an_error_behind_the_commit_does_not_undo_it(shop: Shop, keep: bool) -> None:
    """An application's own listener fails, when the database has committed."""
    sessions = sessionmaker(shop.sessions.kw["bind"])
    zope.sqlalchemy.register(sessions, keep_session=keep)
    session = sessions()
    event.listen(session, "after_commit", fail)
    with transaction.manager:
        orm.place(shop.broker, session, shop.queue.own, "a")
    assert shop.look() == (1, 1)
    event.remove(session, "after_commit", fail)
    with transaction.manager:
        orm.place(shop.broker, session, shop.queue.own, "b")
    assert shop.look() == (2, 2)
