"""A store made from a live node's log joins the cluster like any other: it catches up, and nothing is copied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from python_tests.processes import LocalCluster
from python_tests.waiting import wait_until
from recovery.dtx.methods import XidFields
from tests.amqp.dtx_client import DtxChannel
from tests.processes.crashed import status_of, txha
from tests.processes.many_branches import port_of

BRANCH = XidFields(1, b"in doubt", b"b")


def work(cluster: LocalCluster, node: str) -> DtxChannel:
    """Messages that come and go, and a branch in doubt that takes one of them."""
    channel = DtxChannel(port_of(cluster, node))
    for queue in ("in", "out"):
        channel.declare(queue)
    channel.publish("in", *(b"%d" % number for number in range(200)))
    for _ in range(20):
        channel.take("in")
    channel.start(BRANCH)
    channel.take("in")
    channel.publish("out", b"result")
    channel.end(BRANCH)
    channel.prepare(BRANCH)
    return channel


def test_a_store_made_from_a_live_log_catches_up_and_commits_what_was_in_doubt(tmp_path: Path) -> None:
    with LocalCluster(tmp_path / "cluster", 3, "--set", "store.checkpoint_seconds=0.3") as cluster:
        primary = cluster.primary()
        assert primary is not None
        channel = work(cluster, primary)
        lost = cluster.backups()[0]
        cluster.kill(lost)
        directory = cluster.directory / lost
        for part in ("log", "state"):
            shutil.rmtree(directory / part)
        (directory / "identity.json").unlink()
        answer = txha("rebuild", "--log", cluster.directory / primary, "--into", directory, "--json")
        assert answer.returncode == 0, answer.stderr
        made = json.loads(answer.stdout)
        status = status_of(cluster, primary)
        assert (made["node"], made["position"]) == (lost, status["position"]), "nothing has happened since"
        assert made["queues"] == status["queues"] and "up to event" in answer.stderr
        channel.publish("in", b"later")
        cluster.start_node(lost)
        cluster.wait_state(lost, "ready")
        said = (cluster.directory / primary / "node.log").read_text()
        joined = said[said.rindex(f"{lost} is out of the ready set") :]
        assert f"backup {lost} attached at {made['position'].partition('.')[2]}" in joined
        assert "resynchronises" not in joined
        assert channel.commit(BRANCH) == 0
        wait_until(
            lambda: len({json.dumps(node["queues"], sort_keys=True) for node in cluster.status()}) == 1, 10, "agreement"
        )
        cluster.promote(lost)
        cluster.wait_state(lost, "active")
        here = DtxChannel(port_of(cluster, lost))
        assert here.drain("out") == [b"result"] and here.count("in") == 180


def test_what_cannot_be_made_is_said_in_a_sentence(tmp_path: Path) -> None:
    for words, sentence in (
        ((), "there is nothing to make a store from"),
        (("--log", tmp_path / "none"), "there is no directory"),
        (("--log", tmp_path), "no store says which cluster it belongs to"),
    ):
        answer = txha("rebuild", "--into", tmp_path / "new", *words)
        assert answer.returncode == 2 and sentence in answer.stderr, answer.stderr
        assert len(answer.stderr.splitlines()) == 1 and not (tmp_path / "new").exists()
