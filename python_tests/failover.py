"""The scenario of ``make demo``: transactional load, two kills, a node that comes back, a drain, a verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from python_tests.aio_clients import AioWorkers
from python_tests.history import History
from python_tests.judge import Verdict, judge, takeover
from python_tests.pika_clients import (
    INPUT,
    OUTPUTS,
    Client,
    Consumer,
    Counter,
    Feeder,
    Worker,
    declare,
    remaining,
    wait_until,
)
from python_tests.processes import LocalCluster

IN_FLIGHT = 20


@dataclass
class Load:
    """How much load runs; ``think`` is how long a transaction stays open, in seconds."""

    pika_workers: int = 16
    aio_connections: int = 4
    aio_channels: int = 8
    think: float = 0.25
    rollback: float = 0.1
    ahead: int = 100


class Clients:
    """Feeder, workers on pika and aio-pika, consumers and a counter, all at work on one cluster."""

    def __init__(self, ports: Sequence[int], load: Load) -> None:
        self.history = History()
        self._ports = list(ports)
        history = self.history
        self._feeder = Feeder(ports, history, load.ahead)
        self._workers = [
            Worker(f"pika{n}", ports, history, load.think, load.rollback) for n in range(load.pika_workers)
        ]
        self._aio = AioWorkers(ports, history, load.aio_connections, load.aio_channels, load.think, load.rollback)
        self._probes = [*(Consumer(queue, ports, history) for queue in OUTPUTS), Counter(ports, history)]

    def start(self) -> None:
        """Make the queues and begin."""
        declare(self._ports)
        for client in (self._feeder, *self._workers, self._aio, *self._probes):
            client.start()

    def wait_committed(self, count: int, seconds: float = 20.0) -> None:
        """Wait for so many more commits. Raises TimeoutError."""
        goal = self.history.committed() + count
        wait_until(lambda: self.history.committed() >= goal, seconds, f"{count} more commits")

    def drain(self) -> Verdict:
        """No more inputs; work off what is there; consume until every queue is empty; judge. Raises TimeoutError."""
        self._stop(self._feeder)
        wait_until(lambda: remaining(self._ports)[INPUT] == 0 and not self.history.in_flight(), 30, "an empty input")
        for worker in self._workers:
            worker.stopping.set()
        self._aio.stopping.set()
        for each in self._workers:
            each.join(15)
        self._aio.join(15)
        wait_until(lambda: not any(remaining(self._ports).values()), 20, "empty queues")
        time.sleep(0.5)
        for probe in self._probes:
            self._stop(probe)
        return judge(self.history, OUTPUTS)

    @staticmethod
    def _stop(client: Client) -> None:
        client.stopping.set()
        client.join(10)


class Failover:
    """Runs the scenario on a cluster that is ready. ``say`` gets one line of progress at a time."""

    def __init__(self, cluster: LocalCluster, load: Load, say: Callable[[str], None]) -> None:
        self.clients = Clients(cluster.ports, load)
        self.history = self.clients.history
        self.in_flight: list[int] = []
        self._cluster = cluster
        self._say = say

    def run(self, seconds: float) -> Verdict:
        """Load, kill, load, return, load, kill, load, drain; ``seconds`` of load in each phase."""
        self.clients.start()
        self._load(seconds)
        first = self._kill()
        self._load(seconds)
        self._say(f"{first} comes back")
        self._cluster.start_node(first)
        self._cluster.wait_state(first, "ready")
        self._say(f"{first} is ready again")
        self._load(seconds)
        self._kill()
        self._load(seconds)
        self._say("draining")
        return self.clients.drain()

    def _load(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(1.0, max(0.0, end - time.monotonic())))
            self._say(f"{self.history.committed()} committed, {self.history.in_flight()} in flight")

    def _kill(self) -> str:
        """Kill the primary while at least IN_FLIGHT transactions are between first publish and answer."""
        name = self._cluster.primary()
        assert name is not None, "there is no primary to kill"
        wait_until(lambda: self.history.in_flight() >= IN_FLIGHT, 10, f"{IN_FLIGHT} transactions in flight")
        self.in_flight.append(self.history.in_flight())
        killed = self._cluster.kill(name)
        self.history.kills.append(killed)
        self._say(f"SIGKILL of the primary {name} with {self.in_flight[-1]} transactions in flight")
        wait_until(lambda: takeover(self.history, killed) is not None, 20, "a commit on a survivor")
        self._say(f"a survivor commits, {time.monotonic() - killed:.2f} s after the kill")
        return name
