"""The scenario of ``make demo``: transactional load, two kills, a node that comes back, a drain, a verdict."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence

from python_tests.harness.aio_clients import AioWorkers
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.history import History
from python_tests.harness.judge import Verdict, judge, takeover
from python_tests.harness.load import Load
from python_tests.harness.pika_clients import Client, Feeder, Worker
from python_tests.harness.pika_probes import Consumer, Counter, Getter, Probe, declare, remaining
from python_tests.harness.waiting import wait_until
from recovery.dtx.lost import LOST

IN_FLIGHT = 20
"""Transactions between their first publish and their answer at each kill, at least"""

COMMITTING = 5
"""Of these, how many the killer would like to have sent their commit"""


class Clients:
    """Feeders, workers on pika and aio-pika, probes of every output and a counter, all at work on one cluster."""

    def __init__(self, urls: Sequence[str], load: Load, prefix: str = "") -> None:
        self.history = History(prefix)
        self._urls = list(urls)
        queues = load.queues
        self._load = load
        self._feeders = [Feeder(n, urls, self.history, load) for n in range(2)]
        self._workers = [Worker(n, urls, self.history, load) for n in range(load.pika_workers)]
        self._extra_workers = 0
        self._aio = AioWorkers(urls, self.history, load)
        consumed, asked = queues.outputs[:-1], queues.outputs[-1]
        self._probes: list[Probe] = [Consumer(queue, urls, self.history, n) for n, queue in enumerate(consumed)]
        self._probes.append(Getter(asked, urls, self.history))
        self._counter = Counter(queues.outputs, urls, self.history)

    def start(self) -> None:
        """Make the queues and begin."""
        declare(self._urls, self._load.queues)
        for client in self._all_clients():
            client.start()

    def wait_committed(self, count: int, seconds: float = 20.0) -> None:
        """Wait for so many more commits. Raises TimeoutError."""
        goal = self.history.committed() + count
        wait_until(lambda: self.history.committed() >= goal, seconds, f"{count} more commits")

    def drain(self, seconds: float = 30.0, settle: float = 0.1) -> Verdict:
        """No more inputs; work off what is there; consume until every queue is empty; judge.

        ``seconds``: for the end of all inputs, and then for anything to come. ``settle``: for how long no message may
        come before the queues are taken for empty. Raises TimeoutError.
        """
        for feeder in self._feeders:
            feeder.stop()
        with contextlib.suppress(TimeoutError):  # then something is lost, and the judge will say what
            wait_until(self._worked_off, seconds, "the end of all inputs", every=0.1)
        for worker in self._workers:
            worker.stopping.set()
        clients: list[Client | AioWorkers] = [*self._workers, self._aio, *self._probes, self._counter]
        for client in clients:
            client.stop()
        self._empty(seconds, settle)
        return judge(self.history, self._load.queues.outputs)

    def abandon(self) -> None:
        """Tell all clients to stop, and do not wait for it."""
        for client in self._all_clients():
            client.stopping.set()

    def _all_clients(self) -> list[Client | AioWorkers]:
        return [*self._feeders, *self._workers, self._aio, *self._probes, self._counter]

    def _worked_off(self) -> bool:
        """Every confirmed input has been through a transaction that may have happened, and no client is at work."""
        return not self.history.waiting() and not self.history.open_attempts()

    def _empty(self, seconds: float, settle: float) -> None:
        """Take until nothing is left, for two looks with ``settle`` seconds between.

        Raises TimeoutError when nothing more has come for ``seconds`` and the broker still says that something is left.
        """
        looks, deadline = 0, time.monotonic() + seconds
        while True:
            seen = len(self.history.sightings)
            left = self._take_what_is_left()
            came = len(self.history.sightings) > seen
            if came:
                deadline = time.monotonic() + seconds
            looks = looks + 1 if left == 0 and not came else 0
            if looks == 2:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"empty queues did not come about: {left} messages, and none has come for {seconds:.0f} s"
                )
            time.sleep(settle if looks else 0.1)

    def _take_what_is_left(self) -> int | None:
        """Work off and take what can be had, whatever the broker counts; how many are left, None if no node says.

        Some are what no client has consumed yet, some came back from clients that have ended.
        """
        queues, history = self._load.queues, self.history
        for url in self._urls:
            with contextlib.suppress(*LOST):
                self._extra_workers += 1
                Worker(len(self._workers) + self._extra_workers, [url], history, self._load).work_off()
                for queue in queues.outputs:
                    Consumer(queue, [url], history).drain()
                if left := remaining([url], queues):
                    return sum(left.values())
        return None


class Failover:
    """Runs the scenario on a cluster that is ready. ``say`` gets one line of progress at a time."""

    def __init__(self, cluster: LocalCluster, load: Load, say: Callable[[str], None]) -> None:
        self.clients = Clients(cluster.urls, load)
        self.history = self.clients.history
        self._cluster = cluster
        self._random = random.Random()
        self._say = say

    def run(self, seconds: float) -> Verdict:
        """Load, kill, load, return, load, kill, load, drain; ``seconds`` of load in each phase."""
        self.clients.start()
        self._run_load(seconds)
        first = self._kill()
        self._run_load(seconds)
        self._say(f"{first} comes back")
        self._cluster.start_node(first)
        self._cluster.wait_state(first, "ready")
        self._say(f"{first} is ready again")
        self._run_load(seconds)
        self._kill()
        self._run_load(seconds)
        self._say("draining")
        return self.clients.drain()

    def _run_load(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))
            self._say(f"{self.history.committed()} committed, {self.history.in_flight()} in flight")

    def _kill(self) -> str:
        """Kill the primary in the middle of commits, with enough transactions in flight."""
        name = self._cluster.primary()
        assert name is not None, "there is no primary to kill"
        history = self.history
        wait_for_commits_under_way(history, 5)  # if it does not come about, the verdict will say so
        time.sleep(self._random.uniform(0, 0.008))  # some commits get far, some do not
        killed = self._cluster.kill(name)
        history.kills.append(killed)
        open_then, committing = history.undecided_at(killed)
        self._say(f"SIGKILL of {name}, the primary: {open_then} transactions in flight, {committing} committing")
        wait_until(lambda: takeover(history, killed) is not None, 20, "a commit on a survivor")
        self._say(f"a survivor commits, {takeover(history, killed):.2f} s after the kill")
        return name


def wait_for_commits_under_way(history: History, seconds: float) -> None:
    """Until a fault would hit many transactions, some of them while they commit; or until ``seconds`` have gone by."""

    def in_the_middle() -> bool:
        return history.committing_now() >= COMMITTING and history.in_flight() >= IN_FLIGHT

    with contextlib.suppress(TimeoutError):
        wait_until(in_the_middle, seconds, "a good moment", every=0.001)
