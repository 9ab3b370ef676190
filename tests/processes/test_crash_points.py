"""A node that kills itself at each named point between two durable steps, in each of its roles, under load.

One cluster and one load for all points; the last test drains it and judges the clients' record of the whole time. Each
death is looked at: that it was the node's own, at that point, and in that role. The suite takes each role and each kind
of point once (``IN_THE_SUITE``), and ``make every-case`` all of them.
"""

from __future__ import annotations

import re
import shutil
import signal
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.failover import Clients
from python_tests.harness.load import Load
from python_tests.harness.pika_clients import parameters
from python_tests.harness.waiting import wait_until
from recovery.store.crash_points import CRASH_POINTS
from recovery.store.segment import segment_firsts
from tests.support.cases import some_of

pytestmark = pytest.mark.slice

SETTINGS = (
    *("store.segment_bytes=40000", "store.checkpoint_seconds=0.3", "store.retention_seconds=1"),
    "timing.prepare_timeout=20",  # a backup that is stopped for a while stays in the ready set
)
LOAD = Load(pika_workers=6, aio_connections=2, aio_channels=4, think=0.02)
AT_START = ["log.written-again"]
AS_JOINER = [p for p in CRASH_POINTS if p.startswith("log.") and p not in AT_START]
AS_BACKUP = [
    p for p in CRASH_POINTS if p.split(".")[0] in ("log", "segment", "checkpoint", "reclaim") and p not in AT_START
]
AS_PRIMARY = [*AS_BACKUP, "cas.before", "cas.committed"]
WITH_A_NEW_STORE = {"store.identity-synced": None, "store.identity-written": None, "reset.segments-removed": "catchup"}
"""Point -> the state in which it is passed; None before the node has any"""
AS_FORMER_PRIMARY = ["truncate.segments-removed", "truncate.cut", "truncate.group-ended"]
OF_COMMANDS = ("init", "discard", "recover", "settle", "rebuild", "archive")
IN_THE_SUITE = {
    "joiner": ("log.written",),
    "backup": ("segment.header-synced", "reclaim.segment-removed"),
    "primary": ("checkpoint.before-commit", "cas.committed"),
    "with a new store": ("store.identity-synced", "reset.segments-removed"),
    "former primary": ("truncate.cut",),
}
FLOOD = "flood"


def by_role(role: str, points: Iterable[str]) -> list[Any]:
    """A case for each point."""
    return some_of(points, IN_THE_SUITE[role])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = [word for setting in SETTINGS for word in ("--set", setting)]
    with LocalCluster(tmp_path_factory.mktemp("crash") / "cluster", 3, *options) as running:
        yield running


@pytest.fixture(scope="module")
def clients(cluster: LocalCluster) -> Clients:
    running = Clients(cluster.urls, LOAD)
    running.start()
    running.wait_committed(20)
    return running


class Doomed:
    """A node that is started again with a crash point. If it shall not die at once, it does when ``arm`` is called."""

    def __init__(self, cluster: LocalCluster, name: str, point: str, directory: Path, at_once: bool) -> None:
        self._cluster, self._name, self._point = cluster, name, point
        self._armed, self._log = directory / "armed", directory / "node.log"
        where = point if at_once else f"{point}@{self._armed}"
        cluster.start_node(name, {"TXHA_CRASH_POINT": where}, SETTINGS, self._log)

    def arm(self) -> None:
        """From now on the next passing is its last."""
        self._armed.touch()

    def dies(self, *states: str | None) -> None:
        """It kills itself at that point and no other way, in one of these states; None before it has any."""
        assert self.died_in() in states

    def died_in(self) -> str | None:
        """The state in which it has killed itself at that point, and no other way; None before it had any."""
        cluster, name = self._cluster, self._name
        wait_until(lambda: not cluster.processes.runs(name), 30, f"the death of {name}")
        text = self._log.read_text()
        assert cluster.processes.exit_status(name) == -signal.SIGKILL, text
        assert text.splitlines()[-1] == f"crash point {self._point}"
        passed = re.findall(r" state (\w+)$", text, re.MULTILINE)
        return passed[-1] if passed else None

    def returns(self, clients: Clients) -> None:
        """Started without a crash point, it becomes ready, and the load goes on."""
        self._cluster.start_node(self._name, None, SETTINGS)
        wait_until(self._cluster.all_ready, 30, "all nodes ready again")
        clients.wait_committed(20)


def kill_a_backup(cluster: LocalCluster) -> str:
    """SIGKILL of a ready backup; returns when it has left the ready set."""
    wait_until(cluster.all_ready, 30, "all nodes ready")
    name = cluster.backups()[0]
    cluster.kill(name)
    wait_until(lambda: name not in ready_set(cluster), 10, f"{name} out of the ready set")
    return name


def ready_set(cluster: LocalCluster) -> list[str]:
    """As the primary knows it."""
    return next((list(node["ready_set"]) for node in cluster.status() if node["state"] == "active"), [])


@pytest.mark.parametrize("point", AT_START)
def test_a_node_dies_while_it_starts(cluster: LocalCluster, clients: Clients, tmp_path: Path, point: str) -> None:
    node = Doomed(cluster, kill_a_backup(cluster), point, tmp_path, at_once=True)
    node.dies(None)
    node.returns(clients)


