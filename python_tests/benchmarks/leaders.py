"""Whether a change of etcd's leader costs a take-over: with each length of the lease, by SIGKILL and by hand.

``make bench-restart OPTIONS="--only leaders"`` measures it (``benchmarks.restart``).

The leader of an etcd of three members is killed, or leadership is moved to another member, while a client publishes
with confirms. A take-over shows in the generation of the cluster, and what the client waits in its longest pause.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pika

from python_tests.harness.etcd_cluster import EtcdCluster
from python_tests.harness.servers.etcd import EtcdServers
from python_tests.harness.waiting import wait_until
from recovery.dtx.lost import LOST, connected

KILLED, MOVED = "SIGKILL of the leader", "move-leader"
WAYS = (KILLED, MOVED)
LEASES = (1.0, 2.0, 3.0, 4.0, 8.0)
"""Seconds"""
RENEWALS = 8
"""In a lease"""
PATIENCE = 60.0
QUIET_SECONDS = 1.0
"""Load before each change of the leader"""
QUEUE = "leaders"


@dataclass
class Found:
    """What one length of the lease has come to, for one way: a number for each trial."""

    lease_ttl: float
    renew_every: float
    way: str
    take_overs: list[int] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    """Seconds of the longest time without a confirm"""


class Publisher(threading.Thread):
    """Publishes one message after the other, to any node that takes it, and remembers when each was confirmed."""

    def __init__(self, ports: list[int]) -> None:
        super().__init__(daemon=True)
        self._ports = ports
        self._ended = threading.Event()
        self.confirmed: list[float] = []

    def run(self) -> None:
        """Until ``end``."""
        attempt = 0
        while not self._ended.is_set():
            try:
                self._publish(self._ports[attempt % len(self._ports)])
            except LOST:
                attempt += 1
                time.sleep(0.01)

    def end(self) -> None:
        """Publish no more, and wait for the last answer."""
        self._ended.set()
        self.join(PATIENCE)

    def longest_pause(self, since: float) -> float:
        """Seconds, of what was confirmed from then on and of what was not by now."""
        moments = [since, *(moment for moment in self.confirmed if moment > since), time.monotonic()]
        return max(later - earlier for earlier, later in pairwise(moments))

    def _publish(self, port: int) -> None:
        """Until the connection is lost. Raises what says so."""
        with connected(pika.ConnectionParameters("127.0.0.1", port, socket_timeout=1, stack_timeout=20)) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.confirm_delivery()
            while not self._ended.is_set():
                channel.basic_publish("", QUEUE, b"x", pika.BasicProperties(delivery_mode=2))
                self.confirmed.append(time.monotonic())
                time.sleep(0.01)


def measure(leases: Sequence[float], trials: int) -> list[Found]:
    """For each lease and way so many changes of the leader. Raises RuntimeError, TimeoutError."""
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    found = []
    with EtcdServers(3) as servers, tempfile.TemporaryDirectory(prefix="txha-leaders-") as directory:
        for number, lease in enumerate(leases):
            every = lease / RENEWALS if lease / RENEWALS >= 0.2 else 0.2
            settings = (f"timing.lease_ttl={lease:g}", f"timing.renew_every={every:g}")
            place = Path(directory) / f"{number}"
            with EtcdCluster(place, servers.address(f"leaders-{number}"), 3, *settings) as cluster:
                for way in WAYS:
                    entry = Found(lease, every, way)
                    for _ in range(trials):
                        _trial(cluster, servers, entry)
                    found.append(entry)
                    told = f"{sum(entry.take_overs)} take-overs in {trials}, longest pause {max(entry.pauses):.2f} s"
                    print(f"lease {lease:4.1f} s  {way:22}  {told}", flush=True)
    return found


def _trial(cluster: EtcdCluster, servers: EtcdServers, entry: Found) -> None:
    wait_until(cluster.all_ready, PATIENCE, "all nodes ready", every=0.1)
    before, leader = _generation(cluster), servers.leader()
    publisher = Publisher(cluster.ports)
    publisher.start()
    wait_until(lambda: bool(publisher.confirmed), PATIENCE, "a first confirm")
    time.sleep(QUIET_SECONDS)
    began = time.monotonic()
    if entry.way == KILLED:
        servers.kill(leader)
    else:
        servers.move_leader((leader + 1) % len(servers.ports))
    # So long a lease may go on to run out, and its successor takes as long again.
    time.sleep(2 * entry.lease_ttl + QUIET_SECONDS)
    wait_until(lambda: publisher.confirmed[-1] > time.monotonic() - 0.5, PATIENCE, "confirms again")
    entry.pauses.append(publisher.longest_pause(began))
    publisher.end()
    servers.start(*servers.missing())
    wait_until(cluster.all_ready, PATIENCE, "all nodes ready", every=0.1)
    entry.take_overs.append(_generation(cluster) - before)


def _generation(cluster: EtcdCluster) -> int:
    return max(int(node.get("generation", 0)) for node in cluster.status())
