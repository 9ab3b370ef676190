"""A shop that takes orders: each is stored by SQLAlchemy and told to a broker, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import transaction

from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.resources import Queue
from recovery.coordinator.recover import Report, recover
from recovery.coordinator.table import TableDecisions


class Shop:
    """A database, a queue, and what they hold."""

    def __init__(self, dsn: str, urls: list[str]) -> None:
        orm.prepare_tables(dsn)
        self.dsn, self.urls = dsn, urls
        self.queue = Queue(urls)
        self.sessions = orm.sessions(dsn)
        self.at: dict[str, Callable[[], Any]] = {}
        self.broker = orm.transactional(urls, self._reached)

    def _reached(self, step: str) -> None:
        self.at.get(step, lambda: None)()

    def place(self, number: str, *others: Any) -> None:
        """One transaction, with other data managers in it."""
        with transaction.manager as present:
            for other in others:
                present.join(other)
            orm.place(self.broker, self.sessions(), self.queue.own, number)

    def look(self) -> tuple[int, int]:
        """Orders that are stored, and messages that were sent and not taken."""
        with psycopg.connect(self.dsn) as connection:
            [(stored,)] = connection.execute("SELECT count(*) FROM orm_orders").fetchall()
        return stored, len(self.queue.look())

    def decisions(self) -> int:
        """Rows in the table of decisions that say commit."""
        with psycopg.connect(self.dsn) as connection:
            [(rows,)] = connection.execute("SELECT count(*) FROM txha_decisions WHERE committed").fetchall()
        return int(rows)

    def recover(self) -> Report:
        """A recovery run of another process."""
        return recover(TableDecisions(self.dsn), {"broker": self.queue.open()}, 0.0)
