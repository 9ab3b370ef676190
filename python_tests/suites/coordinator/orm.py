"""An order that SQLAlchemy stores and that is published to a broker, in one transaction of the package ``transaction``.

python -m python_tests.suites.coordinator.orm DSN URL[,URL…] QUEUE NUMBER --die-at STEP
"""

from __future__ import annotations

import argparse
import os
import signal
from typing import Any

import psycopg
import transaction
import zope.sqlalchemy
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from python_tests.harness.pika_clients import PERSISTENT, parameters
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.data_manager import TransactionalBroker
from recovery.coordinator.steps import Reached
from recovery.coordinator.table import create_table

STEPS_OF_ORM = ("broker begun", "broker prepared", "decision written", "database committed", "broker committed")
"""The steps that the data manager makes, in order."""


class Base(DeclarativeBase):
    """All tables of this work."""


class Order(Base):
    """An order with its number; ``customer`` must be one of its kind, which is looked at when the database commits."""

    __tablename__ = "orm_orders"
    number: Mapped[str] = mapped_column(primary_key=True)
    customer: Mapped[str]


def prepare_tables(dsn: str) -> None:
    """Orders and decisions, if they are not there."""
    with psycopg.connect(dsn) as connection:
        create_table(connection)
        connection.execute("DROP TABLE IF EXISTS orm_orders")
        connection.execute(
            "CREATE TABLE orm_orders (number text PRIMARY KEY, customer text UNIQUE DEFERRABLE INITIALLY DEFERRED)"
        )


def sessions(dsn: str, twophase: bool = False, **options: Any) -> sessionmaker[Session]:
    """Sessions that take part in the present transaction; ``options`` are psycopg's for ``connect``."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn, **options))
    maker = sessionmaker(engine, twophase=twophase)
    zope.sqlalchemy.register(maker)
    return maker


def place(broker: TransactionalBroker, session: Session, queue: str, number: str) -> None:
    """The work; the caller's transaction commits it."""
    channel = broker.join(session)
    session.add(Order(number=number, customer=number))
    channel.basic_publish("", queue, number.encode(), PERSISTENT)


def transactional(urls: list[str], reached: Reached) -> TransactionalBroker:
    """A broker whose every step is told."""
    return TransactionalBroker(Broker(*map(parameters, urls)), reached=reached)


def main() -> None:
    """One order."""
    parser = argparse.ArgumentParser(description="One order.")
    for name in ("dsn", "urls", "queue", "number"):
        parser.add_argument(name)
    parser.add_argument("--die-at", choices=STEPS_OF_ORM, required=True)
    given = parser.parse_args()

    def reached(step: str) -> None:
        if step == given.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    with transaction.manager:
        place(transactional(given.urls.split(","), reached), sessions(given.dsn)(), given.queue, given.number)


if __name__ == "__main__":
    main()
