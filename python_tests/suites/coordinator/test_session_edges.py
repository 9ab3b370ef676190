"""Sessions at the edges of what SQLAlchemy lets them do: rolled back in between, or in company."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
import transaction
import zope.sqlalchemy
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker
from transaction.interfaces import TransientError

from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.orm import Order
from python_tests.suites.coordinator.shop import Shop
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.table import TableDecisions


def sessions_on(dsn: str, **options: Any) -> sessionmaker[Session]:
    """Sessions on an engine with these options."""
    maker = sessionmaker(create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), **options))
    zope.sqlalchemy.register(maker)
    return maker


# -- a session that is rolled back in between


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("how", ["rollback", "close"])
def test_no_commit_row_in_somebody_else_s_transaction(shop: Shop, again: bool, how: str) -> None:
    """The application catches an error with session.rollback(): its connection goes back to the pool."""
    sessions = sessions_on(shop.dsn, pool_size=1, max_overflow=0)
    engine = sessions.kw["bind"]
    with pytest.raises(TransactionRolledBack, match="begin again"), transaction.manager:
        session = sessions()
        orm.place(shop.broker, session, shop.queue.own, "a")
        session.flush()
        getattr(session, how)()
        if again:
            session.add(Order(number="b", customer="b"))
    assert shop.look() == (0, 0)
    with engine.connect() as pooled:  # an ordinary transaction, on the connection that the session had
        pooled.execute(text("INSERT INTO orm_orders VALUES ('c', 'c')"))
        pooled.commit()
    assert shop.decisions() == 0
    assert shop.look() == (1, 0)
    assert shop.queue.open().in_doubt() == []


def test_to_join_again_behind_a_rollback_is_refused(shop: Shop) -> None:
    """At once, not by the vote when all the work has been done."""
    joined_again = False
    with pytest.raises(TransactionRolledBack), transaction.manager:
        session = shop.sessions()
        orm.place(shop.broker, session, shop.queue.own, "a")
        session.rollback()
        orm.place(shop.broker, session, shop.queue.own, "b")
        joined_again = True
    assert not joined_again and shop.look() == (0, 0)
    shop.place("a")
    assert shop.look() == (1, 1)


def test_a_savepoint_before_the_broker_joined(shop: Shop) -> None:
    """What is published behind its rollback is part of the transaction again."""
    with pytest.raises(ZeroDivisionError), transaction.manager:
        savepoint = transaction.savepoint()
        orm.place(shop.broker, shop.sessions(), shop.queue.own, "a")
        savepoint.rollback()
        orm.place(shop.broker, shop.sessions(), shop.queue.own, "b")
        raise ZeroDivisionError
    assert shop.look() == (0, 0)


def test_a_failed_statement_that_was_caught_rolls_both_back(shop: Shop) -> None:
    with pytest.raises(TransactionRolledBack, match="a statement has failed"), transaction.manager:
        session = shop.sessions()
        orm.place(shop.broker, session, shop.queue.own, "a")
        session.flush()
        with pytest.raises(IntegrityError):
            session.connection().execute(text("INSERT INTO orm_orders VALUES ('a', 'a')"))
    assert shop.look() == (0, 0)


def test_no_commit_row_behind_a_rollback_on_the_connection_itself(shop: Shop) -> None:
    """The session knows nothing of it, and would commit the row alone."""
    with pytest.raises(TransactionRolledBack, match="ended without it"), transaction.manager:
        session = shop.sessions()
        orm.place(shop.broker, session, shop.queue.own, "a")
        session.flush()
        connection = session.connection().connection.driver_connection
        assert isinstance(connection, psycopg.Connection)
        connection.rollback()
    assert shop.look() == (0, 0) and shop.decisions() == 0


def test_an_error_that_a_savepoint_catches_rolls_back_its_own_part(shop: Shop) -> None:
    shop.place("a")
    with transaction.manager:
        session = shop.sessions()
        with session.begin_nested():
            orm.place(shop.broker, session, shop.queue.own, "b")
        with pytest.raises(IntegrityError), session.begin_nested():
            session.add(Order(number="a", customer="c"))
    assert shop.look() == (2, 2)


def test_an_engine_in_autocommit_is_refused(shop: Shop) -> None:
    with pytest.raises(ValueError, match="AUTOCOMMIT"), transaction.manager:
        session = sessions_on(shop.dsn, isolation_level="AUTOCOMMIT")()
        orm.place(shop.broker, session, shop.queue.own, "a")
    assert shop.look() == (0, 0)


def test_a_session_that_zope_does_not_know_is_refused(shop: Shop) -> None:
    with pytest.raises(ValueError, match=r"register it with zope\.sqlalchemy"), transaction.manager:
        orm.place(shop.broker, sessionmaker(shop.sessions.kw["bind"])(), shop.queue.own, "a")
    assert shop.look() == (0, 0)


# -- a session whose commit is no decision


class OtherBase(DeclarativeBase):
    """What is in another database."""


class Receipt(OtherBase):
    """The receipt of a customer, who has at most one: the database checks that when it commits."""

    __tablename__ = "orm_orders"
    number: Mapped[str] = mapped_column(primary_key=True)
    customer: Mapped[str]


@pytest.mark.parametrize("flush", [True, False])
def test_a_session_at_two_databases_is_refused(shop: Shop, flush: bool) -> None:
    """It commits one after the other, in any order, and a no of the second one comes too late."""
    elsewhere = shop.dsn.replace("dbname=bank", "dbname=postgres")
    orm.prepare_tables(elsewhere)
    with psycopg.connect(elsewhere) as connection:
        connection.execute("INSERT INTO orm_orders VALUES ('first', 'first')")
    here, there = shop.sessions.kw["bind"], orm.sessions(elsewhere).kw["bind"]
    sessions = sessionmaker(here, binds={Order: here, Receipt: there})
    zope.sqlalchemy.register(sessions)
    for turn in range(8):
        with pytest.raises(TransactionRolledBack, match="several connections"), transaction.manager:
            session = sessions()
            orm.place(shop.broker, session, shop.queue.own, f"order {turn}")
            session.add(Receipt(number=f"receipt {turn}", customer="first"))
            if flush:
                session.flush()
    assert shop.look() == (0, 0)


@pytest.mark.parametrize("mode", ["conditional_savepoint", "rollback_only", "create_savepoint"])
def test_a_session_in_somebody_else_s_transaction_is_refused(shop: Shop, mode: Any) -> None:
    """Its commit would leave the row of the decision to the session that ends that."""
    with shop.sessions.kw["bind"].connect() as connection, connection.begin() as begun:
        session = Session(connection, join_transaction_mode=mode)
        zope.sqlalchemy.register(session)
        with pytest.raises(TransactionRolledBack, match="does not commit that"), transaction.manager:
            orm.place(shop.broker, session, shop.queue.own, "a")
        begun.rollback()
    assert shop.look() == (0, 0)


def test_a_session_s_transaction_that_is_too_old_decides_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery run may have recorded its abort, which is forgotten by then."""
    monkeypatch.setattr("recovery.coordinator.data_manager.LONGEST_TRANSACTION", -1.0)
    with pytest.raises(TransactionRolledBack, match="too old"):
        shop.place("a")
    assert shop.look() == (0, 0) and shop.decisions() == 0
    assert shop.queue.open().in_doubt() == []


