"""Nodes replaced one by one under load: from the release to the present version, back, and there again; then a verdict.

Each step is looked at by itself: which transactions had no outcome, or were refused, while it was carried out. Beside
the steps there may be none.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from python_tests.harness.failover import Clients
from python_tests.harness.history import FAILED, OK, UNKNOWN, Attempt, History
from python_tests.harness.judge import Verdict
from python_tests.harness.load import Load
from python_tests.harness.waiting import wait_until
from python_tests.suites.upgrade.cluster import WAIT_SECONDS, MixedCluster
from python_tests.suites.upgrade.declared import Declared
from python_tests.suites.upgrade.schedule import NEW, Step
from tests.support.releases import Release

LOAD = Load(pika_workers=4, aio_connections=2, aio_channels=2, think=0.2, beat=0.1, largest=20, ahead=40)
COMMITS = 30
"""Between two steps, at least"""
AFTER_SECONDS = 1.0
"""A client may hear of the end of its connection so much later than the step has ended"""
Say = Callable[[str], None]


@dataclass
class Told:
    """What a step was and what its clients saw meanwhile. Seconds; transactions and plain publishes by outcome.

    ``pause``: the longest time within the step without an answer ok. ``left``: versions of the nodes behind it.
    """

    step: str
    node: str
    left: str
    began: float
    seconds: float
    ok: int = 0
    failed: int = 0
    unknown: int = 0
    unconfirmed: int = 0
    pause: float = 0.0

    def holds(self, attempt: Attempt) -> bool:
        """Whether this attempt was on its way while the step was carried out, or just after it."""
        begun = attempt.commit_sent if attempt.commit_sent is not None else attempt.first_publish
        ended = attempt.answered if attempt.answered is not None else float("inf")
        return begun is not None and begun <= self.began + self.seconds + AFTER_SECONDS and ended >= self.began


@dataclass
class Result:
    """All of it. ``breaches``: each promise that did not hold, in a sentence; ``aside``: no outcome beside any step."""

    release: str
    present: str
    seconds: float = 0.0
    committed: int = 0
    confirmed: int = 0
    steps: list[Told] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)


class Campaign:
    """On three nodes of ``old`` in ``directory``; ``say`` gets one line of progress at a time."""

    def __init__(self, directory: Path, old: Release, new: Release, say: Say, load: Load = LOAD) -> None:
        self.cluster = MixedCluster(directory / "cluster", old)
        self._old, self._new, self._say = old, new, say
        self._load = load
        self._declared = Declared(self.cluster)
        self.result = Result(old.version, new.version)

    def run(self, steps: Sequence[Step]) -> Result:
        """All steps under load, and the judgement. Raises RuntimeError where it could not be played to its end."""
        began = time.monotonic()
        for name in ("pika", "aiormq", "aio_pika"):  # each lost connection, with its traceback
            logging.getLogger(name).setLevel(logging.CRITICAL)
        try:
            with self.cluster:
                self.cluster.wait_all_ready()
                self._clients = Clients(self.cluster.urls, self._load)
                self._history = self._clients.history
                try:
                    self._play(steps)
                finally:
                    self._clients.abandon()
        except TimeoutError as error:
            raise RuntimeError(f"the upgrade did not come to its end: {error}") from error
        self.result.seconds = round(time.monotonic() - began, 1)
        return self.result

    def _play(self, steps: Sequence[Step]) -> None:
        self._declared.more(self._old)
        self._clients.start()
        self._clients.wait_committed(COMMITS)
        for number, step in enumerate(steps):
            self._carry_out(step)
            self._clients.wait_committed(COMMITS, WAIT_SECONDS)
            if step.kind == "replace":
                self._look()
            if number % 4 == 0:  # in a mixture: behind the first node of a leg
                self._declared.more((self._old, self._new)[self._declared.made % 2])
        self._say("draining")
        verdict = self._clients.drain(60.0)
        self._look()
        self.result.breaches += [*self._declared.settled(), *self._declared.alike(), *verdict.broken]
        self._count(verdict)

    def _look(self) -> None:
        """Whether all that was declared is there."""
        self.result.breaches += [f"{each} (nodes: {self._versions()})" for each in self._declared.missing()]

    def _versions(self) -> str:
        return ", ".join(version for _, version in sorted(self.cluster.versions().items()))

    # -- steps

    def _carry_out(self, step: Step) -> None:
        began = time.monotonic()
        node = {"replace": self._replace, "hand over": self._hand_over, "kill": self._kill}[step.kind](step)
        seconds = time.monotonic() - began
        told = Told(str(step), node, self._versions(), began, seconds)
        self.result.steps.append(told)
        self._say(f"{step}: {node}, {seconds:.1f} s; nodes: {told.left}; {self._history.committed()} committed")

    def _replace(self, step: Step) -> str:
        wanted, other = (self._new, self._old) if step.version == NEW else (self._old, self._new)
        name = self._backup(other)
        self.cluster.replace(name, wanted)
        return name

    def _hand_over(self, step: Step) -> str:
        """Nothing is to do where the primary is of that version already, as a take-over may have left it."""
        wanted = self._new if step.version == NEW else self._old
        primary = self.cluster.primary()
        if primary is not None and self.cluster.versions()[primary] == wanted.version:
            return primary
        name = self._backup(wanted)
        self.cluster.hand_over(name)
        self.cluster.wait_all_ready()
        return name

    def _kill(self, step: Step) -> str:
        name = self.cluster.primary()
        if name is None:
            raise RuntimeError("there is no primary to kill")
        before = self._history.committed()
        self._history.kills.append(self.cluster.kill(name))
        wait_until(lambda: self._history.committed() > before + COMMITS, WAIT_SECONDS, "commits on a survivor")
        self.cluster.start_with(name, self.cluster.runs[name])
        self.cluster.wait_all_ready()
        return name

    def _backup(self, release: Release) -> str:
        """A ready backup that runs it. Raises RuntimeError where there is none."""
        name = self.cluster.backup(release.version)
        if name is None:
            raise RuntimeError(f"no ready backup runs {release.version}: {self.cluster.versions()}")
        return name

    # -- counts

    def _count(self, verdict: Verdict) -> None:
        result = self.result
        result.committed, result.confirmed = verdict.committed, verdict.confirmed
        result.aside = counted(self._history, result.steps)
        for each in result.steps:
            each.began, each.seconds = round(each.began, 3), round(each.seconds, 2)
        result.breaches += [f"beside every step: {each}" for each in result.aside]


def counted(history: History, steps: Sequence[Told]) -> list[str]:
    """Count into each step what became of the attempts within it; returns what failed, or is unknown, beside all."""
    aside = []
    for attempt in history.attempts:
        if attempt.on_purpose or attempt.outcome not in (OK, FAILED, UNKNOWN):
            continue
        step = next((each for each in steps if each.holds(attempt)), None)
        if step is not None:
            step.ok += attempt.outcome == OK
            step.failed += attempt.outcome == FAILED
            step.unknown += attempt.outcome == UNKNOWN and not attempt.plain
            step.unconfirmed += attempt.outcome == UNKNOWN and attempt.plain
        elif attempt.outcome != OK:
            aside.append(f"{attempt.id} at {attempt.node}: {attempt.outcome}")
    for step in steps:
        step.pause = round(longest_pause(history, step.began, step.began + step.seconds), 2)
    return aside


def longest_pause(history: History, began: float, ended: float) -> float:
    """Seconds without an answer ok to anything, between these moments."""
    times = sorted(
        each.answered
        for each in history.attempts
        if each.outcome == OK and each.answered and began <= each.answered <= ended
    )
    points = [began, *times, ended]
    return max(after - before for before, after in itertools.pairwise(points))
