"""A case is run: the driver goes from point to point, what the case says is done to it, and the rows are counted."""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from python_tests.harness.crash_table import Broken
from python_tests.suites.spark_queues.drawn import case as of
from python_tests.suites.spark_queues.drawn.accepted import Loss
from python_tests.suites.spark_queues.drawn.beside import Beside
from python_tests.suites.spark_queues.drawn.brokers import Brokers, heard
from python_tests.suites.spark_queues.drawn.case import Case, Step
from python_tests.suites.spark_queues.drawn.counting import Names, check, delete, is_drained
from python_tests.suites.spark_queues.drawn.driver import Driver
from python_tests.suites.spark_queues.drawn.engine import Job
from python_tests.suites.spark_queues.drawn.operators import SOME, Operator
from python_tests.suites.spark_queues.drawn.points import AT, FAILED, LOSE, RAN
from python_tests.suites.spark_queues.drawn.refusals import ANOTHER_HISTORY, ASTRAY, refusal
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

STILL = 15.0
"""Seconds without a word of the driver while a node hangs, behind which what is to be done is done where it stands."""

REFUSALS = 2
"""As often as a query that refuses is started again before the next thing is done to it."""

NOTHING = "there was nothing"

PATIENCE = 180.0
"""Seconds in which a query that is not hindered any more has carried everything."""

IN_FRONT = {
    of.PREPARE: (BranchOutcome.UNKNOWN, BranchOutcome.ACTIVE),
    of.RECORD: (BranchOutcome.UNKNOWN, BranchOutcome.ACTIVE),
    of.SETTLEMENT: (BranchOutcome.UNKNOWN, BranchOutcome.ACTIVE),
    of.COMMIT: (BranchOutcome.PREPARED,),
}
"""What is the outcome of a branch before the broker has heard a request for it."""


class Done(NamedTuple):
    """A deed as it was done. ``how``: empty, or that there was nothing to do it to, or with what it was refused."""

    deed: str
    point: str
    how: str = ""

    def __str__(self) -> str:
        return f"{self.deed}{f' ({self.how})' if self.how else ''} at {self.point}"


class Found(NamedTuple):
    """What came of a case that held: what was done, and how often the query refused, by name."""

    done: tuple[Done, ...]
    refused: dict[str, int]
    drivers: int
    points: int
    rows: int


