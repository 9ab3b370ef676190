"""Applications of a drawn kind: their processes, the work of each transaction, and what its caller is told."""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from psycopg.conninfo import make_conninfo

import recovery.coordinator.log_file as log_file_module
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.coordinated_branches import HeuristicTransaction
from recovery.coordinator.decision_log import DecisionLog
from recovery.dtx.errors import OutcomeUnknown
from tests.coordinator_model.disk import UserFiles
from tests.coordinator_model.schedule import Killed, Process
from tests.coordinator_model.truth import COMMITTED, HEURISTIC, NOTIFIED, ROLLED_BACK, UNKNOWN, Attempt, Effect
from tests.coordinator_model.world import MACHINE, World

REFUSED = ("raise", "fail", "late", "notify", "foreign", "temporary", "hold", "session rollback", "session close")
REFUSED += ("late company", "consume")
"""Work that may well be rolled back; a message's tag may be of a channel that was lost before."""
PATIENCE = 2.0


class Expected(Exception):
    """The application's own: it leaves the block."""


class Application:
    """``role``: in the database, with the schema of its name. ``cluster``: the host of its broker."""

    at_the_disk = False
    """Whether its recovery runs need the machine where the log is."""

    def __init__(self, world: World, number: int, plan: random.Random) -> None:
        self.world = world
        self.number = number
        self.plan = plan
        self.role = plan.choice(("alice", "bob"))
        self.cluster = plan.choice(("orders-a", "orders-a", "orders-b"))
        self.pooled = plan.random() < 0.35
        self.work_left = plan.randrange(2, 6)
        self.lives = 3
        self.skew = plan.choice((0.0, 0.0, 0.0, -30.0, 20.0, 900_000.0))
        self.serial = 0

    @property
    def dsn(self) -> str:
        """How it reaches the database."""
        host, name = ("pooler", "app") if self.pooled else ("db", "bank")
        return make_conninfo("", host=host, dbname=name, user=self.role)

    @property
    def direct_dsn(self) -> str:
        """How its recovery run reaches it."""
        return make_conninfo("", host="db", dbname="bank", user=self.role)

    # -- processes

    def start(self) -> None:
        """A process that does what is left; when it is killed, another one goes on."""
        self.lives -= 1
        process = Process(f"app {self.number}.{3 - self.lives}", "app", MACHINE, self.skew)
        process.let_go.append(lambda: self._again(process))
        self.world.schedule.spawn(process, self.live)

    def _again(self, process: Process) -> None:
        if not process.alive and self.lives and self.work_left:
            self.start()

    def live(self) -> None:
        """All transactions that are left. Raises Killed."""
        raise AssertionError("each kind has its own")

    def probe(self) -> Attempt:
        """One transaction that nothing stands in the way of; to be run in a process of its own."""
        raise AssertionError("each kind has its own")

    # -- work

    def new_attempt(self, operations: list[str]) -> Attempt:
        """One transaction of this application."""
        self.serial += 1
        attempt = self.world.truth.begin(f"{self.number}.{self.serial}")
        attempt.must = not set(operations) & set(REFUSED)
        attempt.lazy = self.world.server.databases["bank"].settings["synchronous_commit"] == "off"
        self.world.note(f"{self.world.schedule.now:.3f} {self.world.schedule.current}: {attempt.name} {operations}")
        return attempt

    def broker(self, inbox: list[tuple[int, bytes]]) -> Broker:
        """That fills the inbox from each new channel, as a consumer does."""

        def fill(channel: Any) -> None:
            for _ in range(2):
                found = channel.basic_get("in")
                if found is not None:
                    inbox.append(found)

        urls = [f"amqp://guest:guest@{self.cluster}:5672/"]
        return Broker(*urls, patience=PATIENCE, on_channel=fill if self.plan.random() < 0.5 else None)

    def operations(self, kinds: list[str]) -> list[str]:
        """What a transaction does; most publish, and write."""
        found = [each for each, likely in (("insert", 0.75), ("publish", 0.9)) if self.plan.random() < likely]
        found += self.plan.sample(kinds, self.plan.choice((0, 0, 0, 1, 1, 2)))
        self.plan.shuffle(found)
        return found or ["insert"]

    def attempt(self, attempt: Attempt, work: Callable[[], None]) -> None:
        """Do the work, and note what the caller is told. Raises Killed."""
        try:
            work()
            attempt.told = COMMITTED
        except Killed:
            attempt.told = UNKNOWN
            raise
        except OutcomeUnknown as error:
            attempt.told, attempt.reason = UNKNOWN, str(error)
        except HeuristicTransaction as error:
            attempt.told, attempt.reason = HEURISTIC, str(error)
        except Exception as error:
            attempt.told, attempt.reason = ROLLED_BACK, f"{type(error).__name__} {error}"
        finally:
            attempt.must = attempt.must and not self.world.troubles
            self.world.note(f"{self.world.schedule.now:.3f} {attempt.name} was told: {attempt.told} {attempt.reason}")

    def effect_of_insert(self, attempt: Attempt) -> Effect:
        """A row in the application's schema."""
        rows = lambda: self.world.server.rows("bank", self.role, "work")  # noqa: E731
        return Effect("row", lambda: sum(row["n"] == attempt.name for row in rows()))

    def effect_of_publish(self, attempt: Attempt) -> Effect:
        """A message at the application's cluster."""
        return Effect("message", lambda: self.world.clusters[self.cluster].bodies("out").count(attempt.name.encode()))

    def in_database(self, name: str, attempt: Attempt, execute: Callable[[str], Any]) -> None:
        """One operation there. Raises what the database does."""
        if name == "insert":
            if not any(each.what == "row" for each in attempt.effects):
                attempt.effects.append(self.effect_of_insert(attempt))
            execute(f"INSERT INTO {self.role}.work VALUES ('{attempt.name}')")
        elif name == "notify":
            told = self.world.server.notified
            attempt.effects.append(Effect(NOTIFIED, lambda: told.count(("channel", attempt.name))))
            execute(f"SELECT pg_notify('channel', '{attempt.name}')")
        elif name == "foreign":
            rows = lambda: self.world.server.rows("other", "public", "ledger")  # noqa: E731
            attempt.effects.append(Effect("foreign row", lambda: sum(row["n"] == attempt.name for row in rows())))
            execute(f"INSERT INTO {self.role}.ledger VALUES ('{attempt.name}')")
        else:
            statements = {
                "read": f"SELECT count(*) FROM {self.role}.work",
                "late": f"INSERT INTO {self.role}.checked VALUES ('{attempt.name}', 'taken')",
                "fail": f"INSERT INTO {self.role}.checked VALUES ('taken', 'other')",
                "temporary": f"CREATE TEMP TABLE temporary_{attempt.name.replace('.', '_')} (n text)",
                "hold": f"DECLARE hold_{attempt.name.replace('.', '_')} CURSOR WITH HOLD FOR SELECT 1",
                "path": "SET LOCAL search_path = public",
            }
            execute(statements[name])

    def at_broker(self, name: str, attempt: Attempt, channel: Any, inbox: list[tuple[int, bytes]]) -> None:
        """One operation there. Raises what the broker's client does."""
        if name == "publish":
            attempt.effects.append(self.effect_of_publish(attempt))
            channel.basic_publish("", "out", attempt.name.encode())
        elif name == "consume":
            found = inbox.pop(0) if inbox else channel.basic_get("in")
            if found is not None:
                attempt.consumed.append(found[1])
                channel.basic_ack(found[0])


def forked(log: DecisionLog, files: UserFiles) -> DecisionLog:
    """The log in a child of fork: its memory, and the descriptor that it inherits."""
    child, file = copy.copy(log), copy.copy(log._file)
    child._file = file
    file._files = files
    file._lock, file._sync_lock = threading.Lock(), threading.Lock()
    if file._descriptor >= 0:
        file._descriptor = files.adopt(file._descriptor)
        file.contents = copy.deepcopy(file.contents)
    with patch.object(log_file_module, "_FILES", [file]):
        log_file_module._after_fork()
    return child
