"""What the applications have in their databases and journals, and what the broker still holds of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import psycopg

from python_tests.suites.coordinator.transfer import COMMITTED, KILLED
from recovery.coordinator.table import create_table

ACCOUNTS = 4
BALANCE = 300
"""On each account in the beginning."""

TABLES = """
CREATE TABLE accounts (number int PRIMARY KEY, balance bigint CHECK (balance >= 0));
CREATE TABLE sent (transfer text, account int, amount bigint);
CREATE TABLE booked (transfer text, attempt text, account int, amount bigint)
"""


def open_accounts(dsn: str) -> None:
    """An application's tables in its role's schema, that of decisions, too."""
    with psycopg.connect(dsn) as connection:
        connection.execute(TABLES.encode())
        for number in range(ACCOUNTS):
            connection.execute("INSERT INTO accounts VALUES (%s, %s)", [number, BALANCE])
        create_table(connection)


class Entry(NamedTuple):
    """A transfer that was sent, or booked by one attempt."""

    transfer: str
    attempt: str
    amount: int


class Attempt(NamedTuple):
    """One transaction of a teller, and what it was told; killed: nothing."""

    name: str
    kind: str
    told: str


@dataclass
class Book:
    """One application's."""

    balance: int
    sent: list[Entry]
    booked: list[Entry]
    undecided: list[str] = field(default_factory=list)
    """Commits that its decisions do not know to be carried out."""


def read_book(dsn: str) -> Book:
    """From its database."""
    with psycopg.connect(dsn) as connection:
        [(balance,)] = connection.execute("SELECT sum(balance)::bigint FROM accounts").fetchall()
        sent = connection.execute("SELECT transfer, transfer, amount FROM sent").fetchall()
        booked = connection.execute("SELECT transfer, attempt, amount FROM booked").fetchall()
        rows = connection.execute("SELECT name FROM txha_decisions WHERE committed").fetchall()
    return Book(balance, [Entry(*row) for row in sent], [Entry(*row) for row in booked], [name for (name,) in rows])


def read_journals(paths: Iterable[Path]) -> list[Attempt]:
    """Everything that tellers have begun; a last line that a SIGKILL has cut says nothing."""
    kinds: dict[str, str] = {}
    told: dict[str, str] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            try:
                found = json.loads(line)
            except json.JSONDecodeError:
                continue
            if "kind" in found:
                kinds[found["name"]] = found["kind"]
            else:
                told[found["name"]] = found["told"]
    return [Attempt(name, kind, told.get(name, KILLED)) for name, kind in kinds.items()]


@dataclass
class Books:
    """Everything together. ``waiting``: transfers in queues; ``prepared`` and ``branches``: names of what is in doubt
    in the databases' servers and at the broker; ``unsettled``: what recovery runs said in the end; ``unforeseen``: what
    processes ended with, and ``stuck``: those that did not end.
    """

    by: dict[str, Book]
    attempts: list[Attempt]
    waiting: list[Entry]
    prepared: list[str]
    branches: list[str]
    unsettled: list[str]
    unforeseen: list[str]
    stuck: list[str]

    def count(self, kind: str, told: str = COMMITTED) -> int:
        """Transactions of a kind that were told so."""
        return sum(each.kind == kind and each.told == told for each in self.attempts)
