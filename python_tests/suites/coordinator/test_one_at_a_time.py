"""One connection works in one branch: a caller that begins another transaction over it is told; nothing is halved."""

from __future__ import annotations

from pathlib import Path

import pytest
import transaction
import zope.sqlalchemy
from sqlalchemy.orm import sessionmaker

from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.resources import Queue, Table
from python_tests.suites.coordinator.shop import Shop
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.coordinator import Coordinator, Transaction
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import ResourceLost


@pytest.mark.parametrize("first", ["outer", "inner"])
def test_a_broker_joined_to_two_transactions_at_a_time(shop: Shop, first: str) -> None:
    """The vote of one would prepare the branch of the other, and its own messages would be lost."""
    inner = transaction.TransactionManager()
    others = sessionmaker(shop.sessions.kw["bind"])
    zope.sqlalchemy.register(others, transaction_manager=inner)
    transaction.begin()
    orm.place(shop.broker, shop.sessions(), shop.queue.own, "a")
    inner.begin()
    session = others()
    channel = shop.broker.join(session, inner)
    session.add(orm.Order(number="b", customer="b"))
    channel.basic_publish("", shop.queue.own, b"b")
    if first == "outer":
        with pytest.raises(TransactionRolledBack, match="one at a time"):
            transaction.commit()
        transaction.abort()
        inner.commit()
    else:
        inner.commit()
        with pytest.raises(TransactionRolledBack, match="one at a time"):
            transaction.commit()
        transaction.abort()
    assert shop.look() == (1, 1)
    assert shop.recover().settled
    shop.place("c")
    assert shop.look() == (2, 2)


@pytest.fixture
def table(postgresql: PostgreSQL) -> Table:
    return Table(postgresql.dsn)


def test_work_of_a_transaction_that_was_left_acts_nowhere(table: Table, urls: list[str], tmp_path: Path) -> None:
    """Outside of a branch, and in another one, what is published takes effect without it. Two share their resources."""
    queue = Queue(urls)
    database, broker = table.open(), queue.open()
    assert isinstance(database, Postgresql) and isinstance(broker, Broker)
    coordinator, other = (Coordinator(DecisionLog(tmp_path / "log"), broker, database) for _ in range(2))

    def work(t: Transaction) -> None:
        t.database.execute(f"INSERT INTO {table.own} VALUES ('word')".encode())
        t.broker.basic_publish("", queue.own, b"word")

    with pytest.raises(ResourceLost, match="one at a time"), coordinator.transaction() as outer:
        work(outer)
        with other.transaction() as inner:
            work(inner)
        work(outer)
    for ended in (outer, inner):
        for ask in (lambda: ended.broker, lambda: ended.database):  # noqa: B023
            with pytest.raises(RuntimeError, match="has ended"):
                ask()
    with pytest.raises(ResourceLost, match="one at a time"), coordinator.transaction() as outer:
        work(outer)
        with other.transaction() as inner:
            work(inner)
            outer.broker.basic_publish("", queue.own, b"word")
    assert (len(table.look()), len(queue.look())) == (1, 1)
    with coordinator.transaction() as t:
        work(t)
    assert (len(table.look()), len(queue.look())) == (2, 2)
    queue.close()
    table.close()
