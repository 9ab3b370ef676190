"""The world of one seed: a PostgreSQL, two clusters of one name, a disk with logs, and everything that may break there.

Every call of the product's that leaves it, to a database, a broker or a disk, makes a step before it is carried out and
one behind. At each, others may get the turn, and something may break.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psycopg
from psycopg.conninfo import conninfo_to_dict
from zope.sqlalchemy.datamanager import SessionDataManager

import recovery.coordinator.broker_resource as broker_module
import recovery.coordinator.coordinated_branches as branches_module
import recovery.coordinator.data_manager as data_manager_module
import recovery.coordinator.decision_log as log_module
import recovery.coordinator.log_file as log_file_module
import recovery.coordinator.log_lines as log_lines_module
import recovery.coordinator.names as names_module
import recovery.coordinator.postgresql as postgresql_module
import recovery.coordinator.recover as recover_module
import recovery.dtx.conversation as conversation_module
import recovery.dtx.with_pika as with_pika_module
from recovery.coordinator.decisions import ABORT_KEPT
from recovery.dtx.conversation import Refused
from tests.coordinator_model.broker_client import ModelConnection, ModelDtxConnection
from tests.coordinator_model.brokers import Cluster
from tests.coordinator_model.disk import Disk, UserFiles
from tests.coordinator_model.people import People
from tests.coordinator_model.pg_client import Broken, FakeConnection, FakeCursor
from tests.coordinator_model.pg_server import Server
from tests.coordinator_model.schedule import Process, Schedule, VirtualLocks, VirtualTime
from tests.coordinator_model.taken_back import TakenBack
from tests.coordinator_model.truth import Truth

MACHINE = "machine"
"""Where the processes are that use the disk."""
SERVER = "server"
"""Where the databases are."""
TIMED = (
    branches_module,
    data_manager_module,
    log_module,
    names_module,
    postgresql_module,
    recover_module,
    conversation_module,
    with_pika_module,
)
QUEUES = ("in", "out")
DECIDING = ("COMMIT", "PREPARE", "ROLLBACK PREPARED", "Prepare", "Commit", "INSERT INTO alice.t", "INSERT INTO bob.t")
"""How messages begin that prepare or decide."""
COMMITTING = ("COMMIT PREPARED", "Commit")
"""How messages begin that carry a decision out."""

ABORTING = "ON CONFLICT DO NOTHING"
"""What messages hold that record an abort."""


class Late(Broken):
    """The connection is lost, and the request arrives later."""

    late = True


class WayOf:
    """The way of one process to a database or a broker."""

    def __init__(self, world: World, kind: str) -> None:
        self._world = world
        self._kind = kind

    def before(self, what: str) -> None:
        """It may be lost, killed, or late."""
        self._world.step(self._kind, what)

    def after(self, what: str, refused: bool = False) -> None:
        """The answer may be lost."""
        self._world.step(f"{self._kind} answer", what)
        if not refused:
            self._world.standbys.answered(what)

    def lost(self, late: Callable[[], Any] | None, end: Callable[[], None]) -> None:
        """The server notices now or later, and does before what was late."""
        self._world.end_later(late, end)


class SeededSecrets:
    """In the place of the module ``secrets`` where names are drawn."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def token_hex(self, count: int) -> str:
        """Hex digits of so many bytes."""
        return self._chance.randbytes(count).hex()