class Run:
    """One case on brokers that are well."""

    def __init__(self, case: Case, brokers: Brokers, directory: Path) -> None:
        self._case = case
        self._brokers = brokers
        self._operator = Operator(brokers)
        self._query = str(uuid.uuid4())  # brokers remember those that were
        self._names = Names(self._query, *(f"{name}-{self._query}" for name in ("in", "out", "elsewhere")))
        self._checkpoint = directory / f"checkpoint-{self._query}"
        self._published = 0
        self._done: list[Done] = []
        self._refused: Counter[str] = Counter()
        self._trace: list[str] = []
        self._driver = Driver(self._trace)
        self._causes: set[str] = {ASTRAY} if case.astray is not None else set()
        self._loss = Loss(brokers)
        self._killed = False
        self._sent = False
        self._point = ""
        self._asleep: Beside | None = None
        self._awake: Beside | None = None

    # -- from the beginning to the end

    def run(self) -> Found:
        """Raises Broken, with what the driver did last."""
        for queue in (self._names.source, self._names.target):
            self._make(queue)
        self._publish(self._case.first_rows)
        try:
            self._start_driver()
            for step in self._case.steps:
                self._do(step, *self._until(step))
            self._heal()
            self._drain()
            self._driver.stop()
            wanted = self._loss.wanted(_bodies(self._case))
            check(self._brokers, self._names, wanted, self._case.astray)
        except Exception as broken:
            trace = "\n    ".join(self._trace[-40:])
            raise Broken(f"{broken}\n  done: {'; '.join(map(str, self._done))}\n  the driver:\n    {trace}") from broken
        finally:
            self._driver.kill()
            for beside in filter(None, (self._asleep, self._awake)):
                beside.kill()
            self._operator.put_back()
            self._brokers.resume()
        delete(self._brokers, self._names)
        return Found(tuple(self._done), dict(self._refused), self._driver.count, self._driver.points, len(wanted))

    def _make(self, queue: str) -> None:
        self._brokers.client.insist(lambda channel: channel.queue_declare(queue, durable=True))

    def _publish(self, count: int) -> bool:
        """The next rows; whether there were any left. Published once: so only when the brokers are well."""
        bodies = _bodies(self._case)[self._published : self._published + count]
        self._published += len(bodies)
        if bodies:
            self._brokers.settled_down()
            self._brokers.client.publish(self._names.source, bodies)
            self._trace.append(f"{len(bodies)} rows are published")
        return bool(bodies)

    # -- the driver

    def _start_driver(self) -> None:
        case = self._case
        partitions = case.partitions[self._driver.count % len(case.partitions)]
        astray = None if case.astray is None else f"row-{case.astray}"
        names = (self._query, self._names.source, self._names.target, self._names.elsewhere, astray, self._checkpoint)
        tolerant = case.tolerant and self._loss.accepted
        how = case.per_batch, partitions, case.doubled, case.patience, tolerant, case.prefetch
        self._driver.start(Job(",".join(self._brokers.urls), *names, *how))
        self._trace.append(f"driver {self._driver.count} starts, {partitions} partitions")

    def _next(self, seconds: float) -> tuple[str, Any, Xid | None] | None:
        """As ``Driver.next``; a refusal of its query is one that is promised, or the case is broken."""
        event = self._driver.next(seconds)
        if event is not None and event[0] == FAILED:
            self._failed(event[1])
        return event

    def _failed(self, said: str) -> None:
        name = refusal(said, self._causes)
        if name is None:
            raise Broken(f"the query refused, and nothing promises that: {said}")
        self._refused[name] += 1
        if self._case.astray is not None and name == "a row is taken by no queue":
            self._brokers.settled_down()
            self._make(self._names.elsewhere)
            self._trace.append("the queue that was missing is declared")

    # -- steps

    def _until(self, step: Step) -> tuple[str, Xid | None]:
        """The point at which the driver waits now, or stands without an answer."""
        passes, refusals = step.passes, 0
        while (event := self._next(STILL if self._brokers.hinders else PATIENCE)) is not None:
            kind, what, xid = event
            if kind == RAN and what == 0 and not self._more():
                return "dry", None
            refusals += kind == FAILED
            if refusals > REFUSALS:
                return "refusing", None
            if kind == AT and _is(what, step.point):
                if not passes:
                    return what, xid
                passes -= 1
            self._driver.go_on()
        return "still", None

    def _more(self) -> bool:
        """Rows for a query that has run dry before its step; a publisher would have to wait for nodes that hang."""
        return not self._brokers.hinders and self._publish(self._case.per_batch)

    def _do(self, step: Step, point: str, xid: Xid | None) -> None:
        waits = point != "still"
        self._point = point
        self._sent = point.endswith(f" {of.SENT}")
        if xid is not None and self._sent:
            heard(self._brokers, xid, IN_FRONT[point.rpartition(" ")[0]])
        for deed in step.deeds:
            self._causes.add(deed)
            said = self._deeds()[deed]()
            how = "" if said is True else NOTHING if said is False else said
            self._done.append(Done(deed, point, how))
            self._trace.append(f"** {self._done[-1]}")
        if self._killed:
            self._killed = False
            self._start_driver()
        elif waits:
            self._driver.go_on()

    def _deeds(self) -> dict[str, Callable[[], bool | str]]:
        brokers, operator, names = self._brokers, self._operator, self._names
        return {
            of.KILL_DRIVER: self._kill,
            of.SUSPEND: self._suspend,
            of.WAKE: self._wake,
            of.KILL_PRIMARY: brokers.kill_primary,
            of.KILL_BROKERS: brokers.kill_all,
            of.TAKE_OVER: brokers.promote,
            of.LOSE_ANSWER: self._lose,
            of.HANG_BACKUP: lambda: brokers.hang(*brokers.ready()[:1]),
            of.HANG_BACKUPS: lambda: brokers.hang(*brokers.ready()),
            of.HANG_PRIMARY: lambda: brokers.hang(*filter(None, [brokers.primary()])),
            of.RESUME: brokers.resume,
            of.LOOK_AT_SINK: lambda: operator.look_at(names.sink_record),
            of.LOOK_AT_SOURCE: lambda: operator.look_at(names.source_record),
            of.LOOK_AT_MESSAGES: lambda: operator.look_at(names.source, SOME),
            of.PUT_BACK: operator.put_back,
            of.SETTLE_SPARK: lambda: operator.settle_spark() or True,
            of.GIVE_UP: lambda: operator.settle_spark(self._query) or True,
            of.LEAVE_BEHIND: self._leave_behind,
            of.ACCEPT_LOSS: self._accept_loss,
        }

    def _kill(self) -> bool:
        self._driver.kill()
        self._killed = True
        return True

    def _suspend(self) -> bool:
        """It holds what it holds until its connection goes."""
        self._asleep = self._driver.suspend(self._point)
        self._killed = True
        return True

    def _wake(self) -> bool:
        found, self._asleep = self._asleep, None
        if found is not None:
            self._awake = found
            found.wake()
        return found is not None

    def _lose(self) -> bool:
        """Only of a request that was sent."""
        if self._sent:
            self._driver.answer = LOSE
        return self._sent

    # -- a loss of data that is accepted

    def _leave_behind(self) -> bool:
        self._loss.leave_behind(self._names, _bodies(self._case)[: self._published])
        return True

    def _accept_loss(self) -> bool:
        """The query goes on with its checkpoint, or refuses it and gets a new one."""
        self._brokers.accept_loss()
        given_up: tuple[str, ...] = ()
        if not self._case.tolerant:
            self._refuses()
            self._kill()
            given_up = (self._query,)
        self._loss.settled(self._operator, *given_up)
        self._loss.count(self._names, self._published)
        if given_up:
            self._brokers.client.insist(lambda channel: channel.queue_delete(self._names.sink_record))
            self._query = str(uuid.uuid4())
            self._names = self._names._replace(query=self._query)
            self._checkpoint = self._checkpoint.with_name(f"checkpoint-{self._query}")
        return True

    def _refuses(self) -> None:
        """The next start of the query, or the one that lives, unless it ends without a word to the broker.

        Raises Broken if it goes on.
        """
        knows = any((self._checkpoint / "offsets").glob("[0-9]*"))
        lives = not self._killed
        if self._killed:
            self._killed = False
            self._start_driver()
        else:
            self._driver.go_on()
        while (event := self._next(PATIENCE)) is not None:
            kind, what, _ = event
            if kind == FAILED and refusal(what, self._causes) == ANOTHER_HISTORY:
                return
            if kind == RAN and not lives:
                if knows:
                    raise Broken("the query went on with its checkpoint behind a loss that was accepted")
                return
            lives = lives and kind == AT
            self._driver.go_on()
        raise Broken("the query does not refuse its checkpoint behind a loss that was accepted")

    # -- the end

    def _heal(self) -> None:
        """Nothing is hindered any more. The driver may have something to say meanwhile; it is answered later."""
        self._operator.put_back()
        self._brokers.resume()
        self._brokers.settled_down()
        self._wake()
        if self._awake is not None:
            for said in self._awake.ended():
                self._failed(said)
        self._publish(self._case.rows)
        self._trace.append("healed")

    def _drain(self) -> None:
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            event = self._next(PATIENCE)
            if event is None:
                break
            if event[:2] == (RAN, 0) and is_drained(self._brokers, self._names):
                return
            self._driver.go_on()
        raise Broken("the query does not come to its end")


def _bodies(case: Case) -> list[str]:
    return [f"row-{number}" for number in range(case.rows)]


def _is(point: str, wanted: str) -> bool:
    return wanted in (point, of.ANY) or (wanted == of.ANY_SENT and point.endswith(f" {of.SENT}"))
