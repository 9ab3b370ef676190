"""What a teller works with: one of the two ways to have a database and a broker in one transaction."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import transaction
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.pika_clients import PERSISTENT, parameters
from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.transfer import PATIENCE
from python_tests.suites.money.case import CONSUME, LOG
from python_tests.suites.money.orders import Orders
from recovery.coordinator import log_lines
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinator import Coordinator
from recovery.coordinator.data_manager import TransactionalBroker
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.postgresql import Postgresql

PREFETCH = 2
WAIT_SECONDS = 0.1
"""For a message that is subscribed to."""

DEBIT = "UPDATE accounts SET balance = balance - %(amount)s WHERE number = %(account)s"
CREDIT = "UPDATE accounts SET balance = balance + %(amount)s WHERE number = %(account)s"
SENT = "INSERT INTO sent (transfer, account, amount) VALUES (%(name)s, %(account)s, %(amount)s)"
BOOKED = (
    "INSERT INTO booked (transfer, attempt, account, amount) VALUES (%(transfer)s, %(name)s, %(account)s, %(amount)s)"
)

Execute = Callable[[str, dict[str, Any]], Any]


class Nothing(Exception):
    """No message waits."""


class OnPurpose(Exception):
    """The application has changed its mind."""


class Desk(ABC):
    """Two kinds of transactions. Both raise what resources and coordinators raise."""

    def __init__(self, orders: Orders, reached: Callable[[str], None]) -> None:
        self._orders = orders
        self._reached = reached
        self._inbox: list[tuple[int, bytes]] = []
        """Deliveries, also of channels that are lost by now: a teller that acknowledges one of those must be told."""
        on_channel = self._subscribe if orders.takes == CONSUME else None
        self._broker = Broker(*map(parameters, orders.urls), patience=PATIENCE, on_channel=on_channel)

    def send(self, name: str, account: int, amount: int, on_purpose: bool) -> None:
        """An account is debited, and the transfer published."""
        values = {"name": name, "account": account, "amount": amount}
        with self._begun() as (execute, channel):
            execute(DEBIT, values)
            execute(SENT, values)
            self._reached("account debited")
            body = json.dumps({"transfer": name, "amount": amount}).encode()
            channel().basic_publish("", self._orders.queue_out, body, PERSISTENT, mandatory=True)
            self._reached("message published")
            if on_purpose:
                raise OnPurpose

    def book(self, name: str, account: int, on_purpose: bool) -> None:
        """A message is acknowledged, and an account credited. Raises Nothing."""
        with self._begun() as (execute, channel):
            tag, body = self._take(channel())
            self._reached("message taken")
            values = {**json.loads(body), "name": name, "account": account}
            execute(CREDIT, values)
            execute(BOOKED, values)
            self._reached("account credited")
            self._inbox = [each for each in self._inbox if each[0] != tag]
            channel().basic_ack(tag)
            self._reached("message acknowledged")
            if on_purpose:
                raise OnPurpose

    def _subscribe(self, channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(
            self._orders.queue_in, lambda _, method, __, body: self._inbox.append((method.delivery_tag, body))
        )

    def _take(self, channel: BlockingChannel) -> tuple[int, bytes]:
        """A message stays in the inbox until a teller has tried to acknowledge it."""
        if self._orders.takes == CONSUME:
            if not self._inbox:
                channel.connection.process_data_events(time_limit=WAIT_SECONDS)
        elif not self._inbox:
            method, _, body = channel.basic_get(self._orders.queue_in)
            if method is not None:
                self._inbox.append((method.delivery_tag, body))
        if not self._inbox:
            raise Nothing
        return self._inbox[0]

    @abstractmethod
    def _begun(self) -> AbstractContextManager[tuple[Execute, Callable[[], Any]]]:
        """A transaction: what executes statements in it, and what gives its channel. Its end commits it."""

    def close(self) -> None:
        """Let go of everything; what was delivered and not acknowledged goes back."""
        self._broker.close()


class LogDesk(Desk):
    """The coordinator and its log."""

    def __init__(self, orders: Orders, reached: Callable[[str], None]) -> None:
        super().__init__(orders, reached)
        decisions = DecisionLog(Path(orders.log), orders.compact, reached=reached)
        database = Postgresql(orders.dsn)
        self._coordinator = Coordinator(decisions, self._broker, database, PATIENCE, reached)

    @contextmanager
    def _begun(self) -> Iterator[tuple[Execute, Callable[[], Any]]]:
        with self._coordinator.transaction() as t:
            yield (lambda statement, values: t.database.execute(statement, values)), lambda: t.broker

    def close(self) -> None:
        self._coordinator.close()


class TableDesk(Desk):
    """SQLAlchemy, and the table of decisions."""

    def __init__(self, orders: Orders, reached: Callable[[str], None]) -> None:
        super().__init__(orders, reached)
        self._sessions = orm.sessions(orders.dsn, prepare_threshold=None)
        self._transactional = TransactionalBroker(self._broker, PATIENCE, reached)

    @contextmanager
    def _begun(self) -> Iterator[tuple[Execute, Callable[[], Any]]]:
        with transaction.manager:
            session = self._sessions()
            self._transactional.join(session)

            yield session.connection().exec_driver_sql, lambda: self._transactional.join(session)


def desk(orders: Orders, reached: Callable[[str], None]) -> Desk:
    """The one that is ordered. A log forgets at once what has ended, so that it is made smaller now and then."""
    mock.patch.object(log_lines, "ENDED_KEPT", 0.0).start()
    return (LogDesk if orders.way == LOG else TableDesk)(orders, reached)
