"""SIGKILL of everything in turn, at every step of a transfer between a database and a broker.

A case is one transfer, and one SIGKILL of a victim at one step. What was killed is started again, ``txha dtx recover``
is run, and then the order is looked at: done (one debit, one invoice, one parcel, no order) or still there (the order,
and nothing else), as the worker that made the transfer was told, with nothing in doubt anywhere. At the end all money,
rows and messages are counted.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika
import psycopg

from broker_plugin.cli.asking import node_status
from broker_plugin.cli.layout import read_cluster
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.crash_table import Broken
from python_tests.harness.pika_clients import parameters
from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.harness.waiting import wait_until
from python_tests.suites.coordinator import transfer as work
from python_tests.suites.coordinator.transfer import (
    COMMITTED,
    KILLED,
    ORDER_OF_STEPS,
    ORDERS,
    OUTPUTS,
    ROLLED_BACK,
    START_BALANCE,
    UNKNOWN,
)
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.postgresql import Postgresql

COORDINATOR, PRIMARY, BETWEEN, OTHER, CLUSTER, DATABASE = (
    "coordinator",
    "primary broker",
    "backup in between",
    "other backup",
    "all brokers",
    "database",
)
VICTIMS = (COORDINATOR, PRIMARY, BETWEEN, OTHER, CLUSTER, DATABASE)
"""The coordinator is connected to the backup in between, which passes it on to the primary."""
LATER_SECONDS = 0.005
"""A transfer takes about twice as long from its first step to its last, on a quiet machine."""
DONE, WAITING = "done", "waiting"


AT, AFTER, LEFT = "at", "after", "left dead at"
WAYS = {
    AT: "while the coordinator stands at the step; started again at once",
    AFTER: f"up to {LATER_SECONDS * 1000:.0f} ms later, while it goes on; started again at once",
    LEFT: "while it stands there; started again when the transfer has given up",
}


@dataclass(frozen=True)
class Case:
    """Who is killed, in which of the WAYS, at which step."""

    victim: str
    step: str
    way: str = AT

    def __str__(self) -> str:
        return f"{self.victim} {self.way} {self.step!r}"


def all_cases() -> list[Case]:
    """Every victim at every step. One is left dead only where no other process can take its place."""
    found = [Case(victim, step, way) for step in ORDER_OF_STEPS for victim in VICTIMS for way in (AT, AFTER)]
    return found + [Case(victim, step, LEFT) for step in ORDER_OF_STEPS for victim in (CLUSTER, DATABASE)]


@dataclass
class Found:
    """What came of a case: what the transfer was told, and whether the order is done. ``settled``: branches that the
    recovery run found in doubt."""

    told: str
    order: str
    settled: int


class Cluster(LocalCluster):
    """Asked often, so without a process for each question."""

    def status(self) -> list[dict[str, Any]]:
        return [node_status(entry) for entry in read_cluster(self.directory)]


class Site:
    """Three nodes, a PostgreSQL, a decision log, and everything that was ever ordered. A context manager."""

    def __init__(self, directory: Path, seed: int = 7) -> None:
        self.log = directory / "decisions.log"
        self.cluster = Cluster(directory / "cluster", 3)
        self.database = PostgreSQL()
        self.orders: dict[str, int] = {}
        self.seen: Counter[str] = Counter()
        self._lot = random.Random(seed)
        self._stack = ExitStack()

    def __enter__(self) -> Site:
        try:
            self._stack.enter_context(self.database)
            self._stack.enter_context(self.cluster)
            work.prepare_bank(self.database.dsn, self.cluster.urls)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    # -- one case

    def run(self, case: Case) -> Found:
        """Place an order, break its transfer, mend, recover, look. Raises Broken."""
        number = self._order()
        told = self._with_coordinator_killed(case) if case.victim == COORDINATOR else self._with_site_broken(case)
        wait_until(self.cluster.all_ready, 60, "all nodes ready", every=0.1)
        settled = self.recover()
        found = Found(told, self._look_at(number), settled)
        if (told, found.order) in ((COMMITTED, WAITING), (ROLLED_BACK, DONE)):
            raise Broken(f"{case}: the transfer was told {told}, and the order is {found.order}")
        return found

    def _order(self) -> str:
        number, amount = f"order-{len(self.orders)}", self._lot.randrange(1, 1000)
        with pika.BlockingConnection(parameters(self._primary_url())) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            work.place_order(channel, number, amount)
        self.orders[number] = amount
        return number

    def _primary_url(self) -> str:
        name = self.cluster.primary()
        assert name is not None, "no primary"
        return self.cluster.url(name)

    def _urls(self) -> list[str]:
        """The nodes, and first of all the backup in between."""
        between = self.cluster.url(min(self.cluster.backups()))
        return [between, *(url for url in self.cluster.urls if url != between)]

    def _with_coordinator_killed(self, case: Case) -> str:
        command = [sys.executable, "-m", "python_tests.suites.coordinator.transfer", str(self.log), self.database.dsn]
        command.append(",".join(self._urls()))
        if case.way == AT:
            command += ["--die-at", case.step]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        told = KILLED
        for line in process.stdout:
            told = line.strip()
            if case.way == AFTER and told == case.step:
                time.sleep(self._lot.uniform(0, LATER_SECONDS))
                process.kill()
        if process.wait() == 0:
            return told
        assert process.returncode == -signal.SIGKILL, f"the coordinator ended with {process.returncode}"
        return told if told in (COMMITTED, ROLLED_BACK, UNKNOWN) else KILLED

    def _with_site_broken(self, case: Case) -> str:
        kill, start = self._deed(case.victim)
        delay = self._lot.uniform(0, LATER_SECONDS)
        mending: list[threading.Thread] = []

        def break_after() -> None:
            time.sleep(delay)
            kill()
            start()

        def reached(step: str) -> None:
            if step != case.step or mending:
                return
            if case.way != AFTER:
                kill()
            mending.append(threading.Thread(target=break_after if case.way == AFTER else start))
            if case.way != LEFT:
                mending[0].start()

        coordinator = work.coordinator_for(self.log, self.database.dsn, self._urls(), reached)
        told = work.transfer(coordinator, reached)
        if not mending:
            raise Broken(f"{case}: the transfer never came to that step")
        if case.way == LEFT:
            mending[0].start()
        mending[0].join()
        coordinator.close()
        return told

    def _deed(self, victim: str) -> tuple[Callable[[], None], Callable[[], None]]:
        """How a victim is killed, and started again."""
        if victim == DATABASE:
            return self.database.kill, self.database.start
        primary, backups = self.cluster.primary(), sorted(self.cluster.backups())
        assert primary is not None and len(backups) == 2, "looked at before"
        names = {PRIMARY: [primary], BETWEEN: backups[:1], OTHER: backups[1:], CLUSTER: [primary, *backups]}[victim]
        pids = {name: self.cluster.pid(name) for name in names}

        def kill() -> None:
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)

        def start() -> None:
            for name in names:
                self.cluster.start_node(name)

        return kill, start

    def recover(self) -> int:
        """``txha dtx recover``, which must leave nothing in doubt; how many branches it found. Raises Broken."""
        command = [sys.executable, "-m", "broker_plugin.cli.main", "dtx", "recover", "--json", "--grace", "0"]
        command += ["--log", str(self.log), "--database", self.database.dsn, "--broker", ",".join(self.cluster.urls)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise Broken(f"the recovery run ended with {answer.returncode}: {answer.stdout} {answer.stderr}")
        return len(json.loads(answer.stdout)["branches"])

    # -- looking

    def _look_at(self, number: str) -> str:
        """Whether the order is done. Takes out every message. Raises Broken."""
        self._check_nothing_in_doubt()
        taken = Counter({queue: self._drain(queue).count(number) for queue in (ORDERS, *OUTPUTS)})
        with psycopg.connect(self.database.dsn) as connection:
            [(debits,)] = connection.execute("SELECT count(*) FROM debits WHERE number = %s", [number]).fetchall()
        if debits == 1 and taken == Counter(OUTPUTS):
            self.seen[DONE] += 1
            return DONE
        if debits == 0 and taken == Counter([ORDERS]):
            self.seen[WAITING] += 1
            return WAITING
        raise Broken(f"{number} has {debits} debits and these messages: {dict(taken)}")

    def _drain(self, queue: str) -> list[str]:
        found = []
        with pika.BlockingConnection(parameters(self._primary_url())) as connection:
            channel = connection.channel()
            while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                body = got[2].decode()
                found.append(json.loads(body)["number"] if queue == ORDERS else body)
        return found

    def _check_nothing_in_doubt(self) -> None:
        broker, database, log = Broker(self._primary_url()), Postgresql(self.database.dsn), DecisionLog(self.log)
        try:
            left = [*broker.in_doubt(), *database.in_doubt(), *log.unfinished()]
            if left:
                raise Broken(f"left in doubt: {', '.join(map(str, left))}")
        finally:
            for each in (broker, database, log):
                each.close()

    def check_the_rest(self) -> None:
        """Money and rows of all cases together. Raises Broken."""
        with psycopg.connect(self.database.dsn) as connection:
            [(balance,)] = connection.execute("SELECT sum(balance) FROM accounts").fetchall()
            debits = dict(connection.execute("SELECT number, amount FROM debits").fetchall())
            [(rows,)] = connection.execute("SELECT count(*) FROM debits").fetchall()
        if rows != len(debits) or rows != self.seen[DONE] or sum(self.seen.values()) != len(self.orders):
            raise Broken(
                f"{rows} debits of {len(debits)} orders, and {self.seen[DONE]} of {len(self.orders)} were done"
            )
        if any(self.orders[number] != amount for number, amount in debits.items()):
            raise Broken("a debit is not what was ordered")
        if balance != len(work.ACCOUNTS) * START_BALANCE - sum(debits.values()):
            raise Broken(f"{balance} is left, and {sum(debits.values())} was debited")
