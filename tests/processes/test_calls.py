"""Cluster calls on three real nodes: at a backup, past a node that is down, through SIGKILL in the middle of one."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.layout import free_ports
from python_tests.harness.cluster import LocalCluster, keeps_users
from python_tests.harness.waiting import wait_until
from recovery.reader.node_admin import AdminError, ask

HOOK = """#!/bin/sh
DIR={}
echo "$HOOK_UNDO:$*" >> $DIR/ran.$HOOK_NODE
echo "$*" > $DIR/state.$HOOK_NODE
if [ -e $DIR/kills.$HOOK_NODE ]; then rm $DIR/kills.$HOOK_NODE; kill -9 $PPID; fi
if [ -e $DIR/waits.$HOOK_NODE ]; then touch $DIR/waiting; while [ -e $DIR/waits.$HOOK_NODE ]; do sleep 0.05; done; fi
"""
NODES = ["node-1", "node-2", "node-3"]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Hook ``h`` sets its arguments as the state of its node; ``kills.NODE`` has it kill the node behind that."""
    hook = tmp_path / "hook"
    hook.write_text(HOOK.format(tmp_path))
    hook.chmod(0o755)
    with LocalCluster(tmp_path / "cluster", 3, "--set", f"hooks.h={hook}", "--set", "timing.call_retry=0.2") as running:
        wait_until(running.all_ready, 20, "all nodes ready")
        wait_until(lambda: keeps_users(running), 20, "the cluster's users")
        yield running


def asked(cluster: LocalCluster, node: str, command: str, **arguments: Any) -> Any:
    return ask(cluster.directory / node, f"calls.{command}", arguments, 30.0)


def make(cluster: LocalCluster, node: str, *given: str, need: int | str = "all", seconds: float = 10.0) -> Any:
    named = {"name": ["h"], "arg": list(given)}
    return asked(cluster, node, "call", operation="hook", arguments=named, succeed_num=need, timeout=seconds)


def states(tmp_path: Path) -> list[str]:
    """What is in force at each node."""
    paths = [tmp_path / f"state.{node}" for node in NODES]
    return [path.read_text().strip() if path.exists() else "" for path in paths]


def has_settled(cluster: LocalCluster, node: str) -> bool:
    """Whether this node has run all calls, and nothing that it has begun is left."""
    try:
        found = asked(cluster, node, "status")
    except AdminError:
        return False
    return found["own"]["begun"] is None and found["own"]["behind"] == 0


def restarted(cluster: LocalCluster, node: str) -> None:
    cluster.start_node(node, settings=[f"hooks.h={cluster.directory.parent / 'hook'}", "timing.call_retry=0.2"])
    wait_until(cluster.all_ready, 30, "all nodes ready")
    wait_until(lambda: has_settled(cluster, node), 20, f"the calls of {node}")


def test_a_call_at_a_backup_and_one_that_a_node_has_missed(cluster: LocalCluster, tmp_path: Path) -> None:
    backup, missing = cluster.backups()
    assert make(cluster, backup, "1")["result"] == "done" and states(tmp_path) == ["1"] * 3
    cluster.kill(missing)
    assert make(cluster, backup, "2", need=2)["result"] == "done"
    restarted(cluster, missing)
    assert states(tmp_path) == ["2"] * 3
    rows = [asked(cluster, node, "list") for node in NODES]
    assert rows[0] == rows[1] == rows[2] and [each["result"] for each in rows[0]] == ["done", "done"]


def test_initiator_dies_between_action_and_record(cluster: LocalCluster, tmp_path: Path) -> None:
    """Its action has been done, and its call is recorded nowhere: what was in force is in force again."""
    backup = cluster.backups()[0]
    assert make(cluster, backup, "1")["result"] == "done"
    (tmp_path / f"kills.{backup}").touch()
    with pytest.raises(AdminError):
        make(cluster, backup, "2")
    assert sorted(states(tmp_path)) == ["1", "1", "2"]
    restarted(cluster, backup)
    assert states(tmp_path) == ["1"] * 3
    assert (tmp_path / f"ran.{backup}").read_text().split() == ["0:1", "0:2", "1:1"]
    assert [len(asked(cluster, node, "list")) for node in NODES] == [1] * 3
    assert make(cluster, backup, "3")["result"] == "done" and states(tmp_path) == ["3"] * 3


