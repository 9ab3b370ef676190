"""One seed: applications, faults, recovery runs; then everything is healed, recovered, and compared with the truth."""

from __future__ import annotations

import gc
import random
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown
from recovery.coordinator.recover import Report
from recovery.coordinator.table import CREATE
from tests.coordinator_model.applications import Application
from tests.coordinator_model.disk import LOG_NAME
from tests.coordinator_model.pg_heap import Table
from tests.coordinator_model.schedule import Process, Stuck
from tests.coordinator_model.truth import COMMITTED, BrokenPromise
from tests.coordinator_model.with_log import WithLog
from tests.coordinator_model.with_table import LOGGER, Told, WithTable
from tests.coordinator_model.world import MACHINE, World
from txobserver.ports.store import StoreDamaged, StoreError

INPUTS = 6
SHARED = "/dev/shm"


@dataclass
class Result:
    """What one seed did. ``promise``: the name of what was broken, or nothing; ``broken``: a sentence."""

    seed: int
    transactions: int = 0
    committed: int = 0
    unknown: int = 0
    faults: int = 0
    steps: int = 0
    struck: dict[str, int] = field(default_factory=dict)
    promise: str = ""
    broken: str = ""


class Run:
    """``note``: told what happens, for people."""

    def __init__(self, seed: int, note: Callable[[str], None] = lambda text: None) -> None:
        self.seed = seed
        self._note = note
        self._plan = random.Random(f"plan {seed}")

    def run(self) -> Result:
        """The result; the same for the same seed."""
        result = Result(self.seed)
        gc.disable()  # else connections end when memory is looked through, which no seed says
        shared = SHARED if Path(SHARED).is_dir() else None
        try:
            with tempfile.TemporaryDirectory(dir=shared, ignore_cleanup_errors=True) as directory:
                self._run_in(Path(directory), result)
        finally:
            gc.enable()
        return result

    def _run_in(self, directory: Path, result: Result) -> None:
        with World(self.seed, directory, self._note) as world:
            told = Told(world)
            LOGGER.addHandler(told)
            propagates, LOGGER.propagate = LOGGER.propagate, False
            try:
                self._live(world)
            except BrokenPromise as error:
                result.promise, result.broken = error.promise, f"seed {self.seed}: {error}"
            except Stuck as error:
                result.promise, result.broken = "nothing is stuck", f"seed {self.seed}: {error}"
            finally:
                LOGGER.removeHandler(told)
                LOGGER.propagate = propagates
            attempts = world.truth.attempts
            result.transactions = len(attempts)
            result.committed = sum(each.told == COMMITTED for each in attempts)
            result.unknown = sum(each.told == "unknown" for each in attempts)
            result.broken = result.broken.replace(str(directory), "")
            result.struck, result.faults = world.struck, sum(world.struck.values())
            result.steps = world.schedule.steps

    def _live(self, world: World) -> None:
        applications = self._prepare(world)
        for application in applications:
            application.start()
        for each in applications:
            help_out = partial(self._help, world, each)
            world.helpers.append(help_out)
            if each.at_the_disk:
                world.helpers_at_the_disk.append(help_out)
        world.calm = False
        world.schedule.run()
        world.calm = True
        self._check_ends(world)
        self._heal(world, applications)
        world.truth.judge()
        for cluster in world.clusters.values():
            mine = [body for body in self._inputs(world) if body.startswith(cluster.identity[0].encode())]
            world.truth.judge_inputs(lambda body, cluster=cluster: cluster.bodies("in").count(body), mine)  # type: ignore[misc]
        for attempt in world.truth.attempts:
            if attempt.must and attempt.told != COMMITTED:
                raise BrokenPromise("nothing stood in the way", f"{attempt.name}: {attempt.told}: {attempt.reason}")
        self._probe(world, applications)

    # -- before

    def _prepare(self, world: World) -> list[Application]:
        plan = self._plan
        root = world.connect("host=db dbname=bank user=owner", autocommit=True)
        for role in ("alice", "bob"):
            root.execute(f"CREATE ROLE {role} LOGIN")
            root.execute(f"CREATE SCHEMA {role} AUTHORIZATION {role}")
            with world.connect(f"host=db dbname=bank user={role}") as connection:
                for statement in (CREATE, *_TABLES):
                    connection.execute(statement)
        with world.connect("host=db dbname=other user=owner") as connection:
            for statement in _TABLES:
                connection.execute(statement)
        remote = Table(1, "public", "ledger", "owner", ("n",))
        world.server.databases["other"].schemas["public"].tables["ledger"] = remote
        for role in ("alice", "bob"):
            tables = world.server.databases["bank"].schemas[role].tables
            tables["ledger"] = Table(world.server.new_oid(), role, "ledger", role, ("n",), foreign=remote)
        level = plan.choice(("read committed", "read committed", "repeatable read", "serializable"))
        root.execute(f"ALTER DATABASE bank SET default_transaction_isolation = '{level}'")
        root.execute(f"ALTER DATABASE bank SET synchronous_commit = '{plan.choice(('on', 'off'))}'")
        for body in self._inputs(world):
            host = "orders-a" if body.startswith(b"a") else "orders-b"
            world.clusters[host].put("in", body)
        data, link = world.directory / "data" / LOG_NAME, world.directory / "etc" / LOG_NAME
        kinds: list[Any] = [plan.choice((WithLog, WithTable)) for _ in range(plan.choice((1, 1, 2, 3)))]
        found = [kind(world, number, plan) for number, kind in enumerate(kinds)]
        if WithLog in kinds:
            WithLog.open_log(next(each for each in found if isinstance(each, WithLog)), "app", False).close()
            link.symlink_to(data)
        return found

    def _inputs(self, world: World) -> list[bytes]:
        return [f"{which}{number}".encode() for which in "ab" for number in range(INPUTS)]

    # -- meanwhile

    def _help(self, world: World, application: Application) -> None:
        """A recovery run, somewhere."""
        grace = world.chance.choice((0.0, 0.0, 60.0))
        machine = world.chance.choice((MACHINE, "elsewhere"))
        machine = MACHINE if application.at_the_disk else machine
        process = Process(f"recovery of {application.number}", "root", machine)
        before = world.troubles

        def work() -> None:
            try:
                self._take(world, application.recover(world.chance, False, grace))
            except (DecisionRefused, DecisionUnknown) as error:
                if world.troubles == before:
                    raise BrokenPromise("a run goes on", f"it ended by {error!r}, and nothing was broken") from error

        world.schedule.spawn(process, work)

    @staticmethod
    def _take(world: World, report: Report) -> Report:
        world.note(f"{world.schedule.current} reports: {report}")
        world.people.take_report(report)
        return report

    @staticmethod
    def _check_ends(world: World, healed: bool = False) -> None:
        """Processes end because they are done, or killed, or, until everything is healed, their disk fails."""
        for process, error in world.schedule.failed:
            if isinstance(error, BrokenPromise):
                raise error
            if healed or isinstance(error, StoreDamaged) or not isinstance(error, StoreError) or not world.struck:
                raise BrokenPromise("nothing unforeseen", f"{process}: {error!r}") from error
        world.schedule.failed.clear()

    # -- afterwards

    def _alone(self, world: World, name: str, work: Callable[[], Any]) -> Any:
        """What a process finds out that works alone."""
        found: list[Any] = []
        world.schedule.spawn(Process(name, "root", MACHINE), lambda: found.append(work()))
        world.schedule.run()
        self._check_ends(world, healed=True)
        return found[0]

    def _heal(self, world: World, applications: list[Application]) -> None:
        """Everything works, a while has passed, and every process recovers; then people look, and say that they
        have."""
        world.lingering.notice_all()
        world.people.excuse()
        world.schedule.now += 200.0
        reports: list[Report] = []
        for turn in range(4):
            reports = []
            for each in applications:
                recover = lambda each=each, forget=turn == 2: each.recover(world.chance, True, 60.0, forget)  # noqa: E731
                reports.append(self._take(world, self._alone(world, f"last run {turn}", recover)))
            if all(report.settled for report in reports):
                break
            if turn == 1 and not world.truth.interfered:
                raise BrokenPromise("nothing is left in doubt", f"{[each for each in reports if not each.settled]}")
        left = [*world.server.prepared, *(xid for each in world.clusters.values() for xid in each.prepared())]
        if left or not all(report.settled for report in reports):
            raise BrokenPromise("nothing is left in doubt", f"{left} {[each for each in reports if not each.settled]}")

    def _probe(self, world: World, applications: list[Application]) -> None:
        """Every process can go on."""
        for each in applications:
            attempt = self._alone(world, f"probe of {each.number}", each.probe)
            if attempt.told != COMMITTED:
                raise BrokenPromise(
                    "every application can go on", f"{each.number} is told: {attempt.told} {attempt.reason}"
                )


_TABLES = (
    "CREATE TABLE work (n text PRIMARY KEY)",
    "CREATE TABLE checked (n text PRIMARY KEY, u text UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    "INSERT INTO checked VALUES ('taken', 'taken')",
)