class Lingering:
    """What is on its way to a server, which notices it at some step."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._arrivals: list[Callable[[], None]] = []

    @property
    def count(self) -> int:
        """How many have not arrived."""
        return len(self._arrivals)

    def add(self, arrive: Callable[[], None]) -> None:
        """This is what happens when it does."""
        self._arrivals.append(arrive)

    def notice(self, which: int) -> None:
        """The server is at work on its own: what was late may have to wait there."""
        self._schedule.spawn(Process("a server"), self._arrivals.pop(which))

    def notice_all(self) -> None:
        """Whatever was on its way has arrived."""
        while self._arrivals:
            self.notice(0)
            self._schedule.run()


class World:
    """``directory``: an empty one for the logs. ``note``: told what happens, for people."""

    def __init__(self, seed: int, directory: Path, note: Callable[[str], None] = lambda text: None) -> None:
        self.chance = random.Random(f"world {seed}")
        self._aftermath = random.Random(f"aftermath {seed}")
        self._clocks = random.Random(f"clocks {seed}")
        self._are_set = self._clocks.random() < 0.15
        """Whether clocks are set by days"""
        self.note = lambda text: note(text.replace(str(directory), ""))
        self.schedule = Schedule(random.Random(f"schedule {seed}"))
        self.truth = Truth()
        self.server = Server(7_100_000_000_000_000_000 + seed, self)
        for name in ("bank", "other"):
            self.server.create_database(name)
        self.clusters = {host: Cluster("orders", host[-1] * 32, QUEUES) for host in ("orders-a", "orders-b")}
        (directory / "data").mkdir()
        (directory / "etc").mkdir()
        self.directory = directory
        self.disk = Disk(directory / "data", random.Random(f"disk {seed}"))
        self.calm = True
        self.rate = self.chance.choice((0.0, 0.005, 0.01, 0.02, 0.03, 0.05))
        self.budget = self.chance.choice((1, 2, 3, 5, 8))
        self.remembers = self.chance.random() < 0.5
        """Whether the log remembers what has ended; if not, it is made smaller soon, and no standby goes on."""
        self.troubles = 0
        self.struck: dict[str, int] = {}
        self.helpers: list[Callable[[], None]] = []
        """Start a recovery run"""
        self.helpers_at_the_disk: list[Callable[[], None]] = []
        """Start one with the log"""
        self._settled_until_cut = 0
        """After how many more branches that are committed the power fails; 0: it does not"""
        self.lingering = Lingering(self.schedule)
        self.standbys = TakenBack(self.schedule)
        self.people = People(self.chance, self.server, self.clusters, self.disk, self.truth, self.standbys, self.note)
        self._stack = ExitStack()

    # -- in the place of what the product uses

    def __enter__(self) -> World:
        put = self._stack.enter_context
        for module in TIMED:
            put(patch.object(module, "time", VirtualTime(self.schedule)))
        put(patch.object(names_module, "secrets", SeededSecrets(random.Random(self.chance.random()))))
        put(patch.object(log_lines_module, "ENDED_KEPT", 600.0 if self.remembers else 0.0))
        put(patch.object(log_module, "end_line", self.standbys.end_line))
        put(patch.object(log_file_module, "fcntl", VirtualLocks(self.schedule, log_file_module.fcntl)))
        put(patch.object(psycopg, "connect", self.connect))
        put(patch.object(psycopg, "ClientCursor", FakeCursor))
        put(patch.object(broker_module, "DtxConnection", ModelDtxConnection))
        put(patch.object(ModelDtxConnection, "reach", staticmethod(self._reach), create=True))
        put(patch.object(ModelDtxConnection, "opened", staticmethod(self._opened), create=True))
        keys = random.Random(self.chance.random())

        def drawn(manager: Any) -> str:
            """zope.sqlalchemy sorts by addresses, which no lot draws."""
            return f"~sqlalchemy:{vars(manager).setdefault('drawn', keys.randrange(99)):02}"

        put(patch.object(SessionDataManager, "sortKey", drawn))
        return self

    def __exit__(self, *error: object) -> None:
        self.calm = True
        self._stack.close()

    def now(self) -> float:
        """Surroundings of the server."""
        return self.schedule.now + self.schedule.ahead.get(SERVER, 0.0)

    def wait(self, condition: Callable[[], bool], seconds: float | None) -> bool:
        """Surroundings of the server: while a session waits, others work."""
        return self.schedule.wait(condition, seconds)

    def connect(self, dsn: str, **options: Any) -> FakeConnection:
        """To the database, or by way of the pooler, which has another name for it."""
        given = conninfo_to_dict(dsn)
        way = WayOf(self, "database")
        try:
            way.before("connect")
        except Broken as error:
            raise psycopg.OperationalError("connection failed") from error
        database = {"app": "bank"}.get(str(given["dbname"])) if given["host"] == "pooler" else str(given["dbname"])
        connection = FakeConnection(self.server, str(database), dsn, options, way)
        process = self.schedule.current
        if process is not None:
            process.let_go.append(lambda: None if connection.closed else self.end_later(None, connection.session.end))
        return connection

    def _reach(self, host: str) -> tuple[Cluster, WayOf]:
        return self.clusters[host], WayOf(self, "broker")

    def _opened(self, connection: ModelConnection) -> None:
        process = self.schedule.current
        if process is not None:
            process.let_go.append(lambda: self.end_later(None, connection.gone) if connection.is_open else None)

    def files(self, user: str) -> UserFiles:
        """The disk, as a user has it."""
        return UserFiles(self.disk, user, self.step, self._torn)

    def _torn(self, length: int) -> int:
        if self.calm or self.rate == 0 or self.budget == 0 or self.chance.random() > self.rate:
            return length
        self._count("torn write")
        assert self.schedule.current is not None
        self.schedule.kill(self.schedule.current)
        return self.chance.randrange(length)

    # -- what breaks

    def end_later(self, late: Callable[[], Any] | None, end: Callable[[], None]) -> None:
        """A server notices that a client is gone: now, or at some step."""

        def arrive() -> None:
            if late is not None:
                with suppress(psycopg.Error, Refused, Broken):
                    late()
            end()

        if late is None and (self.calm or self.chance.random() < 0.6):
            end()
        else:
            self.troubles += 1
            self.lingering.add(arrive)

    def step(self, kind: str, what: str = "") -> None:
        """One step of the process that has the turn. Raises Killed, Broken, and OSError for a sync that fails.

        Where something is prepared or decided, more breaks than elsewhere.
        """
        self.schedule.step()
        if self.calm or self.schedule.current is None:
            return
        if self.lingering.count and self.chance.random() < 0.05:
            self.troubles += 1
            self.lingering.notice(self.chance.randrange(self.lingering.count))
        if self._are_set and self._clocks.random() < (0.5 if ABORTING in what else 0.01):
            self._set_a_clock()
        if self._settled_until_cut and kind.endswith("answer") and what.startswith(COMMITTING):
            self._settled_until_cut -= 1
            if not self._settled_until_cut:
                self._count("power cut")
                self._cut_power()
        rate = self.rate * (3.0 if kind in ("sync", "file") or what.startswith(DECIDING) else 0.5)
        if self.budget and self.chance.random() < rate:
            self.budget -= 1
            self._strike(kind)
        self.schedule.check()

    def _count(self, what: str) -> None:
        self.troubles += 1
        self.struck[what] = self.struck.get(what, 0) + 1
        self.note(f"{self.schedule.now:.3f} {self.schedule.current}: {what}")

    def _strike(self, kind: str) -> None:
        choices: list[tuple[str, Callable[[str], None]]] = [
            ("process killed", self._kill),
            ("process killed", self._kill),
            ("database crashed", lambda kind: self.server.crash()),
            ("broker took over", lambda kind: self.chance.choice(list(self.clusters.values())).take_over()),
            *[("recovery run", lambda kind: self.chance.choice(self.helpers)())] * 3,
            ("power cut", lambda kind: self._cut_power()),
        ]
        if self.remembers:
            choices += [("database failed over", lambda kind: self._fail_over())] * 2
        if self.server.prepared or any(each.prepared() or each.heuristic() for each in self.clusters.values()):
            choices += [("operator", lambda kind: self.people.operate())] * 2
        if "sync failed" in self.struck:
            choices += [("power cut", lambda kind: self._cut_power())] * 4
        if kind.startswith(("database", "broker")):
            choices += [("connection lost", self._lose)] * 5
        if kind == "sync":
            choices += [("sync failed", self._fail_sync)] * 9
        name, does = self.chance.choice(choices)
        self._count(name)
        does(kind)

    def _set_a_clock(self) -> None:
        """Forward, and by more than aborts are kept; or back. That of the machine with the log only if no standby goes
        on: the log may forget then what has ended, as it says."""
        which = SERVER if self.remembers else self._clocks.choice((MACHINE, SERVER))
        ahead = self.schedule.ahead
        ahead[which] = ahead.get(which, 0.0) + 2 * ABORT_KEPT
        if which == MACHINE and ahead[which] > 2 * ABORT_KEPT:
            ahead[which] = 0.0
        self._count("clock set")
        if self.budget and self._clocks.random() < 0.5:
            self._clocks.choice(self.helpers)()

    def _kill(self, kind: str) -> None:
        assert self.schedule.current is not None
        self.schedule.kill(self.schedule.current)

    def _lose(self, kind: str) -> None:
        raise Late if not kind.endswith("answer") and self.chance.random() < 0.25 else Broken

    def _fail_sync(self, kind: str) -> None:
        """Often another process opens the log then, and acts on what it reads there until the power fails."""
        if self.helpers_at_the_disk and self._aftermath.random() < 0.7:
            self._aftermath.choice(self.helpers_at_the_disk)()
            self._settled_until_cut = self._aftermath.choice((1, 1, 2, 3))
        self.rate, self.budget = max(self.rate, 0.03), self.budget + 2
        raise OSError(errno.EIO, "Input/output error")

    def _fail_over(self) -> None:
        lacked = self.server.fail_over(self.chance.randrange(1, 3))
        self.note(f"the standby lacks {lacked} of the last lines")

    def _cut_power(self) -> None:
        for process in self.schedule.processes:
            if process.machine == MACHINE:
                self.schedule.kill(process)
        self.disk.power_cut()
