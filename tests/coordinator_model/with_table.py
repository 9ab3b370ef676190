"""Applications on SQLAlchemy and the package transaction: databases decide, in a table of their own schema."""

from __future__ import annotations

import logging
import random
from contextlib import suppress
from typing import Any

import psycopg
import transaction
import zope.sqlalchemy
from psycopg.conninfo import make_conninfo
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.data_manager import TransactionalBroker
from recovery.coordinator.recover import recover
from recovery.coordinator.table import TableDecisions
from tests.coordinator_model.applications import Application, Expected
from tests.coordinator_model.truth import Attempt, Effect
from tests.coordinator_model.world import World

KINDS = ["consume", "consume", "read", "notify", "fail", "late", "raise", "session rollback", "session close"]
KINDS += ["savepoint", "company", "company", "late company", "path", "session rollback"]
LOGGER = logging.getLogger("txha.coordinator")
logging.getLogger("txn").propagate = False
logging.getLogger("txn").addHandler(logging.NullHandler())


class Told(logging.Handler):
    """What is logged as an error of a transaction is told to people."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """The first argument is its name."""
        assert isinstance(record.args, tuple)
        self._world.truth.reported.add(str(record.args[0]))


class Life:
    """What one process has: sessions, their manager, and its broker."""

    def __init__(self, application: WithTable) -> None:
        self.manager = transaction.TransactionManager()
        self.inbox: list[tuple[int, bytes]] = []
        self.broker = TransactionalBroker(application.broker(self.inbox), patience=1.0)
        options = {"isolation_level": "AUTOCOMMIT"} if application.autocommit else {}
        self.engine = _engine(application.dsn, pool_size=1, max_overflow=0, **options)
        self.sessions = self._sessions(self.engine)
        other = make_conninfo("", host="db", dbname="other", user="owner")
        self.others = self._sessions(_engine(other, pool_size=2, max_overflow=0))

    def _sessions(self, engine: Any) -> sessionmaker[Session]:
        found = sessionmaker(engine)
        zope.sqlalchemy.register(found, transaction_manager=self.manager)
        return found


def _engine(dsn: str, **options: Any) -> Any:
    connect = lambda: psycopg.connect(dsn)  # noqa: E731
    return create_engine("postgresql+psycopg://", creator=connect, use_native_hstore=False, pool_timeout=0, **options)


class WithTable(Application):
    """``autocommit``: its engine is in AUTOCOMMIT, by mistake."""

    def __init__(self, world: World, number: int, plan: random.Random) -> None:
        super().__init__(world, number, plan)
        self.autocommit = plan.random() < 0.1

    def live(self) -> None:
        life = Life(self)
        while self.work_left:
            self.work_left -= 1
            attempt = self.transact(life, self.operations(KINDS))
            if attempt.told != "committed" and self.plan.random() < 0.5:
                self._ordinary(life, attempt)
        life.broker.broker.close()
        life.engine.dispose()

    def transact(self, life: Life, operations: list[str]) -> Attempt:
        """One transaction."""
        attempt = self.new_attempt(operations)
        attempt.must = attempt.must and not self.autocommit and "late company" not in operations

        def work() -> None:
            with life.manager:
                session = life.sessions()
                channel = life.broker.join(session, life.manager)
                joined = life.broker.joined
                assert joined is not None
                attempt.names.add(joined._name)
                for name in operations:
                    self._do(name, attempt, life, session, channel)

        self.attempt(attempt, work)
        with suppress(SQLAlchemyError, psycopg.Error):
            life.manager.abort()
        return attempt

    def _do(self, name: str, attempt: Attempt, life: Life, session: Session, channel: Any) -> None:
        if name == "raise":
            raise Expected
        if name in ("publish", "consume"):
            self.at_broker(name, attempt, channel, life.inbox)
        elif name == "session rollback":
            session.rollback()
        elif name == "session close":
            session.close()
        elif name == "savepoint":
            with suppress(SQLAlchemyError), session.begin_nested():
                self.in_database("fail", attempt, lambda statement: session.execute(text(statement)))
        elif name in ("company", "late company"):
            self._company(name, attempt, life)
        else:
            self.in_database(name, attempt, lambda statement: session.execute(text(statement)))

    def _company(self, name: str, attempt: Attempt, life: Life) -> None:
        """Another session, at another database; it may say no when it votes."""
        other = life.others()
        key = f"{attempt.name} {len(attempt.company)}"
        value = "taken" if name == "late company" else key
        other.execute(text(f"INSERT INTO checked VALUES ('{key}', '{value}')"))
        zope.sqlalchemy.mark_changed(other, life.manager)
        rows = lambda: self.world.server.rows("other", "public", "checked")  # noqa: E731
        attempt.company.append(Effect("company", lambda: sum(row["n"] == key for row in rows())))

    def _ordinary(self, life: Life, attempt: Attempt) -> None:
        """A transaction without a broker, on whatever connection the pool has."""
        try:
            with life.engine.connect() as connection:
                connection.execute(text(f"INSERT INTO work VALUES ('ordinary {attempt.name}')"))
                connection.commit()
        except SQLAlchemyError:
            return

    def probe(self) -> Attempt:
        self.autocommit = False
        life = Life(self)
        attempt = self.transact(life, ["insert", "publish"])
        life.broker.broker.close()
        life.engine.dispose()
        return attempt

    # -- recovery

    def recover(self, chance: random.Random, whole: bool, grace: float, forget: bool = False) -> Any:
        """A run with the application's options, over one cluster or both."""
        names = list(self.world.clusters)
        chance.shuffle(names)
        if not whole and chance.random() < 0.3:
            names.pop()
        brokers = {host: Broker(f"amqp://guest:guest@{host}:5672/", patience=1.0) for host in names}
        try:
            return recover(TableDecisions(self.direct_dsn), dict(brokers), grace, forget)
        finally:
            for each in brokers.values():
                each.close()
