"""A coordinator for one broker and one PostgreSQL database, with a context manager for a transaction.

    coordinator = Coordinator(DecisionLog(path), Broker(urls), Postgresql(dsn))
    with coordinator.transaction() as t:
        method, _, body = t.broker.basic_get("orders")
        t.database.execute("UPDATE accounts SET balance = balance - 10")
        t.broker.basic_publish("", "invoices", body)
        t.broker.basic_ack(method.delivery_tag)

One coordinator has one connection to each, so it is for one thread and one transaction at a time. Any number of
coordinators, in threads and processes, may share a log.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinated_branches import PATIENCE, CoordinatedBranches
from recovery.coordinator.decisions import Decisions
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.recover import GRACE, Report, recover
from recovery.coordinator.resources import Resource
from recovery.coordinator.steps import Reached, unwatched
from txobserver.xid import Xid


class Transaction:
    """One transaction: a resource takes part in it from the first time on that it is asked for here.

    ``ended``: its block has been left, and what would be done now belongs to nothing.
    """

    def __init__(self, branches: CoordinatedBranches, broker: Broker, database: Postgresql) -> None:
        self._branches = branches
        self._broker = broker
        self._database = database
        self.ended = False

    @property
    def name(self) -> str:
        """Its global name, as ``pg_prepared_xacts`` and ``txha dtx list`` show it (each in its own way)."""
        return self._branches.name

    @property
    def broker(self) -> Any:
        """The channel. What is published and acknowledged on it is part of the transaction. Raises ResourceLost."""
        return self._broker.channel_in(self._begin("broker"))

    @property
    def database(self) -> psycopg.Connection[Any]:
        """The connection. What is executed on it is part of the transaction. Raises ResourceLost."""
        return self._database.connection_in(self._begin("database"))

    def _begin(self, part: str) -> Xid:
        if self.ended:
            raise RuntimeError("this transaction has ended: begin another one with coordinator.transaction()")
        return self._branches.begin(part)


class Coordinator:
    """``patience``: seconds for which a commit waits for a resource that was lost behind the decision.

    ``reached``: for tests; it is told each step by name. Raises TypeError for something else than a broker and
    a database.
    """

    def __init__(
        self,
        decisions: Decisions,
        broker: Broker,
        database: Postgresql,
        patience: float = PATIENCE,
        reached: Reached = unwatched,
    ) -> None:
        if not isinstance(broker, Broker) or not isinstance(database, Postgresql):
            raise TypeError("a coordinator is made of decisions, a Broker and a Postgresql, in this order")
        self._decisions = decisions
        self._broker = broker
        self._database = database
        self._patience = patience
        self._reached = reached
        self._process = os.getpid()
        self._in_use = threading.Lock()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Commits at the end of the block, rolls back if that is left by an exception.

        Raises ResourceLost, TransactionRolledBack, OutcomeUnknown, HeuristicTransaction (docs/errors.md), and
        RuntimeError if another transaction of this coordinator has not ended, in whichever thread.
        """
        with self._alone():
            yield from self._transaction()

    def _transaction(self) -> Iterator[Transaction]:
        resources: dict[str, Resource] = {"database": self._database, "broker": self._broker}
        branches = CoordinatedBranches(self._decisions, resources, self._patience, self._reached)
        transaction = Transaction(branches, self._broker, self._database)
        try:
            yield transaction
        except BaseException:
            transaction.ended = True
            branches.abandon()
            raise
        transaction.ended = True
        branches.commit()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Else the work of one transaction would be done in the branches of the other. Raises RuntimeError."""
        if self._process != os.getpid():
            raise RuntimeError("this coordinator was made before fork, and its connections are the parent's: make one")
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError("a coordinator is for one transaction at a time: take one for each thread")
        try:
            yield
        finally:
            self._in_use.release()

    def recover(self, grace: float = GRACE, forget: bool = False) -> Report:
        """A recovery run over this broker and this database. ``grace``: seconds.

        A branch that is still at hand there, as behind an interrupt, is left. Raises RuntimeError within a transaction,
        and TypeError or ValueError for a ``grace`` that cannot be.
        """
        with self._alone():
            self._database.leave()
            self._broker.leave()
            return recover(self._decisions, {"broker": self._broker, "database": self._database}, grace, forget)

    def close(self) -> None:
        """Let go of both connections; the log is its owner's."""
        self._broker.close()
        self._database.close()
