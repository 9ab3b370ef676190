"""How long clients wait for a survivor: SIGKILL of the primary, again and again."""

from __future__ import annotations

import json
import logging
import statistics
import tempfile
import time
from pathlib import Path

import pika
from rich.console import Console

from python_tests.harness.cluster import LocalCluster
from recovery.dtx.lost import LOST, connected

GOAL_SECONDS = 2.0
QUEUE = "takeover"


def run(trials: int, as_json: bool) -> int:
    """Print the distribution of the time from SIGKILL to the first confirmed publish; 1 if p95 misses the goal."""
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    console = Console(stderr=as_json)
    times: list[float] = []
    with tempfile.TemporaryDirectory(prefix="txha-takeover-") as directory:
        cluster = LocalCluster(Path(directory) / "cluster", 3, "--restart")
        with cluster:
            for trial in range(trials):
                times.append(_trial(cluster))
                console.print(f"trial {trial + 1:2}: {times[-1]:.2f} s", highlight=False)
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * len(ordered)) - 1)] if len(ordered) > 1 else ordered[0]
    if as_json:
        print(json.dumps({"seconds": times, "p50": statistics.median(times), "p95": p95, "max": max(times)}))
    else:
        _histogram(console, ordered)
        median = statistics.median(times)
        console.print(f"min {ordered[0]:.2f} s  p50 {median:.2f} s  p95 {p95:.2f} s  max {ordered[-1]:.2f} s")
    return 0 if p95 <= GOAL_SECONDS else 1


def _trial(cluster: LocalCluster) -> float:
    """All nodes ready, then SIGKILL, then publish to the survivors until one confirms."""
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


def _histogram(console: Console, ordered: list[float]) -> None:
    """A row for each tenth of a second."""
    for tenth in range(int(ordered[0] * 10), int(ordered[-1] * 10) + 1):
        count = sum(int(each * 10) == tenth for each in ordered)
        console.print(f"{tenth / 10:4.1f} s  {'█' * count}", highlight=False)
