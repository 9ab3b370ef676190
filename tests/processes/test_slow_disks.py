"""Joiners whose checkpoints are slow while their logs are not: real nodes, real syncs that take their time.

The log and the queue state are written by two threads, so a joiner may hold all of a snapshot in memory, and
acknowledge what comes after it, long before its disk knows of the snapshot. Till then its disk says *resyncing*.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import pytest

from python_tests.harness.pika_clients import PERSISTENT, parameters
from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.network import Impairment, Proxied
from python_tests.harness.stress.syncs import Disks, Kind
from python_tests.harness.waiting import wait_until
from recovery.store.lmdb_state import read_meta
from recovery.store.segment import segment_firsts

pytestmark = pytest.mark.slice

SETTINGS = ("store.segment_bytes=40000", "store.checkpoint_seconds=0.3", "store.retention_seconds=0.5")
"""A node that comes with an empty store finds the beginning of the log gone, and is sent a snapshot"""
PATIENT = ("timing.prepare_timeout=30",)
"""The primary waits for the joiner's disk, however slow"""
QUEUE = "q"
SECONDS = 60.0
BOTH = frozenset({(0, 1), (1, 0)})


@dataclass
class Joining:
    """A node that has lost its store joins the other one, over a disk whose checkpoints are slow."""

    cluster: StressCluster
    disks: Disks
    network: Proxied
    primary: str
    joiner: str
    confirmed: list[bytes] = field(default_factory=list)

    def publish(self, count: int) -> None:
        """With confirms, at the primary."""
        with pika.BlockingConnection(parameters(self.cluster.url(self.primary))) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.confirm_delivery()
            for _ in range(count):
                body = b"%d" % len(self.confirmed) + b" " * 5000
                channel.basic_publish("", QUEUE, body, PERSISTENT)
                self.confirmed.append(body)

    def begin(self, seconds: float) -> None:
        """The joiner starts with an empty store; each of its checkpoints waits twice for so many seconds."""
        self.cluster.kill(self.joiner)
        home = self.cluster.directory / self.joiner
        for part in ("log", "state"):
            shutil.rmtree(home / part)
        (home / "identity.json").unlink()
        wait_until(lambda: len(self.ready()) == 1, SECONDS, "the lost member's removal")
        wait_until(self._begins_later, SECONDS, "a log that does not begin at the beginning")
        cut, said = self.network.impose(Impairment(BOTH, loss=1.0)), self.cluster.said(self.joiner)
        self.cluster.start_node(self.joiner)
        wait_until(lambda: "started with" in self.cluster.said_since(self.joiner, said), SECONDS, "its start")
        self.disks.slow(self.joiner, seconds, [Kind.STATE])
        self.network.lift(cut)

    def _begins_later(self) -> bool:
        self.publish(5)
        return min(segment_firsts(self.cluster.directory / self.primary / "log")) > 1

    def ready(self) -> set[str]:
        """Whom the coordination record lists."""
        return set(self.cluster.ready_in_the_record())

    def resyncing(self) -> bool:
        """Whether the joiner's disk says that its snapshot is not whole."""
        return read_meta(self.cluster.directory / self.joiner).resyncing

    def status(self, name: str) -> dict[str, Any]:
        """What a node says of itself."""
        return self.cluster.status()[self.cluster.index(name)]

    def has_the_snapshot_in_memory_only(self) -> bool:
        """Its queue is there, its disk knows nothing of it."""
        queue = self.status(self.joiner).get("queues", {}).get(QUEUE, {})
        return queue.get("messages") == len(self.confirmed) and self.resyncing()

    def reset_the_link(self) -> None:
        """Once, as a switch that is started anew does it."""
        assert self.network.reset(0, 1) > 0

    def drained_from(self, name: str) -> list[bytes]:
        """All that a node delivers, as primary."""
        with pika.BlockingConnection(parameters(self.cluster.url(name))) as connection:
            channel = connection.channel()
            found = []
            while (each := channel.basic_get(QUEUE, auto_ack=True))[0]:
                found.append(each[2])
        return found


@pytest.fixture
def joining(tmp_path: Path, settings: tuple[str, ...]) -> Iterator[Joining]:
    disks, network = Disks(tmp_path / "disks"), Proxied(2)
    with StressCluster(tmp_path / "cluster", 2, network, [*SETTINGS, *settings], disks=disks) as cluster:
        primary = cluster.primary()
        assert primary is not None
        made = Joining(cluster, disks, network, primary, next(name for name in cluster.names if name != primary))
        made.publish(30)
        yield made


@pytest.mark.parametrize("settings", [PATIENT])
def test_ready_before_the_snapshot_is_durable(joining: Joining) -> None:
    """Its attachment ends when it holds the snapshot in memory only; it attaches again, and may not count for whole."""
    joining.begin(1.0)
    wait_until(joining.has_the_snapshot_in_memory_only, SECONDS, "a snapshot in memory", every=0.0)
    joining.reset_the_link()

    def is_ready() -> bool:
        joining.publish(1)
        counts = joining.joiner in joining.ready()
        assert not (counts and joining.resyncing()), "it is in the ready set, and its disk says that it is resyncing"
        return counts

    wait_until(is_ready, SECONDS, "the joiner's being ready")
    joining.disks.heal(joining.joiner)
    joining.cluster.kill(joining.primary)
    joining.cluster.kill(joining.joiner)
    joining.cluster.start_node(joining.joiner)
    joining.cluster.wait_state(joining.joiner, "active")
    assert joining.drained_from(joining.joiner) == joining.confirmed


@pytest.mark.every
@pytest.mark.parametrize("settings", [PATIENT])
def test_killed_before_the_snapshot_is_durable(joining: Joining) -> None:
    """Both die; the joiner comes back first, alone, with a store that is marked. No client is served by it."""
    joining.begin(1.0)
    wait_until(joining.has_the_snapshot_in_memory_only, SECONDS, "a snapshot in memory", every=0.0)
    joining.reset_the_link()
    joining.publish(3)
    joining.cluster.kill(joining.primary)
    joining.cluster.kill(joining.joiner)
    assert joining.resyncing()
    joining.disks.heal(joining.joiner)
    said = joining.cluster.said(joining.joiner)
    joining.cluster.start_node(joining.joiner)
    wait_until(lambda: "state joining" in joining.cluster.said_since(joining.joiner, said), SECONDS, "its start")
    joining.cluster.start_node(joining.primary)
    wait_until(joining.cluster.all_ready, SECONDS, "both ready")
    assert joining.cluster.primary() == joining.primary, "the node that has the messages"
    joining.cluster.kill(joining.primary)
    joining.cluster.wait_state(joining.joiner, "active")
    assert joining.drained_from(joining.joiner) == joining.confirmed


@pytest.mark.every
@pytest.mark.parametrize("settings", [("timing.prepare_timeout=1.0",)])
def test_slow_checkpoints_never_ready(joining: Joining) -> None:
    """Each checkpoint takes longer than the primary waits for what it is owed; the joiner is ready in the end."""
    joining.begin(0.8)
    joining.publish(5)
    joining.cluster.wait_state(joining.joiner, "ready", SECONDS)
    assert not joining.resyncing()
    joining.publish(5)
    assert joining.ready() == {joining.primary, joining.joiner}
    joining.cluster.kill(joining.primary)
    joining.cluster.wait_state(joining.joiner, "active")
    assert joining.drained_from(joining.joiner) == joining.confirmed
