"""The run: a cluster of three nodes under load, ``txha promote`` and SIGTERM of the primary in turn, a verdict."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.failover import Clients, wait_for_commits_under_way
from python_tests.harness.history import UNKNOWN
from python_tests.harness.judge import Verdict
from python_tests.harness.load import Load
from python_tests.harness.waiting import wait_until
from python_tests.suites.handovers.figures import HandedOver, handed_over

LOAD = Load(pika_workers=8, aio_connections=2, aio_channels=8, think=0.02, beat=0.02, rollback=0.05)
"""Short transactions: a pause is to be one of the cluster, and none of the clients'"""
SECONDS = 60.0
AROUND = 0.5
"""Seconds behind a handover that belong to it: until then every client has found the new primary"""
PROMOTE, SIGTERM = "promote", "SIGTERM"


class Handovers:
    """On a cluster that is ready. ``say`` gets one line of progress at a time."""

    def __init__(self, cluster: LocalCluster, say: Callable[[str], None], load: Load = LOAD) -> None:
        self.clients = Clients(cluster.urls, load)
        self.found: list[HandedOver] = []
        self._history = self.clients.history
        self._cluster = cluster
        self._say = say

    def run(self, count: int) -> Verdict:
        """So many handovers, and the verdict on all that clients saw. Raises TimeoutError."""
        self.clients.start()
        self.clients.wait_committed(20, SECONDS)
        with collector_held():
            for number in range(count):
                self._one(number, PROMOTE if number % 2 == 0 else SIGTERM)
        self._say("draining")
        return self.clients.drain(SECONDS)

    @property
    def unknown(self) -> int:
        """Transactions and plain publishes of the whole run whose outcome their clients do not know."""
        return sum(each.outcome == UNKNOWN for each in self._history.attempts)

    def _one(self, number: int, how: str) -> None:
        cluster, history = self._cluster, self._history
        collect()
        wait_until(cluster.all_ready, SECONDS, "a cluster that is ready", every=0.05)
        former = cluster.primary()
        assert former is not None, "all are ready"
        wait_for_commits_under_way(history, 1)
        began = history.clock()
        said = self._promote() if how == PROMOTE else self._stop(former)
        committed = history.committed()
        with contextlib.suppress(TimeoutError):  # then the verdict will say it
            wait_until(lambda: history.committed() > committed, SECONDS, "a commit at the new primary", every=0.01)
        time.sleep(AROUND)
        self.found.append(handed_over(history, how, former, began, history.clock(), said))
        if how == SIGTERM:
            cluster.start_node(former)
        last = self.found[-1]
        self._say(
            f"{number + 1:3} {how:<8} of {former}: pause {last.pause:.3f} s, {last.unknown} unknown, "
            f"{last.failed} failed; {told(said)}"
        )

    def _promote(self) -> dict[str, Any]:
        """``txha promote`` of a backup."""
        chosen = self._cluster.backups()[0]
        command = [sys.executable, "-m", "broker_plugin.cli.main", "promote", "--dir", str(self._cluster.directory)]
        done = subprocess.run([*command, chosen, "--wait", "--json"], check=True, capture_output=True, text=True)
        found: dict[str, Any] = json.loads(done.stdout)
        return found.get("handover") or {}

    def _stop(self, former: str) -> dict[str, Any]:
        """SIGTERM of the primary, until another one is active."""
        cluster, pid = self._cluster, self._cluster.pid(former)
        os.kill(pid, signal.SIGTERM)
        wait_until(lambda: not cluster.processes.runs_as(former, pid), SECONDS, f"the end of {former}", every=0.01)
        wait_until(lambda: cluster.primary() not in (None, former), SECONDS, "another primary", every=0.01)
        active = next((each for each in cluster.status() if each["state"] == "active"), {})
        return active.get("handover") or {}


@contextlib.contextmanager
def collector_held() -> Iterator[None]:
    """What the clients have seen grows, and a collection of all of it holds them up for 0.5 s: that would be measured
    as a pause of the cluster. Here none comes by itself."""
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def collect() -> None:
    """What came since the last time, between two handovers."""
    gc.collect()
    gc.freeze()


def told(said: dict[str, Any]) -> str:
    """What the new primary says, in words."""
    if not said:
        return "the new primary has not heard how the clients were closed"
    return f"{said['clients']} clients closed after {said['drained']:.3f} s, none served for {said['pause']:.3f} s"
