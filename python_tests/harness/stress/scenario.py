"""The run: rounds of load with faults, a look whether commits go on after each, and from time to time a verdict.

After every ``judge_every`` rounds the queues are drained and the record so far is judged and written; then new clients
begin with a new record. So a run may be as long as one likes.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from sortedcontainers import SortedKeyList

from python_tests.harness.failover import Clients, wait_for_commits_under_way
from python_tests.harness.history import History
from python_tests.harness.judge import Verdict
from python_tests.harness.load import Load
from python_tests.harness.stress.fault import Fault, NotAsTold
from python_tests.harness.stress.record import Recorder
from python_tests.harness.stress.results import Injection, Result
from python_tests.harness.stress.schedule import Step
from python_tests.harness.stress.site import Site
from python_tests.harness.stress.timeline import Answers
from python_tests.harness.waiting import wait_until

AIM_SECONDS = 3.0
"""For so long a fault waits for a moment at which commits are under way"""
FIND_SECONDS = 10.0
"""For so long it waits for a node that it can hit"""
GO_ON = 20
"""So many commits after the end of all faults show that it goes on"""


class Schedule(Protocol):
    """Gives the steps of one round after the other."""

    def round(self) -> list[Step]:
        """The steps of the next round, in the order of their times."""
        ...


class Leases(Protocol):
    """Looks who is primary, all the time."""

    def judge(self, injections: Sequence[Injection], history: History) -> list[str]:
        """What was wrong since the last time, in words; each injection is told how many take-overs there were."""
        ...


class Stores(Protocol):
    """Reads what the nodes have stored."""

    def compare(self, clients: Clients, result: Result) -> None:
        """Everything stored since the last time; what disagrees goes into ``result``."""
        ...


@dataclass(frozen=True)
class Extent:
    """How much is run. ``seconds`` of load in a round; ``patience`` in seconds, for everything to be well again."""

    rounds: int = 5
    seconds: float = 20.0
    judge_every: int = 10
    patience: float = 60.0


class Stress:
    """Runs rounds at ``site``. ``say`` gets one line of progress at a time. ``stores``: None if they cannot be read;
    ``leases``: None if nodes cannot be asked."""

    def __init__(
        self,
        site: Site,
        load: Load,
        schedule: Schedule,
        extent: Extent,
        recorder: Recorder,
        chance: random.Random,
        say: Callable[[str], None],
        stores: Stores | None = None,
        leases: Leases | None = None,
    ) -> None:
        self.result = Result()
        self._site = site
        self._load = load
        self._schedule = schedule
        self._extent = extent
        self._recorder = recorder
        self._random = chance
        self._say = say
        self._stores = stores
        self._leases = leases
        self._clients: Clients

    def run(self) -> Result:
        """All rounds, or those before something did not come about."""
        extent = self._extent
        for first in range(0, extent.rounds, extent.judge_every):
            self._batch(first, min(extent.judge_every, extent.rounds - first))
            if self.result.stalled:
                break
        return self.result

    def _batch(self, first: int, count: int) -> None:
        """Some rounds with one set of clients, and the verdict on them."""
        result, injected = self.result, len(self.result.injections)
        self._clients = Clients(self._site.urls, self._load, f"{first + 1}:")
        began = time.monotonic()
        try:
            self._clients.start()
            for number in range(first + 1, first + count + 1):
                self._round(number)
                result.rounds += 1
        except (TimeoutError, NotAsTold) as error:
            result.stalled.append(str(error))
        ended = time.monotonic()
        result.seconds += ended - began
        history = self._clients.history
        self._say("draining")
        try:
            verdict = self._clients.drain(self._extent.patience, self._site.settle)
        except TimeoutError as error:
            result.stalled.append(str(error))
            self._clients.abandon()
            verdict = Verdict()  # a record that does not reach to the end cannot be judged
        result.verdict.add(verdict)
        if self._leases is not None:
            result.leases += self._leases.judge(result.injections[injected:], history)
        if self._stores is not None:
            self._stores.compare(self._clients, result)
        result.timeline.add(history, began, ended)
        answers = Answers(history)
        for injection in result.injections[injected:]:
            injection.next_ok = answers.next_ok(injection.began)
            injection.pause = answers.pause(injection.began, injection.healed)
        self._recorder.write(history, result.injections[injected:])
        self._say(f"judged: {verdict.committed} transactions committed, {len(verdict.broken)} broken promises")

    def _round(self, number: int) -> None:
        """Load, faults, load; then everything must be well and commits go on. Raises TimeoutError.

        What begins or ends late moves all that comes later, so that faults overlap only where the schedule says so.
        """
        began, late = time.monotonic(), 0.0
        agenda = SortedKeyList(key=itemgetter(0, 1))
        agenda.update((step.at, order, step, None) for order, step in enumerate(self._schedule.round()))
        try:
            while agenda:
                at, order, step, active = agenda.pop(0)
                if active is None and at < step.at + late:
                    agenda.add((step.at + late, order, step, None))
                    continue
                others = [until for until, _, _, other in agenda if other is not None]
                if active is None and others and step.kind in self._site.cluster_wide:
                    agenda.add((max(others), order, step, None))  # it has the place for itself
                    continue
                self._run_until(began + at, number)
                if active is None:
                    active = self._begin(number, step, alone=not others)
                    if active is not None:
                        now = time.monotonic() - began
                        late = max(late, now - step.at)
                        agenda.add((now + step.seconds, order, step, active))
                    elif others:
                        agenda.add((max(others), order, step, None))  # its target is there when the others have ended
                else:
                    self._heal(*active)
                    late = max(late, time.monotonic() - began - step.at - step.seconds)
        finally:
            for _, _, _, active in agenda:
                if active is not None:
                    with contextlib.suppress(Exception):
                        self._heal(*active)
        self._run_until(began + self._extent.seconds, number)
        wait_until(self._site.healthy, self._extent.patience, f"round {number}: all nodes well", every=0.2)
        self._clients.wait_committed(GO_ON, self._extent.patience)

    def _begin(self, number: int, step: Step, alone: bool) -> tuple[Fault, Injection] | None:
        """Let a fault happen, in the middle of commits if possible. ``alone``: no other one lasts.

        What a fault before it has ended cannot be hit, but will be there again. Returns None if there was nothing to
        hit: at once where another fault lasts, else after ``FIND_SECONDS``.
        """
        until = time.monotonic() + (FIND_SECONDS if alone else 0.0)
        while True:
            try:
                return self._strike(number, step, alone)
            except LookupError as error:
                if time.monotonic() >= until:
                    self._say(f"round {number}: no {step.kind}{'' if alone else ' yet'}, {error}")
                    return None
            time.sleep(0.1)

    def _strike(self, number: int, step: Step, alone: bool) -> tuple[Fault, Injection]:
        """Raises LookupError if there is nothing to hit."""
        history = self._clients.history
        fault, role = self._site.fault(step.kind, step.target, history, self._random, self._say)
        wait_for_commits_under_way(history, AIM_SECONDS)
        in_flight, committing = history.in_flight(), history.committing_now()
        began = time.monotonic()
        done = fault.begin()
        injection = Injection(number, step.kind, fault.target, role, done, began, in_flight, committing, alone=alone)
        injection.in_force = time.monotonic()
        injection.leaseless, injection.cut_off = sorted(fault.leaseless()), sorted(fault.cut_off())
        self.result.injections.append(injection)
        shown = f" ({role})" if role else ""
        self._say(f"round {number}: {done}{shown}, with {in_flight} transactions in flight, {committing} committing")
        return fault, injection

    def _heal(self, fault: Fault, injection: Injection) -> None:
        injection.lifted = time.monotonic()
        try:
            injection.hit = fault.heal()
        except NotAsTold:
            injection.hit = True
            raise
        finally:
            injection.healed = time.monotonic()
        remark = "" if injection.hit else ", and has hit nothing"
        self._say(f"round {injection.round}: {injection.kind} is over{remark}")

    def _run_until(self, moment: float, number: int) -> None:
        history = self._clients.history
        while (left := moment - time.monotonic()) > 0:
            time.sleep(min(5.0, left))
            if left > 5:
                self._say(f"round {number}: {history.committed()} committed, {history.in_flight()} in flight")