@pytest.mark.parametrize("point", by_role("joiner", AS_JOINER))
def test_a_joiner_dies(cluster: LocalCluster, clients: Clients, tmp_path: Path, point: str) -> None:
    """What one that was away for long is sent may be a copy, and its first group of the log comes when it is ready."""
    for attempt in range(10):
        (directory := tmp_path / str(attempt)).mkdir()
        node = Doomed(cluster, kill_a_backup(cluster), point, directory, at_once=True)
        state = node.died_in()
        node.returns(clients)
        if state == "catchup":
            return
        assert state == "ready"
    raise AssertionError("no joiner wrote to its log before it was ready")


@pytest.mark.parametrize("point", by_role("backup", AS_BACKUP))
def test_a_backup_dies(cluster: LocalCluster, clients: Clients, tmp_path: Path, point: str) -> None:
    name = kill_a_backup(cluster)
    node = Doomed(cluster, name, point, tmp_path, at_once=False)
    cluster.wait_state(name, "ready")
    node.arm()
    node.dies("ready")
    node.returns(clients)


@pytest.mark.parametrize("point", by_role("primary", AS_PRIMARY))
def test_a_primary_dies(cluster: LocalCluster, clients: Clients, tmp_path: Path, point: str) -> None:
    name = kill_a_backup(cluster)
    node = Doomed(cluster, name, point, tmp_path, at_once=False)
    cluster.wait_state(name, "ready")
    cluster.promote(name)
    cluster.wait_state(name, "active")
    node.arm()
    node.dies("active")
    node.returns(clients)


@pytest.mark.parametrize("point", by_role("with a new store", WITH_A_NEW_STORE))
def test_a_node_with_a_new_store_dies(cluster: LocalCluster, clients: Clients, tmp_path: Path, point: str) -> None:
    name = kill_a_backup(cluster)
    for part in ("log", "state"):
        shutil.rmtree(cluster.directory / name / part)
    (cluster.directory / name / "identity.json").unlink()
    node = Doomed(cluster, name, point, tmp_path, at_once=True)
    node.dies(WITH_A_NEW_STORE[point])
    node.returns(clients)


@pytest.mark.parametrize("point", by_role("former primary", AS_FORMER_PRIMARY))
def test_a_former_primary_dies(cluster: LocalCluster, clients: Clients, tmp_path: Path, point: str) -> None:
    """Its log has segments that no other node has; it dies in the middle of cutting them off."""
    wait_until(cluster.all_ready, 30, "all nodes ready")
    former, backups = cluster.primary(), cluster.backups()
    assert former is not None
    common, own = diverge(cluster, former, backups)
    for backup in backups:  # with logs that are kept, or the former primary would find its place gone, and copy
        cluster.start_node(backup, None, [*SETTINGS, "store.retention_seconds=600"])
    wait_until(lambda: cluster.primary() in backups, 20, "another primary")
    assert newest_segment(cluster, former) == own
    node = Doomed(cluster, former, point, tmp_path, at_once=True)
    node.dies("joining", "catchup")  # the log is cut while it is being attached
    assert newest_segment(cluster, former) <= common
    node.returns(clients)


def diverge(cluster: LocalCluster, primary: str, backups: list[str]) -> tuple[int, int]:
    """Let the primary log alone what no other node ever reads, then kill all nodes.

    Returns the first sequence of the newest segment that others can have a part of, and of the newest of all.
    """
    with ExitStack() as stack:
        connection = pika.BlockingConnection(parameters(cluster.url(primary)))
        channel = connection.channel()
        channel.queue_declare(FLOOD, durable=True)
        for backup in backups:
            stack.enter_context(cluster.frozen(backup))
        common = newest_segment(cluster, primary)

        def three_segments_more() -> bool:
            channel.basic_publish("", FLOOD, b"x" * 10_000)
            connection.process_data_events(0)
            return sum(first > common for first in segments(cluster, primary)) >= 3

        wait_until(three_segments_more, 15, "three segments more")
        for name in (*backups, primary):
            cluster.kill(name)
    return common, newest_segment(cluster, primary)


def segments(cluster: LocalCluster, name: str) -> list[int]:
    """The first sequence of each segment of a node's log."""
    return segment_firsts(cluster.directory / name / "log")


def newest_segment(cluster: LocalCluster, name: str) -> int:
    """The first sequence of a log's newest segment."""
    return segments(cluster, name)[-1]


def test_every_promise_was_kept(cluster: LocalCluster, clients: Clients) -> None:
    verdict = clients.drain()
    assert not verdict.broken and verdict.committed > 100
    wait_until(lambda: len({str(node["queues"]) for node in cluster.status()}) == 1, 10, "agreement of the nodes")
    assert cluster.status()[0]["queues"][FLOOD]["messages"] == 0, "what was cut off is nowhere"


def test_every_point_is_covered() -> None:
    """But for those that no node passes: see tests/recovery, tests/broker_plugin/cli, tests/recovery/pipeline."""
    of_nodes = {point for point in CRASH_POINTS if point.split(".")[0] not in OF_COMMANDS}
    assert {*AT_START, *AS_BACKUP, *AS_PRIMARY, *WITH_A_NEW_STORE, *AS_FORMER_PRIMARY} == of_nodes
    in_the_suite = {point for points in (AT_START, *IN_THE_SUITE.values()) for point in points}
    assert {kind_of(point) for point in in_the_suite} == {kind_of(point) for point in of_nodes}


def kind_of(point: str) -> str:
    """Of which steps it is one."""
    return point.split(".")[0]
