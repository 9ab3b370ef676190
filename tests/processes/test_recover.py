"""A real cluster that has crashed: what is planned, carried out, and then there; also by a run that is killed."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.layout import cluster_id
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.store.segment import segment_firsts, segment_path
from tests.broker_plugin.amqp.dtx_client import DtxChannel
from tests.processes.crashed import (
    ABORTED,
    COMMITTED,
    FOREIGN,
    NODES,
    TOLD,
    UNDECIDED,
    Crash,
    crash,
    plan,
    resumed,
    settling,
    status_of,
    txha,
)
from tests.processes.many_branches import port_of
from txobserver.dtx_wire import XidFields


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Crash, Crash]:
    """While all three were ready, and after one of them had worked alone."""
    return crash(tmp_path_factory.mktemp("crashed"))


@pytest.fixture
def together(crashed: tuple[Crash, Crash], tmp_path: Path) -> Crash:
    return crashed[0].copy(tmp_path / "cluster")


@pytest.fixture
def alone(crashed: tuple[Crash, Crash], tmp_path: Path) -> Crash:
    return crashed[1].copy(tmp_path / "cluster")


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def damage(crashed: Crash, node: str, frame: int) -> None:
    """A bit of the frame so far from the end of the newest segment of its log."""
    log = crashed.directory / node / "log"
    path = segment_path(log, segment_firsts(log)[-1])
    data = bytearray(path.read_bytes())
    at = len(data)
    for _ in range(frame):
        at = data.rindex(b"TXHA", 0, at)
    data[at + 60] ^= 1
    path.write_bytes(data)


def branches(found: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {row["xid"]: (row["outcome"], row["by"]) for row in found["branches"]}


def queues(cluster: LocalCluster, node: str) -> Any:
    return status_of(cluster, node)["queues"]


def test_a_plan_changes_nothing_and_says_what_will_be_there(together: Crash) -> None:
    before = contents(together.directory)
    found = plan("--plan", together.directory, "--decisions", together.log, status=1)
    assert contents(together.directory) == before
    assert found["promote"] in NODES and found["by_itself"] and found["nothing_acknowledged_is_lost"]
    assert found["actions"] == [] and found["lost"] == [] and found["discarded"] == []
    assert {store["condition"] for store in found["stores"]} == {"whole"}
    assert found["queues"]["kept"]["messages"] == 50
    known = {kind: str(xid) for kind, xid in together.branches.items()}
    assert branches(found) == {
        known[COMMITTED]: ("commit", "dtx recover"),
        known[ABORTED]: ("roll back", "dtx recover"),
        known[UNDECIDED]: ("roll back", "dtx recover"),
        known[FOREIGN]: ("operator", "nobody"),
        known[TOLD]: ("operator", "nobody"),
    }
    directories = [together.directory / node for node in NODES]
    given = (*directories, "--decisions", together.log, "--coordination", record_of(together))
    there = together.directory.parent / "there"
    there.touch(0o600)
    there.write_text("amqp://me:secret@there/\n")
    same = plan(*given, "--broker", f"@{there}", status=1)
    assert {**same, "next": None} == {**found, "next": None}, "the nodes' directories are as good as the cluster's"
    assert settling(found) == ["--settle", str(together.directory), "--decisions", str(together.log)]
    assert settling(same)[-2:] == ["--broker", "amqp://me@there/"], "passwords are not shown"
    assert {*map(str, given)} < {*settling(same)}


def record_of(crashed: Crash) -> Path:
    return crashed.directory / "coordination.sqlite"


@pytest.mark.every
def test_one_is_damaged_and_one_is_gone(together: Crash) -> None:
    """The third has everything. After --apply all three come up, and the branches are settled as was planned."""
    chosen, damaged, gone = NODES
    damage(together, damaged, 3)
    shutil.rmtree(together.directory / gone)
    found = plan("--apply", together.directory, "--decisions", together.log, status=1)
    assert found["promote"] == chosen and found["nothing_acknowledged_is_lost"] and found["lost"] == []
    assert [damaged in action for action in found["actions"]] == [True, True]
    assert f"{damaged} out of the ready set" in found["actions"][0] and "aside" in found["actions"][1]
    aside = together.directory / damaged / "set-aside-1"
    assert sorted(path.name for path in aside.iterdir()) == ["identity.json", "log", "state"]
    state = contents(together.directory)
    again = plan("--apply", together.directory, "--decisions", together.log, status=1)
    assert again["actions"] == [] and contents(together.directory) == state, "twice is once"
    with resumed(together.directory) as cluster:
        wait_until(cluster.all_ready, 30, "all nodes ready")
        assert all(queues(cluster, node) == found["queues"] for node in NODES)
        aborted = together.branches[ABORTED]
        assert txha("dtx", "commit", "--dir", together.directory, str(aborted)).returncode == 0
        check_settled(together, found, ("--broker", ",".join(cluster.urls)))
        channel = DtxChannel(port_of(cluster, cluster.primary() or ""))
        assert channel.drain("out") == [str(together.branches[kind]).encode() for kind in (ABORTED, COMMITTED)]
        assert channel.recover() == [XidFields(*together.branches[kind]) for kind in (FOREIGN, TOLD, ABORTED)]
        assert len(channel.drain("kept")) == 50


def check_settled(crashed: Crash, found: dict[str, Any], urls: tuple[str, str]) -> None:
    """As was planned; the report names other decisions, and what is for people is left. Twice is once."""
    known = {str(xid): kind for kind, xid in crashed.branches.items()}
    for broker in ((), urls):
        settled = plan(*settling(found), *broker, status=1)
        assert not settled["settled"] and settled["plan"] == str(crashed.directory / "recovery-1.json")
        assert {known[row["xid"]]: (row["state"], row["settled"]) for row in settled["branches"]} == {
            COMMITTED: ("committed", True),
            ABORTED: ("heuristically committed", False),
            UNDECIDED: ("rolled back", True),
            FOREIGN: ("prepared", False),
            TOLD: ("prepared", False),
        }
        assert [known[row["xid"]] for row in settled["branches"] if row["contrary"]] == [ABORTED]


def test_what_only_a_damaged_node_holds_is_told_and_needs_consent(alone: Crash) -> None:
    damage(alone, alone.alone, 1)
    found = plan("--plan", alone.directory, "--decisions", alone.log, status=1)
    assert found["promote"] != alone.alone and not found["nothing_acknowledged_is_lost"]
    assert ("configuration", "late") in {(loss["kind"], loss["name"]) for loss in found["lost"]}
    assert sum(loss["kind"] == "message" for loss in found["lost"]) == 2
    assert {loss["nodes"][0] for loss in found["lost"]} == {alone.alone}
    assert [gap["node"] for gap in found["unnamed"]] == [alone.alone]
    assert branches(found)[str(alone.branches[UNDECIDED])] == ("operator", "nobody")
    assert branches(found)[str(alone.branches[TOLD])] == ("commit", "by hand")
    before = contents(alone.directory)
    refused = txha("recover", "--apply", alone.directory)
    assert refused.returncode == 1 and f"--accept-missing {alone.alone}" in refused.stderr
    assert contents(alone.directory) == before


@pytest.mark.every
def test_killed_in_the_middle_and_run_again(alone: Crash) -> None:
    """The plan that was begun is finished, with what was said at first. No log is changed."""
    damage(alone, alone.alone, 1)
    logs = contents(alone.directory / alone.alone / "log")
    words = (alone.directory, "--decisions", alone.log)
    planned = plan("--plan", *words, status=1)
    consent = ("--accept-missing", alone.alone)
    killed = txha("recover", "--apply", *words, *consent, TXHA_CRASH_POINT="recover.part-set-aside:2")
    assert killed.returncode == -signal.SIGKILL
    unfinished = plan("--plan", alone.directory, status=1)
    assert unfinished["unfinished"] and unfinished["lost"] == planned["lost"]
    done = plan("--apply", alone.directory, status=1)
    assert done["applied"] and done["lost"] == planned["lost"]
    assert contents(alone.directory / alone.alone / "set-aside-1" / "log") == logs
    assert [path.name for path in alone.directory.glob("*recovery*")] == ["recovery-1.json"]
    check_lost(alone, planned)


def check_lost(alone: Crash, planned: dict[str, Any]) -> None:
    """What was said to be lost is, what was said to be there is, and a coordinator's silence is still no abort."""
    again = plan("--plan", alone.directory, "--decisions", alone.log, status=1)
    assert again["actions"] == [] and branches(again) == branches(planned)
    with resumed(alone.directory) as cluster:
        wait_until(cluster.all_ready, 30, "all nodes ready")
        assert cluster.primary() == planned["promote"]
        for node in NODES:
            assert queues(cluster, node) == planned["queues"]
        assert "late" not in planned["queues"] and planned["queues"]["kept"]["messages"] == 50
        check_settled_by_somebody_who_is_killed(alone, planned)
        channel = DtxChannel(port_of(cluster, planned["promote"]))
        assert channel.drain("out") == [str(alone.branches[kind]).encode() for kind in (TOLD, COMMITTED)]
        assert channel.recover() == [XidFields(*alone.branches[kind]) for kind in (UNDECIDED, FOREIGN)]


