"""The supervisor's own rules, over nodes that are not real: who is started again, what is written, and that all end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.cluster.cluster import NODE_COMMAND, Supervisor
from broker_plugin.cli.cluster.plan import plan_cluster
from python_tests.harness.cluster import free_base_port
from tests.broker_plugin.cli.supervision import Supervised, runs, until

pytestmark = pytest.mark.slice


def test_nodes_are_started_announced_and_ended(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c", "--set=timing.lease_ttl=7") as cluster:
        cluster.ready()
        nodes = cluster.nodes()
        assert [node["amqp_port"] for node in nodes.values()] == [cluster.base_port, cluster.base_port + 1]
        pids = cluster.pids()
        assert len(pids) == 2 and all(runs(pid) for pid in pids)
        assert (tmp_path / "c/node-1/lives").read_text() == "7.0\n"
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(20) == 0
        assert not any(runs(pid) for pid in pids) and cluster.pids() == []
        assert (tmp_path / "c/node-1/ended-cleanly").exists() and (tmp_path / "c/node-2/ended-cleanly").exists()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervised]:
    with Supervised(tmp_path_factory.mktemp("running") / "c") as cluster:
        cluster.ready()
        yield cluster


def test_only_changes_of_state_are_echoed_and_all_is_logged(running: Supervised) -> None:
    log = running.directory / "node-2/node.log"
    until(lambda: "nothing that people want" in log.read_text(), "the log lacks a line")
    running.said("[node-2] node=node-2 state ready")
    assert "nothing that people want" not in running.errors.read_text()


def test_nodes_write_their_logs_themselves(running: Supervised) -> None:
    """A supervisor that is stopped, or a terminal that is not read, must not hold up what nodes have to say."""
    for node in running.nodes().values():
        for descriptor in (1, 2):
            assert os.readlink(f"/proc/{node['pid']}/fd/{descriptor}") == f"{node['dir']}/node.log"


def test_ports_of_nodes_are_not_those_of_outgoing_connections(running: Supervised) -> None:
    low, high = (int(text) for text in Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for node in running.nodes().values():
        lines = (Path(node["dir"]) / "node.toml").read_text().splitlines()
        ports = {int(line.split("=")[1]) for line in lines if line.startswith("port")}
        assert len(ports) == 3 and not any(low <= port <= high for port in ports)


def test_a_killed_node_stays_dead_and_the_cluster_goes_on(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c") as cluster:
        cluster.ready()
        os.kill(cluster.nodes()["node-1"]["pid"], signal.SIGKILL)
        cluster.said("[node-1] ended by signal 9")
        until(lambda: cluster.nodes()["node-1"]["pid"] is None, "cluster.json still names the dead process")
        assert runs(cluster.nodes()["node-2"]["pid"]) and cluster.process.poll() is None
        assert cluster.lives("node-1") == 1


def test_with_restart_it_comes_back(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c", "--restart") as cluster:
        cluster.ready()
        old = cluster.nodes()["node-1"]["pid"]
        os.kill(old, signal.SIGKILL)
        until(lambda: cluster.nodes()["node-1"]["pid"] not in (None, old), "it was not started again")
        until(lambda: cluster.lives("node-1") == 2, "the new process does not run")


def test_one_that_keeps_failing_does_not_stop_the_others(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c", "--restart") as cluster:
        cluster.ready()
        (tmp_path / "c/node-2/fail").touch()
        os.kill(cluster.nodes()["node-2"]["pid"], signal.SIGKILL)
        until(lambda: cluster.lives("node-2") >= 3, "it was not tried again")
        (tmp_path / "c/node-2/fail").unlink()
        until(lambda: (tmp_path / "c/node-2/node.log").read_text().count("state ready") == 2, "it did not come back")
        assert cluster.lives("node-1") == 1


def test_one_that_refuses_to_run_is_left_alone(tmp_path: Path) -> None:
    """A damaged disk needs a person; the others have their data and go on."""
    with Supervised(tmp_path / "c", "--restart") as cluster:
        cluster.ready()
        (tmp_path / "c/node-2/refuse").touch()
        os.kill(cluster.nodes()["node-2"]["pid"], signal.SIGKILL)
        cluster.said("txha: node-2 refuses to run")
        cluster.said("[node-2] txha: told to refuse")
        assert runs(cluster.nodes()["node-1"]["pid"]) and cluster.lives("node-2") == 2


def test_a_resumed_cluster_goes_on_without_one_that_refuses(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c") as cluster:
        cluster.ready()
        cluster.process.send_signal(signal.SIGTERM)
        cluster.process.wait(20)
        (tmp_path / "c/node-1/refuse").touch()
        cluster.start()
        cluster.said("txha: node-1 refuses to run")
        until(lambda: cluster.lives("node-2") == 2, "the other one was not started")
        assert cluster.process.poll() is None


def test_a_cluster_of_refusals_ends_with_status_2(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c") as cluster:
        cluster.ready()
        cluster.process.send_signal(signal.SIGTERM)
        cluster.process.wait(20)
        for name in ("node-1", "node-2"):
            (tmp_path / "c" / name / "refuse").touch()
        cluster.start()
        assert cluster.process.wait(20) == 2


def test_the_same_directory_is_resumed(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c") as cluster:
        cluster.ready()
        before = cluster.nodes()
        identifier = (tmp_path / "c/cluster.json").read_text().split('"cluster": ')[1].split(",")[0]
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(20) == 0
        cluster.start()
        cluster.ready()
        after = cluster.nodes()
        assert {n: (e["dir"], e["amqp_port"]) for n, e in before.items()} == {
            n: (e["dir"], e["amqp_port"]) for n, e in after.items()
        }
        assert identifier in (tmp_path / "c/cluster.json").read_text()


def test_no_second_supervisor_in_the_same_directory(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c") as cluster:
        cluster.ready()
        before = {p: p.read_bytes() for p in (tmp_path / "c").rglob("*") if p.suffix in (".json", ".toml")}
        with Supervised(tmp_path / "c") as second:
            assert second.process.wait(20) != 0
        assert "is in use by another process" in second.errors.read_text()
        assert before == {p: p.read_bytes() for p in before}


def test_a_node_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c", "--impatient") as cluster:
        cluster.ready()
        cluster.process.send_signal(signal.SIGTERM)
        cluster.process.wait(20)
        (tmp_path / "c/node-1/stubborn").touch()
        cluster.start()
        cluster.ready()
        pids = cluster.pids()
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(20) == 0
        assert not any(runs(pid) for pid in pids)
        cluster.said("[node-1] does not end, killing it")


def test_a_stopped_node_does_not_keep_the_supervisor(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c") as cluster:
        cluster.ready()
        os.kill(cluster.nodes()["node-2"]["pid"], signal.SIGSTOP)
        cluster.process.send_signal(signal.SIGTERM)
        assert cluster.process.wait(20) == 0
        assert (tmp_path / "c/node-2/ended-cleanly").exists()


def test_nobody_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with Supervised(tmp_path / "c") as cluster:
        cluster.ready()
        pids = cluster.pids()
        cluster.process.kill()
        until(lambda: not any(runs(pid) for pid in pids), "a node outlived its supervisor")


def test_the_second_port_in_use(tmp_path: Path) -> None:
    cluster = Supervised(tmp_path / "c")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", cluster.base_port + 1))
        taken.listen()
        cluster.start()
        assert cluster.process.wait(20) != 0
    cluster.process.communicate()
    assert f"port {cluster.base_port + 1} is in use" in cluster.errors.read_text()
    assert not (tmp_path / "c").exists()


def test_a_node_that_no_process_can_be_made_for_ends_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The machine had no process or memory for one, at the first start or later: that ended all that ran."""
    made = plan_cluster(tmp_path / "c", 2, free_base_port(2), [])
    made.write()
    script = "import sys, time; time.sleep(0 if 'node-1/' in ' '.join(sys.argv) else 600)"
    supervisor = Supervisor(made, True, [], (sys.executable, "-c", script))
    real, calls = subprocess.Popen, 0
    started: list[subprocess.Popen[bytes]] = []
    lived: list[bool] = []

    def popen(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        nonlocal calls
        calls += 1
        if calls in (1, 4, 5):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        if calls == 7:
            lived.append(started[0].poll() is None)
            supervisor.stop(signal.SIGTERM, None)
        started.append(real(command, **options))
        return started[-1]

    monkeypatch.setattr("broker_plugin.cli.cluster.cluster.subprocess.Popen", popen)
    assert supervisor.run() == 0
    assert lived == [True] and "node-2" in str(started[0].args) and "node-1" in str(started[1].args)
    said = "txha: node-1 cannot be started: Resource temporarily unavailable; it is tried again"
    assert capfd.readouterr().err.count(said) == 3
    assert all(each.poll() is not None for each in started)


def test_a_node_finds_no_module_in_the_directory_of_the_start(tmp_path: Path) -> None:
    """As its coordination process (``a_module_in_the_directory_of_the_start``)."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('found')")
    found = subprocess.run([*NODE_COMMAND, "--help"], cwd=tmp_path, capture_output=True, check=False)
    assert found.returncode == 0 and b"--config" in found.stdout