@pytest.mark.slice
def test_the_primary_dies_while_a_call_is_run(cluster: LocalCluster, tmp_path: Path) -> None:
    """Its ticket is gone with it: the call is undone, or made anew; never half."""
    primary, (backup, _) = cluster.primary(), cluster.backups()
    assert primary is not None
    assert make(cluster, backup, "1")["result"] == "done"
    (tmp_path / f"waits.{backup}").touch()
    assert make(cluster, backup, "2", seconds=0.5)["result"] == "unknown"
    wait_until((tmp_path / "waiting").exists, 10, "the hook")
    cluster.kill(primary)
    wait_until(lambda: cluster.primary() not in (None, primary), 20, "another primary")
    (tmp_path / f"waits.{backup}").unlink()
    wait_until(lambda: has_settled(cluster, backup), 20, "what becomes of the call")
    restarted(cluster, primary)
    kept = asked(cluster, backup, "list")
    assert states(tmp_path) == [str(len(kept))] * 3, "it is in force everywhere if it is recorded, else nowhere"


@pytest.mark.slice
def test_the_command_shows_a_node_that_fails_and_helps_it_on(cluster: LocalCluster, tmp_path: Path) -> None:
    primary, failing = cluster.primary(), cluster.backups()[0]
    assert primary is not None
    (tmp_path / f"state.{failing}").mkdir()  # what the hook cannot write over
    hook = tmp_path / "hook"
    hook.write_text(HOOK.format(tmp_path) + 'grep -qx "$*" $DIR/state.$HOOK_NODE\n')
    command = (sys.executable, "-m", "broker_plugin.cli.main", "calls")

    def txha(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *words, "--dir", str(cluster.directory)], capture_output=True, text=True, timeout=60
        )

    found = txha("call", "hook", "name=h", "arg=1", "--timeout", "2")
    assert found.returncode == 3 and failing in found.stderr and "exit status 2" in found.stderr
    assert txha("call", "hook", "name=h", "arg=2", "--succeed-num", "2").returncode == 0
    shown = txha("status", "--node", failing, "--json")
    rows = {each["node"]: each for each in json.loads(shown.stdout)["nodes"]}
    assert shown.returncode == 1 and rows[failing]["failing"] == 2 and "exit status 2" in rows[failing]["reason"]
    found = txha("fix", failing)
    assert found.returncode == 1 and "skips 2" in found.stdout and "call 3 fails" in found.stderr
    assert txha("skip", failing, "3").returncode == 0
    wait_until(lambda: has_settled(cluster, failing), 20, "the skip")
    assert txha("status").returncode == 0


@pytest.mark.slice
def test_a_damaged_file_is_told_at_the_start(cluster: LocalCluster, tmp_path: Path) -> None:
    backup = cluster.backups()[0]
    assert make(cluster, backup, "1")["result"] == "done"
    cluster.kill(backup)
    path = cluster.directory / backup / "calls.json"
    path.write_bytes(path.read_bytes()[:-9])
    ended = subprocess.run(cluster.node_command(backup), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    (said,) = [line for line in ended.stderr.splitlines() if line.startswith("txha: ")]
    assert f"{path} is damaged" in said and "move it away" in said
    path.unlink()
    restarted(cluster, backup)
    assert states(tmp_path) == ["1"] * 3


@pytest.mark.slice
def test_the_metrics_tell_of_a_listener_that_cannot_be_opened_again(tmp_path: Path) -> None:
    """Another program has its port since the node has ended: no call fails, and clients find no listener."""
    (port,) = free_ports(1, set())
    settings = ("listeners.x.host=127.0.0.1", f"listeners.x.port={port}", "timing.call_retry=0.2")
    given = [word for each in settings for word in ("--set", each)]
    with LocalCluster(tmp_path / "cluster", 1, *given) as running:
        wait_until(running.all_ready, 20, "the node")
        opened = {"name": ["x"], "open": ["true"]}
        assert asked(running, "node-1", "call", operation="listener", arguments=opened)["result"] == "done"

        def fails() -> int:
            return int(ask(running.directory / "node-1", "metrics.node", {}, 30.0)["values"]["call_fails"])

        assert fails() == 0
        running.kill("node-1")
        with socket.create_server(("127.0.0.1", port)):
            running.start_node("node-1", settings=list(settings))
            running.wait_state("node-1", "active")
            wait_until(lambda: fails() == 1, 20, "the metric")
        wait_until(lambda: fails() == 0, 20, "that it is open again")