def check_settled_by_somebody_who_is_killed(alone: Crash, planned: dict[str, Any]) -> None:
    """What only the lost node held of a branch is done again, by hand; what its decision was lost of is left."""
    words = settling(planned)
    for point in ("settle.noted", "settle.branch-settled", "settle.recovered", "settle.noted:3"):
        killed = txha("recover", *words, TXHA_CRASH_POINT=point)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    settled = plan(*words, status=1)
    known = {str(xid): kind for kind, xid in alone.branches.items()}
    assert {known[row["xid"]]: (row["state"], row["by"]) for row in settled["branches"]} == {
        TOLD: ("committed", "by hand"),
        COMMITTED: ("committed", "dtx recover"),
        ABORTED: ("rolled back", "dtx recover"),
        UNDECIDED: ("prepared", "nobody"),
        FOREIGN: ("prepared", "nobody"),
    }
    assert [path.name for path in alone.directory.glob("recovery-*.json")] == ["recovery-1.json"]


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_without_a_record_the_greatest_position_wins(alone: Crash, how: str) -> None:
    """Every store is there, so nothing is lost; and no node but the chosen one can be promoted from then on."""
    record = record_of(alone)
    if how == "gone":
        record.unlink()
    else:
        record.write_bytes(record.read_bytes()[:5000].ljust(8192, b"x"))
    found = plan("--apply", alone.directory, "--decisions", alone.log, status=1)
    assert found["promote"] == alone.alone and found["nothing_acknowledged_is_lost"] and found["record"] is None
    assert len(found["actions"]) == (1 if how == "gone" else 2)
    body = json.loads(sqlite3.connect(record).execute("SELECT body FROM record").fetchone()[0])
    assert body["ready"] == [body["primary"]] and body["primary"][0] == alone.alone
    assert found["queues"]["late"]["messages"] == 4


