"""How long clients wait for a survivor: SIGKILL of the primary again and again, with a record in a file or in etcd."""

from __future__ import annotations

import json
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pika
from rich.console import Console

from broker_plugin.cli.layout import CONFIG_FILE
from broker_plugin.node.config import ConfigError, load_config
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.etcd_cluster import EtcdCluster
from python_tests.harness.servers.etcd import EtcdServers, why_not
from recovery.dtx.lost import LOST, connected

SQLITE, ETCD = "sqlite", "etcd"
STORES = (SQLITE, ETCD)
GOAL_SQLITE = 0.8
"""Seconds that half of all take-overs may take with a record in a file"""
GOAL_OVER_LEASE = 0.4
"""Seconds above the lease that half of them may take with one in etcd"""
MEMBERS = 3
"""Of the etcd"""
QUEUE = "takeover"


@dataclass
class Measured:
    """The times from SIGKILL to the first confirmed publish, in seconds, with this store; ``goal``: for the median."""

    coordination: str
    lease_ttl: float
    goal: float
    seconds: list[float] = field(default_factory=list)

    @property
    def p50(self) -> float:
        """The median."""
        return statistics.median(self.seconds)

    @property
    def p95(self) -> float:
        """What 95 of 100 do not exceed."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, round(0.95 * len(ordered)) - 1)] if len(ordered) > 1 else ordered[0]

    def as_dict(self) -> dict[str, object]:
        """For ``--json``."""
        return {**asdict(self), "p50": self.p50, "p95": self.p95, "max": max(self.seconds)}


def run(trials: int, as_json: bool, coordination: str = SQLITE) -> int:
    """Print the distribution; 1 if the median misses the goal. Raises ConfigError for a store that there is not."""
    if coordination not in STORES:
        raise ConfigError(f"there is no coordination store {coordination!r}; there are {', '.join(STORES)}")
    if coordination == ETCD and (missing := why_not()) is not None:
        raise ConfigError(missing)
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    console = Console(stderr=as_json)
    with tempfile.TemporaryDirectory(prefix="txha-takeover-") as directory:
        place = Path(directory) / "cluster"
        with _cluster(place, coordination) as cluster:
            lease = load_config(place / "node-1" / CONFIG_FILE).timing.lease_ttl
            goal = GOAL_SQLITE if coordination == SQLITE else lease + GOAL_OVER_LEASE
            measured = Measured(coordination, lease, goal)
            for trial in range(trials):
                measured.seconds.append(_trial(cluster))
                console.print(f"trial {trial + 1:2}: {measured.seconds[-1]:.2f} s", highlight=False)
    if as_json:
        print(json.dumps(measured.as_dict()))
    else:
        _show(console, measured)
    return 0 if measured.p50 <= measured.goal else 1


@contextmanager
def _cluster(place: Path, coordination: str) -> Iterator[LocalCluster]:
    """Three nodes with default settings. A supervisor starts again what was killed, or ``start_killed`` does."""
    if coordination == SQLITE:
        with LocalCluster(place, 3, "--restart") as cluster:
            yield cluster
    else:
        with EtcdServers(MEMBERS) as servers, EtcdCluster(place, servers.address(), 3) as cluster:
            yield cluster


def _trial(cluster: LocalCluster) -> float:
    """All nodes ready, then SIGKILL, then publish to the survivors until one confirms."""
    if isinstance(cluster, EtcdCluster):
        cluster.start_killed()
    while not cluster.all_ready():
        time.sleep(0.1)
    primary = cluster.primary()
    assert primary is not None
    _publish(cluster.ports[0])
    survivors = [port for index, port in enumerate(cluster.ports) if f"node-{index + 1}" != primary]
    killed = cluster.kill(primary)
    attempt = 0
    while not _publish(survivors[attempt % len(survivors)]):
        attempt += 1
        time.sleep(0.01)
    return time.monotonic() - killed


def _publish(port: int) -> bool:
    """Whether a publish to this node was confirmed."""
    try:
        with connected(pika.ConnectionParameters("127.0.0.1", port, socket_timeout=1, stack_timeout=5)) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.confirm_delivery()
            channel.basic_publish("", QUEUE, b"x", pika.BasicProperties(delivery_mode=2))
            return True
    except LOST:
        return False


def _show(console: Console, measured: Measured) -> None:
    """A row for each tenth of a second, and what it comes to."""
    ordered = sorted(measured.seconds)
    for tenth in range(int(ordered[0] * 10), int(ordered[-1] * 10) + 1):
        count = sum(int(each * 10) == tenth for each in ordered)
        console.print(f"{tenth / 10:4.1f} s  {'█' * count}", highlight=False)
    console.print(
        f"min {ordered[0]:.2f} s  p50 {measured.p50:.2f} s  p95 {measured.p95:.2f} s  max {ordered[-1]:.2f} s"
    )
    kept = "etcd" if measured.coordination == ETCD else "a file"
    verdict = "reached" if measured.p50 <= measured.goal else "missed"
    console.print(
        f"record in {kept}, lease {measured.lease_ttl:g} s: the goal of p50 {measured.goal:g} s is {verdict}",
        highlight=False,
    )
