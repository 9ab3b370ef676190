"""The work that the crash tests break: take an order, debit an account, publish an invoice and a parcel, or nothing.

    python -m python_tests.suites.coordinator.transfer LOG DSN URL[,URL…] [--die-at STEP]

makes one transfer, says each step on stdout as it is made, then how it ended. At the given step it kills itself.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pika
import psycopg
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.pika_clients import PERSISTENT, parameters
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.coordinator.coordinator import Coordinator
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import ResourceLost, ResourceRefused
from recovery.dtx.errors import OutcomeUnknown

ORDERS, OUTPUTS = "orders", ("invoices", "parcels")
ACCOUNTS = ("anna", "bert")
START_BALANCE = 1_000_000
PATIENCE = 2.0
"""Seconds that a transfer waits for what was killed; after that the recovery run has to do it."""

WORK_STEPS = ("order taken", "account debited", "messages published")
ORDER_OF_STEPS = (
    *("broker begun", "order taken", "database begun", "account debited", "messages published"),
    *("database prepared", "broker prepared", "decision written", "decision synced"),
    *("database committed", "broker committed", "finished"),
)
"""Every step between start and forget, in the order in which a transfer makes them."""

COMMITTED, ROLLED_BACK, UNKNOWN, KILLED = "committed", "rolled back", "unknown", "killed"
REFUSED = (pika.exceptions.AMQPError, psycopg.Error, ResourceLost, ResourceRefused, OSError)
"""What work raises when its resource is gone: the transfer is rolled back."""


def prepare_bank(dsn: str, urls: list[str]) -> None:
    """Accounts, debits, and queues."""
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE accounts (name text PRIMARY KEY, balance bigint CHECK (balance >= 0))")
        connection.execute("CREATE TABLE debits (number text, account text, amount bigint)")
        for account in ACCOUNTS:
            connection.execute("INSERT INTO accounts VALUES (%s, %s)", [account, START_BALANCE])
    with pika.BlockingConnection(parameters(urls[0])) as connection:
        for queue in (ORDERS, *OUTPUTS):
            connection.channel().queue_declare(queue, durable=True)


def place_order(channel: BlockingChannel, number: str, amount: int) -> None:
    """An order that waits; ``channel`` is in confirm mode."""
    body = json.dumps({"number": number, "account": ACCOUNTS[amount % len(ACCOUNTS)], "amount": amount})
    channel.basic_publish("", ORDERS, body.encode(), PERSISTENT, mandatory=True)


def transfer(coordinator: Coordinator, reached: Callable[[str], None]) -> str:
    """One transfer; what its caller is told. Raises LookupError if no order waits."""
    try:
        with coordinator.transaction() as t:
            method, _, body = t.broker.basic_get(ORDERS)
            if method is None:
                raise LookupError("no order waits")
            order = json.loads(body)
            reached("order taken")
            debit = "UPDATE accounts SET balance = balance - %s WHERE name = %s"
            t.database.execute(debit, [order["amount"], order["account"]])
            row = [order["number"], order["account"], order["amount"]]
            t.database.execute("INSERT INTO debits VALUES (%s, %s, %s)", row)
            reached("account debited")
            for queue in OUTPUTS:
                t.broker.basic_publish("", queue, order["number"].encode(), PERSISTENT)
            t.broker.basic_ack(method.delivery_tag)
            reached("messages published")
    except (TransactionRolledBack, *REFUSED):
        return ROLLED_BACK
    except OutcomeUnknown:
        return UNKNOWN
    return COMMITTED


def coordinator_for(log: Path, dsn: str, urls: list[str], reached: Callable[[str], None]) -> Coordinator:
    """A coordinator whose every step is told."""
    broker = Broker(*map(parameters, urls), patience=PATIENCE)
    decisions = DecisionLog(log, reached=reached)
    return Coordinator(decisions, broker, Postgresql(dsn), patience=PATIENCE, reached=reached)


def main() -> None:
    """One transfer."""
    parser = argparse.ArgumentParser(description="One transfer.")
    parser.add_argument("log", type=Path)
    parser.add_argument("dsn")
    parser.add_argument("urls")
    parser.add_argument("--die-at", choices=ORDER_OF_STEPS)
    given = parser.parse_args()

    def reached(step: str) -> None:
        print(step, flush=True)
        if step == given.die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    print(transfer(coordinator_for(given.log, given.dsn, given.urls.split(","), reached), reached), flush=True)


if __name__ == "__main__":
    main()
