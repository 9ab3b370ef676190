"""A store made from a live node's log joins the cluster like any other: it catches up, and nothing is copied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from broker_plugin.cli.layout import cluster_id
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.pipeline.archive.lake import Lake
from recovery.store.aside import PARTS
from recovery.store.identity import FILE, read_identity
from recovery.store.segment import segment_firsts, segment_path
from tests.broker_plugin.amqp.dtx_client import DtxChannel
from tests.processes.crashed import status_of, txha
from tests.processes.many_branches import port_of
from tests.recovery.pipeline.archive.test_rebuild import archive
from txobserver.dtx_wire import XidFields

BRANCH = XidFields(1, b"in doubt", b"b")


def work(cluster: LocalCluster, node: str) -> DtxChannel:
    """Messages that come and go, and a branch in doubt that takes one of them."""
    channel = DtxChannel(port_of(cluster, node))
    for queue in ("in", "out"):
        channel.declare(queue)
    for part in range(20):
        channel.publish("in", *(b"%d" % number for number in range(10 * part, 10 * part + 10)))
        channel.take("in")
    channel.start(BRANCH)
    channel.take("in")
    channel.publish("out", b"result")
    channel.end(BRANCH)
    channel.prepare(BRANCH)
    return channel


def without_its_beginning(source: Path, to: Path) -> Path:
    """A copy of a log, which has been reclaimed up to somewhere; as a node's directory, with its identity."""
    shutil.copytree(source / "log", to / "log")
    shutil.copy(source / FILE, to)
    firsts = segment_firsts(to / "log")
    for first in firsts[:-1]:
        segment_path(to / "log", first).unlink()
    return to


def rebuilt(*words: str | Path) -> tuple[dict[str, Any], str]:
    """What ``txha rebuild --json`` says, and what it says meanwhile."""
    answer = txha("rebuild", *words, "--json")
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout), answer.stderr


def test_a_store_made_from_events_catches_up_and_commits_what_was_in_doubt(tmp_path: Path) -> None:
    settings = ("store.checkpoint_seconds=0.3", "store.segment_bytes=4096")
    with LocalCluster(tmp_path / "cluster", 3, *(f"--set={each}" for each in settings)) as cluster:
        primary = cluster.primary()
        assert primary is not None
        source = cluster.directory / primary
        channel = work(cluster, primary)
        lost = cluster.backups()[0]
        cluster.kill(lost)
        made, said = rebuilt("--log", source, "--into", tmp_path / "same")
        status = status_of(cluster, primary)
        assert (made["position"], made["queues"]) == (status["position"], status["queues"]), (
            "nothing has happened since"
        )
        assert "up to event" in said

        directory = cluster.directory / lost
        for part in PARTS:
            (directory / part).rename(tmp_path / part)
        log = without_its_beginning(source, tmp_path / "reclaimed")
        refused = txha("rebuild", "--log", log, "--into", directory)
        assert refused.returncode == 2 and "are in neither the archive nor the log" in refused.stderr
        last = segment_firsts(log / "log")[0] + 2
        identity = read_identity(source)
        assert identity is not None
        archive(Lake(tmp_path / "lake"), source, 1, last, cluster_id(cluster.directory) or "", identity.cluster_id)
        made, _ = rebuilt("--archive", tmp_path / "lake", "--log", log, "--into", directory)
        assert (made["node"], made["position"]) == (lost, status["position"])
        assert made["applied"].endswith(f".{last}"), "of the rest nothing says that it has passed the commit point"
        channel.publish("in", b"later")
        joins(cluster, primary, lost, int(made["position"].partition(".")[2]), settings)
        assert channel.commit(BRANCH) == 0
        wait_until(
            lambda: len({json.dumps(node["queues"], sort_keys=True) for node in cluster.status()}) == 1, 10, "agreement"
        )
        cluster.promote(lost)
        cluster.wait_state(lost, "active")
        here = DtxChannel(port_of(cluster, lost))
        assert here.drain("out") == [b"result"] and here.count("in") == 180


def joins(cluster: LocalCluster, primary: str, node: str, at: int, settings: tuple[str, ...]) -> None:
    """A node follows from where its log ends, and nothing is copied."""
    cluster.start_node(node, settings=settings)
    cluster.wait_state(node, "ready")
    said = (cluster.directory / primary / "node.log").read_text()
    joined = said[said.rindex(f"{node} is out of the ready set") :]
    assert f"backup {node} attached at {at}, " in joined and "resynchronises" not in joined


def test_what_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "node" / "log").mkdir(parents=True)
    for words, sentence in (
        ((), "there is nothing to make a store from"),
        (("--log", tmp_path / "none"), "there is no directory"),
        (("--log", tmp_path), "is not the directory of a node"),
        (("--log", tmp_path / "node"), "no store says which cluster it belongs to"),
    ):
        answer = txha("rebuild", "--into", tmp_path / "new", *words)
        assert answer.returncode == 2 and sentence in answer.stderr, answer.stderr
        assert len(answer.stderr.splitlines()) == 1 and not (tmp_path / "new").exists()