AHEAD = """
    CREATE SCHEMA ahead;
    CREATE FUNCTION ahead.now() RETURNS timestamptz LANGUAGE sql AS $$SELECT pg_catalog.now() + interval '3 days'$$;
    CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz LANGUAGE sql
        AS $$SELECT pg_catalog.clock_timestamp() + interval '3 days'$$
"""
"""A clock that was set forward, for a session that has this schema in front of the system's."""


def test_a_server_s_clock_set_forward_decides_no_commit_that_was_aborted(shop: Shop) -> None:
    """A recovery run has recorded the abort, and the next one has forgotten it by that clock; the coordinator's has not
    gone on."""
    session = shop.sessions()
    path = "search_path = ahead, pg_catalog, public"

    def set_forward() -> None:
        shop.recover()
        session.execute(text(f"SET LOCAL {path}"))
        TableDecisions(shop.dsn, options=f"-c {path.replace(' ', '')}").unfinished()
        with psycopg.connect(shop.dsn) as connection:
            assert connection.execute("SELECT name FROM txha_decisions").fetchall() == []

    shop.at["broker prepared"] = set_forward
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        connection.execute(AHEAD)
        try:
            with pytest.raises(TransactionRolledBack, match="too old"), transaction.manager:
                orm.place(shop.broker, session, shop.queue.own, "a")
        finally:
            connection.execute("DROP SCHEMA ahead CASCADE")
    assert shop.look() == (0, 0) and shop.decisions() == 0


# -- other data managers


class Voter:
    """A data manager with this key, whose vote is no."""

    transaction_manager = transaction.manager

    def __init__(self, key: str) -> None:
        self._key = key

    def sortKey(self) -> str:
        return self._key

    def tpc_vote(self, transaction: Any) -> None:
        raise TransientError("no")

    def nothing(self, transaction: Any) -> None:
        """Nothing to do."""

    tpc_begin = commit = tpc_finish = tpc_abort = abort = nothing


@pytest.mark.parametrize("key", ["~sqlalchemy:0", "~sqlalchemy:~", "~~", "\uffff"])
def test_the_deciding_session_votes_last(shop: Shop, key: str) -> None:
    """A no behind the decision would come too late."""
    with pytest.raises(TransientError):
        shop.place("a", Voter(key))
    assert shop.look() == (0, 0)


def test_a_second_session_s_no_is_heard_before_the_decision(shop: Shop) -> None:
    """zope.sqlalchemy sorts sessions by chance, so this needs some turns."""
    elsewhere = shop.dsn.replace("dbname=bank", "dbname=postgres")
    orm.prepare_tables(elsewhere)
    with psycopg.connect(elsewhere) as connection:
        connection.execute("INSERT INTO orm_orders VALUES ('first', 'first')")
    others, kept = orm.sessions(elsewhere), []
    for turn in range(12):
        with pytest.raises(IntegrityError), transaction.manager:
            kept.append([object() for _ in range(turn * 7)])
            session, other = shop.sessions(), others()
            if turn % 2:
                other.connection()
            orm.place(shop.broker, session, shop.queue.own, f"order {turn}")
            other.add(Order(number="second", customer="first"))
    assert shop.look() == (0, 0)


def test_two_sessions_cannot_both_decide(shop: Shop) -> None:
    second = orm.transactional(shop.urls, lambda step: None)
    with pytest.raises(ValueError, match="another session's commit"), transaction.manager:
        orm.place(shop.broker, shop.sessions(), shop.queue.own, "a")
        orm.place(second, shop.sessions(), shop.queue.own, "b")
    assert shop.look() == (0, 0)
    second.broker.close()


def test_two_brokers_in_one_session_s_transaction(shop: Shop) -> None:
    second = orm.transactional(shop.urls, lambda step: None)
    with transaction.manager:
        session = shop.sessions()
        orm.place(shop.broker, session, shop.queue.own, "a")
        orm.place(second, session, shop.queue.own, "b")
    assert shop.look() == (2, 2)
    second.broker.close()
