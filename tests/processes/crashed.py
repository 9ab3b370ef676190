"""A cluster that has crashed, as directories that a test may copy, damage, plan for and start again."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pika

from broker_plugin.cli.layout import cluster_id
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.pika_clients import parameters
from python_tests.harness.waiting import wait_until
from recovery.coordinator.decision_log import DecisionLog
from recovery.coordinator.names import GlobalName, branch_xid
from recovery.coordinator.resources import Participant
from tests.broker_plugin.amqp.dtx_client import DtxChannel
from tests.processes.many_branches import port_of
from tests.support.commands import OF_A_PROCESS, txha_here
from txobserver.dtx_wire import XidFields
from txobserver.xid import Xid

NODES = ("node-1", "node-2", "node-3")
COMMITTED, ABORTED, UNDECIDED, FOREIGN, TOLD = "committed", "aborted", "undecided", "foreign", "told"
"""What the decision log says of a branch; of another's coordinator; and of one that this has committed in the end"""
OPTIONS = ("--set", "store.checkpoint_seconds=1", "--set", "timing.lease_ttl=2", "--set", "min_ready=1")
"""The last: one node has to acknowledge alone."""


@dataclass
class Crash:
    """Directory and decision log of a cluster, all of whose nodes were killed; its prepared branches by what they are.

    ``first``: who was primary when all three were ready. ``alone``: the last primary, the only member of the ready set.
    """

    directory: Path
    log: Path
    branches: dict[str, Xid]
    first: str
    alone: str = ""
    refused: tuple[subprocess.CompletedProcess[str], ...] = ()
    """What ``txha recover`` answered while the nodes ran, with locks that are seen and that are not; and while only
    their supervisor ran"""

    def copy(self, to: Path) -> Crash:
        """One that a test may change."""
        shutil.copytree(self.directory, to)
        log = Path(shutil.copy(self.log, to.with_name(to.name + ".decisions")))
        return Crash(to, log, self.branches, self.first, self.alone)


def prepared(channel: DtxChannel, which: Xid, queue: str) -> None:
    """A branch that puts one message into a queue."""
    channel.prepared(XidFields(*which), queue, str(which).encode())


def fill(cluster: LocalCluster, log: Path) -> dict[str, Xid]:
    """Fifty messages in ``kept``, and five branches in doubt, each of which puts one into ``out``."""
    primary = cluster.primary()
    assert primary is not None
    decisions = DecisionLog(log)
    began = int(time.time()) - 3600  # long enough ago for a recovery run to settle them
    names = {kind: str(GlobalName(decisions.whose, began, kind)) for kind in (COMMITTED, ABORTED, UNDECIDED)}
    branches = {kind: branch_xid(name, "broker") for kind, name in names.items()}
    branches[FOREIGN] = Xid(1, b"somebody's", b"broker")
    branches[TOLD] = Xid(1, b"somebody's, too", b"broker")
    channel = DtxChannel(port_of(cluster, primary))
    for queue in ("kept", "out"):
        channel.declare(queue)
    channel.publish("kept", *(b"kept %d" % number for number in range(50)))
    for which in branches.values():
        prepared(channel, which, "out")
    decisions.decide(names[COMMITTED], True, [Participant(f"amqp:{cluster_id(cluster.directory)}", "broker")])
    decisions.decide(names[ABORTED], False)
    decisions.close()
    channel.client.close()
    return branches


def work_alone(cluster: LocalCluster, primary: str, told: Xid) -> None:
    """What only the last member of the ready set ever has: the decision on a branch, two messages, a transaction.

    All of them are acknowledged.
    """
    assert DtxChannel(port_of(cluster, primary)).commit(XidFields(*told)) == 0
    connection = pika.BlockingConnection(parameters(cluster.url(primary)))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("late", durable=True)
    for body in (b"late 1", b"late 2"):
        channel.basic_publish("", "late", body)
    transactional = connection.channel()
    transactional.tx_select()
    for body in (b"late 3", b"late 4"):
        transactional.basic_publish("", "late", body)
    method, _, _ = transactional.basic_get("kept")
    assert method is not None
    transactional.basic_ack(method.delivery_tag)
    transactional.tx_commit()


def kill_all(cluster: LocalCluster, *names: str) -> None:
    """SIGKILL, one right after the other."""
    for pid in [cluster.pid(name) for name in names]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(cluster.processes.runs(name) for name in names), 10, "the end of the nodes")


def crash(directory: Path) -> tuple[Crash, Crash]:
    """A cluster killed while all three nodes were ready; and killed again, when one of them had worked alone."""
    log = directory / "decisions.log"
    with LocalCluster(directory / "cluster", 3, *OPTIONS) as cluster:
        branches = fill(cluster, log)
        first = cluster.primary()
        assert first is not None
        refused = [txha("recover", "--apply", cluster.directory)]
        with without_locks(cluster.directory):
            refused.append(txha("recover", "--apply", cluster.directory))
        kill_all(cluster, *NODES)
        refused.append(txha("recover", cluster.directory))
        together = Crash(cluster.directory, log, branches, first).copy(directory / "together")
        together.refused = tuple(refused)
        for name in NODES:
            cluster.start_node(name, settings=OPTIONS[1::2])
        wait_until(cluster.all_ready, 30, "all nodes ready again")
        alone = cluster.primary()
        assert alone is not None
        kill_all(cluster, *(name for name in NODES if name != alone))
        wait_until(lambda: status_of(cluster, alone)["ready_set"] == [alone], 10, "one member alone")
        work_alone(cluster, alone, branches[TOLD])
        kill_all(cluster, alone)
    return together, Crash(cluster.directory, log, branches, first, alone)


@contextmanager
def without_locks(directory: Path) -> Iterator[None]:
    """Meanwhile the locks of nodes that run there are not seen, as on another host."""
    locks = list(directory.rglob("lock"))
    for lock in locks:
        lock.rename(lock.with_name("lock.elsewhere"))
    yield
    for lock in locks:
        lock.with_name("lock.elsewhere").rename(lock)


def status_of(cluster: LocalCluster, name: str) -> dict[str, Any]:
    """What one node says of itself."""
    return next(node for node in cluster.status() if node["name"] == name)


def resumed(directory: Path) -> LocalCluster:
    """The same cluster, to be started again: a context manager."""
    return LocalCluster(directory, 3, *OPTIONS)


def txha(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command, as a user runs it; in a process of its own if there is an environment for it."""
    if not environment and words[0] not in OF_A_PROCESS:
        return txha_here(*map(str, words))
    return subprocess.run(
        [sys.executable, "-m", "broker_plugin.cli.main", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


def plan(*words: str | Path, status: int) -> dict[str, Any]:
    """What ``txha recover --json`` says, which ends with this status."""
    answer = txha("recover", *words, "--json")
    assert answer.returncode == status, answer.stderr + answer.stdout
    return dict(json.loads(answer.stdout))


def settling(found: dict[str, Any]) -> list[str]:
    """The last command of a plan, as it stands: options and arguments of ``txha recover``."""
    words = shlex.split(found["next"][-1]["command"])
    assert words[:3] == ["txha", "recover", "--settle"]
    return words[2:]
