"""A process of an application: it sends money to the other one, and books what comes from there.

    python -m python_tests.suites.money.teller ORDERS

Each transfer is one distributed transaction here, an account debited and a message published, and one at the other
application, the message acknowledged and an account credited. ``ORDERS`` is an ``Orders`` as JSON. What it was told of
each transaction is in its journal, one line when it begins and one when it was told, which a SIGKILL leaves.

It says on stdout ``at`` and waits for a line on stdin where it has to stop, and says ``told`` behind each transaction.
"""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from sqlalchemy.exc import SQLAlchemyError

from python_tests.suites.coordinator.transfer import COMMITTED, REFUSED, ROLLED_BACK, UNKNOWN
from python_tests.suites.money.case import BOOK, NOTHING, SEND
from python_tests.suites.money.desks import Desk, Nothing, OnPurpose, desk
from python_tests.suites.money.orders import Orders
from python_tests.suites.money.planted import put_back
from recovery.coordinator.coordinated_branches import TransactionRolledBack
from recovery.dtx.errors import OutcomeUnknown

IDLE_ROUNDS = 10
"""So often a teller that has nothing left to send looks for messages in vain before it goes home."""
PAUSE = 0.05
"""Seconds behind a transaction that came to nothing."""
HIGHEST = 40
"""The greatest amount that is sent."""


class Teller:
    """One, with all connections that it needs."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._stops = list(orders.stops)
        self._turn = orders.turn
        self._kind = SEND
        self._journal = Path(orders.journal).open("a", buffering=1)  # noqa: SIM115  # as long as the process
        self._desk: Desk = desk(orders, self._reached)

    def work(self) -> None:
        """Until everything is sent and nothing comes any more."""
        sent = idle = 0
        while sent < self._orders.sends or idle < IDLE_ROUNDS:
            by = random.Random(f"{self._orders.seed} {self._orders.name} {self._turn}")
            self._kind = SEND if sent < self._orders.sends and by.random() < 0.5 else BOOK
            told = self._transact(by)
            sent += self._kind == SEND and told != ROLLED_BACK
            idle = idle + 1 if told == NOTHING else 0
            if told in (NOTHING, ROLLED_BACK):
                time.sleep(PAUSE)
        self._desk.close()

    def _transact(self, by: random.Random) -> str:
        """What it was told."""
        name = f"{self._orders.name}-{self._turn}"
        account, amount, on_purpose = by.randrange(self._orders.accounts), by.randint(1, HIGHEST), by.random() < 0.1
        self._write({"name": name, "kind": self._kind})
        try:
            if self._kind == SEND:
                self._desk.send(name, account, amount, on_purpose)
            else:
                self._desk.book(name, account, on_purpose)
            told = COMMITTED
        except Nothing:
            told = NOTHING
        except (OnPurpose, TransactionRolledBack, *REFUSED, SQLAlchemyError) as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            told = ROLLED_BACK
        except OutcomeUnknown as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            told = UNKNOWN
        self._write({"name": name, "told": told})
        self._turn += 1
        if told != NOTHING:
            print(f"told {self._kind} {told}", flush=True)
        return told

    def _write(self, line: dict[str, str]) -> None:
        self._journal.write(json.dumps(line) + "\n")

    def _reached(self, step: str) -> None:
        if not self._stops:
            return
        turn, kind, where = self._stops[0]
        if self._turn < turn or (kind, where) != (self._kind, step):
            return
        self._stops.pop(0)
        print(f"at {kind} {step}", flush=True)
        if not sys.stdin.readline():
            sys.exit("the process that started this teller is gone")


def main() -> None:
    """One teller, with a fault of the product put back if that is ordered."""
    orders = Orders(**json.loads(sys.argv[1]))
    with ExitStack() as stack:
        stack.enter_context(put_back(orders.fault))
        Teller(orders).work()


if __name__ == "__main__":
    main()
