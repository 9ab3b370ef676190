"""Where rounds are played: three nodes, two servers of PostgreSQL, and for each round databases and a pooler."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pika
import psycopg

from python_tests.harness.pika_clients import parameters
from python_tests.harness.servers.pgbouncer import PgBouncer
from python_tests.harness.servers.postgresql import PostgreSQL
from python_tests.harness.waiting import wait_until
from python_tests.suites.coordinator.crashes import Cluster
from python_tests.suites.money import case as of
from python_tests.suites.money.books import Books, Entry, open_accounts, read_book, read_journals
from python_tests.suites.money.case import APART, APPLICATIONS, LOG, Round
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.decision_log import DecisionLog
from txobserver.ports.store import StoreError

ROLES = ("alice", "bob")
ALIAS = "app"
"""What the pooler calls B's database."""
BRANCH_SECONDS = 20
"""A branch that was ended, and not prepared, holds what it has acknowledged for so long when its client is gone."""
RECOVERY_SECONDS = 300.0
READY_SECONDS = 120.0


class Recovered(NamedTuple):
    """What a recovery run has come to. ``wrong``: what it must never say; empty if it did not."""

    status: int
    branches: int
    said: str
    wrong: str


class Site:
    """The brokers and the servers, which outlast rounds. A context manager."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.cluster = Cluster(directory / "cluster", 3, "--set", f"dtx.default_timeout={BRANCH_SECONDS}")
        self.servers = [PostgreSQL(), PostgreSQL()]
        self._stack = ExitStack()

    def __enter__(self) -> Site:
        try:
            for server in self.servers:
                self._stack.enter_context(server)
                with psycopg.connect(server.dsn, autocommit=True) as connection:
                    for role in ROLES:
                        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
            self._stack.enter_context(self.cluster)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def heal(self) -> None:
        """Everything runs again, and every node is ready."""
        for server in self.servers:
            server.start_again()
        for name in self._names():
            self._start_node(name)
        wait_until(self.cluster.all_ready, READY_SECONDS, "all nodes ready", every=0.1)

    def _names(self) -> list[str]:
        return [f"node-{index + 1}" for index in range(self.cluster.count)]

    def _start_node(self, name: str) -> None:
        if not self.cluster.processes.runs(name):
            self.cluster.start_node(name)

    def kill_nodes(self, deed: str) -> Callable[[], None]:
        """SIGKILL; what starts them again. Where there is no primary, of any node that runs."""
        running = [name for name in self._names() if self.cluster.processes.runs(name)]
        primary = self.cluster.primary()
        others = [name for name in running if name != primary]
        names = running if deed == of.KILL_NODES else others[:1]
        if deed == of.KILL_PRIMARY and primary in running:
            names = [primary]
        pids = {name: self.cluster.pid(name) for name in names}
        for pid in pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        def gone() -> bool:
            return not any(self.cluster.processes.runs_as(name, pid) for name, pid in pids.items())

        wait_until(gone, READY_SECONDS, "the end of nodes that were killed")

        def start() -> None:
            for name in names:
                self._start_node(name)

        return start


class Ground:
    """The databases, the queues, the logs and the pooler of one round. A context manager."""

    def __init__(self, site: Site, game: Round, fault: str | None) -> None:
        self.site = site
        self.game = game
        self._fault = fault
        self._directory = site.directory / f"round-{game.seed}"
        self._name = f"bank_{game.seed}"
        servers = site.servers if game.layout == APART else [site.servers[0]] * 2
        self.server = dict(zip(APPLICATIONS, servers, strict=True))
        self.direct = {each: self._direct(each) for each in APPLICATIONS}
        self.pooler = PgBouncer({ALIAS: self.direct["B"]}, ROLES, server_round_robin="1")
        self.dsn = {"A": self.direct["A"], "B": self.pooler.dsn(ALIAS, game.roles["B"])}
        self.queue_to = {each: f"to-{each}-{game.seed}" for each in APPLICATIONS}

    def _direct(self, each: str) -> str:
        role = self.game.roles[each]
        return self.server[each].dsn.replace("dbname=bank", f"dbname={self._name}").replace("owner", role)

    def __enter__(self) -> Ground:
        self._directory.mkdir()
        for server in {id(each): each for each in self.server.values()}.values():
            with psycopg.connect(server.dsn, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {self._name}".encode())
        for each in APPLICATIONS:
            role = self.game.roles[each]
            owner = self.server[each].dsn.replace("dbname=bank", f"dbname={self._name}")
            with psycopg.connect(owner, autocommit=True) as connection:
                connection.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}".encode())
            open_accounts(self.direct[each])
            self.log(each).parent.mkdir()
            self.link(each).symlink_to(self.log(each))
            DecisionLog(self.log(each)).close()
        with self._channel() as channel:
            for queue in self.queue_to.values():
                channel.queue_declare(queue, durable=True)
        self.pooler.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self.pooler.__exit__(None, None, None)

    @contextlib.contextmanager
    def _channel(self) -> Any:
        name = self.site.cluster.primary()
        assert name is not None, "no primary"
        with pika.BlockingConnection(parameters(self.site.cluster.url(name))) as connection:
            yield connection.channel()

    def log(self, each: str) -> Path:
        """An application's log; another name of it is its ``link``."""
        return self._directory / f"log-of-{each}" / "decisions.log"

    def link(self, each: str) -> Path:
        """By which the application's second teller knows the log."""
        return self._directory / f"decisions-of-{each}.log"

    def journal(self, teller: str) -> Path:
        """What it writes down."""
        return self._directory / f"journal-{teller}"

    def errors(self, teller: str) -> Path:
        """What it says on stderr."""
        return self._directory / f"errors-{teller}"

    # -- recovery

    def recover(self, each: str, grace: float = 0.0) -> Recovered:
        """``txha dtx recover`` of one application."""
        command = [sys.executable, "-m"]
        command += ["python_tests.suites.money.planted", self._fault] if self._fault else ["broker_plugin.cli.main"]
        command += ["dtx", "recover", "--json", "--grace", str(grace)]
        command += ["--database", self.dsn[each], "--broker", ",".join(self.site.cluster.urls)]
        if self.game.ways[each] == LOG:
            command += ["--log", str(self.log(each))]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RECOVERY_SECONDS)
        except subprocess.TimeoutExpired:
            return Recovered(-1, 0, "", f"a recovery run of {each} did not end: {shlex.join(command)}")
        said = f"{answer.stdout} {answer.stderr}"
        if answer.returncode not in (0, 1) or "Traceback" in answer.stderr:
            wrong = f"a recovery run of {each} ended with {answer.returncode}: {said}"
            return Recovered(answer.returncode, 0, said, wrong)
        return Recovered(answer.returncode, len(json.loads(answer.stdout)["branches"]), said, "")

    # -- what there is in the end

    def books(self, unsettled: list[str], unforeseen: list[str], stuck: list[str]) -> Books:
        """Everything that can be read, with all queues taken out."""
        by = {each: read_book(self.direct[each]) for each in APPLICATIONS}
        for each in APPLICATIONS:
            try:
                log = DecisionLog(self.log(each))
                by[each].undecided += log.unfinished()
                log.close()
            except StoreError as error:
                by[each].undecided.append(f"what its log says: {error}")
        attempts = read_journals(sorted(self._directory.glob("journal-*")))
        left = self._waiting(), self._prepared(), self._branches()
        return Books(by, attempts, *left, unsettled, unforeseen, stuck)

    def missing(self) -> int:
        """Transfers that were sent, and are neither booked nor in a queue from which they can be taken."""
        books = [read_book(self.direct[each]) for each in APPLICATIONS]
        with self._channel() as channel:
            answers = [channel.queue_declare(each, passive=True).method for each in self.queue_to.values()]
        waiting: int = sum(answer.message_count for answer in answers)
        return sum(len(book.sent) - len(book.booked) for book in books) - waiting

    def _waiting(self) -> list[Entry]:
        found = []
        with self._channel() as channel:
            for queue in self.queue_to.values():
                while (got := channel.basic_get(queue))[0] is not None:
                    body = json.loads(got[2])
                    found.append(Entry(body["transfer"], "", body["amount"]))
        return found

    def _prepared(self) -> list[str]:
        found = []
        for server in self.site.servers:
            with psycopg.connect(server.dsn) as connection:
                found += [gid for (gid,) in connection.execute("SELECT gid FROM pg_prepared_xacts")]
        return found

    def _branches(self) -> list[str]:
        broker = Broker(*self.site.cluster.urls)
        try:
            return [str(xid) for xid in broker.in_doubt()]
        finally:
            broker.close()