def test_nothing_is_done_while_a_node_or_its_supervisor_runs(crashed: tuple[Crash, Crash]) -> None:
    said = ("node-1 is running", "a primary renews its lease", "the cluster is running")
    for answer, sentence in zip(crashed[0].refused, said, strict=True):
        assert (answer.returncode, answer.stdout) == (2, "")
        assert sentence in answer.stderr and len(answer.stderr.splitlines()) == 1


def test_no_node_starts_while_a_plan_is_made_and_carried_out(together: Crash, tmp_path: Path) -> None:
    """Neither where a store is nor where one is gone. A primary that renews the lease elsewhere meanwhile is
    noticed."""
    configs = [moved(together.directory / node / "node.toml", tmp_path / f"{node}.toml") for node in NODES[::2]]
    shutil.rmtree(together.directory / NODES[2])
    before = contents(together.directory)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        database = f"host=127.0.0.1 port={silent.getsockname()[1]} dbname=bank connect_timeout=300"
        words = ("recover", "--apply", together.directory, "--database", database)
        command = [sys.executable, "-m", "broker_plugin.cli.main", *map(str, words)]
        with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as recovering:
            asked, _ = silent.accept()
            for config in configs:
                answer = txha("node", "--config", config)
                assert answer.returncode == 1 and "in use by another process" in answer.stderr, answer.stderr
            answer = txha("cluster", "--dir", together.directory)
            assert answer.returncode == 2 and "in use by another process" in answer.stderr
            elsewhere = SqliteCoordination(record_of(together), cluster_id(together.directory) or "")
            found = elsewhere.read()
            assert found is not None
            renewed = elsewhere.compare_and_set(found.version, found)
            asked.close()
            said, error = recovering.communicate(timeout=60)
    assert (recovering.returncode, said) == (2, "") and "a primary renews its lease" in error
    assert elsewhere.read() == renewed
    elsewhere.close()
    after = contents(together.directory)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    assert changed == {"coordination.sqlite", f"{NODES[2]}/lock"}


def moved(config: Path, to: Path) -> Path:
    """A node's configuration, for the directory that it is in now."""
    text = config.read_text()
    to.write_text(text.replace(tomllib.loads(text)["dir"], str(config.parent)))
    return to


@pytest.mark.every
def test_the_example_runs(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "docs" / "examples" / "recover_a_cluster.py"
    done = subprocess.run([sys.executable, script, tmp_path], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for sentence in ("Promote node-2.", "Every branch has ended as", "is there, once"):
        assert sentence in done.stdout


def test_what_cannot_be_settled_is_said_in_a_sentence(together: Crash) -> None:
    directory, log = together.directory, ("--decisions", together.log)
    said = {
        "it comes behind --apply": txha("recover", "--settle", "--apply", directory),
        "holds no plan that was applied": txha("recover", "--settle", directory),
    }
    killed = txha("recover", "--apply", directory, *log, TXHA_CRASH_POINT="recover.plan-written")
    assert killed.returncode == -signal.SIGKILL
    said["finish it with --apply"] = txha("recover", "--settle", directory)
    plan("--apply", directory, status=1)
    said["name it with --decisions"] = txha("recover", "--settle", directory)
    for sentence, answer in said.items():
        assert (answer.returncode, answer.stdout) == (2, ""), answer.stderr
        assert sentence in answer.stderr and len(answer.stderr.splitlines()) == 1


def test_what_is_no_cluster(tmp_path: Path) -> None:
    for words, sentence in (
        ((tmp_path / "none",), "there is no directory"),
        ((tmp_path,), "holds neither a cluster nor a node"),
        ((tmp_path, "--decisions", tmp_path / "none"), "holds neither"),
    ):
        answer = txha("recover", *words)
        assert answer.returncode == 2 and sentence in answer.stderr
