"""The command line as a new user meets it: exit status, one sentence, nothing written."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from broker_plugin.cli.cluster.cluster import REFUSED
from broker_plugin.cli.layout import NodeEntry, write_cluster
from python_tests.harness.cluster import LocalCluster, free_base_port
from recovery.secret_file import make_link_secret
from recovery.store.identity import lock_directory
from tests.support.commands import OF_A_PROCESS, txha_here

TXHA = (sys.executable, "-m", "broker_plugin.cli.main")


def txha(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*TXHA, *arguments], capture_output=True, text=True, check=False, timeout=60)


def refused(*arguments: str) -> str:
    """The one sentence on stderr of a command that ends with status 2."""
    answer = txha(*arguments) if arguments[0] in OF_A_PROCESS else txha_here(*arguments)
    assert answer.returncode == 2, answer.stderr
    lines = answer.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("txha: "), answer.stderr
    return lines[0]


def node_file(tmp_path: Path, port: int, extra: str = "", cluster: str = "c") -> Path:
    path = tmp_path / "node.toml"
    path.write_text(
        f'name = "n"\ncluster = "{cluster}"\ndir = "{tmp_path}/n"\ncoordination = "{tmp_path}/c.sqlite"\n'
        f"{extra}[amqp]\nport = {port}\n[peer]\nport = {free_base_port(1)}\n"
    )
    return path


def test_help_says_what_there_is() -> None:
    answer = txha("--help")
    assert answer.returncode == 0
    for command in ("init", "node", "cluster", "status", "promote", "tx", "demo", "takeover"):
        assert command in answer.stdout


def test_a_command_answers_the_same_in_the_process_of_a_test(tmp_path: Path) -> None:
    write_cluster(tmp_path, "c", [NodeEntry("node-1", None, 1, tmp_path / "node-1")])
    for words in (("status", "--dir", str(tmp_path)), ("tx", "list", "--dir", str(tmp_path)), ("dtx", "recover")):
        here, there = txha_here(*words), txha(*words)
        assert here.stdout + here.stderr
        assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)


def test_a_misspelt_core_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for chosen in ("Pure", "fast"):
        monkeypatch.setenv("TXHA_CORE", chosen)
        assert refused("--version") == f"txha: TXHA_CORE is pure or compiled, not {chosen!r}"
    monkeypatch.setenv("TXHA_CORE", "pure")
    assert ", core pure, " in txha("--version").stdout


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        path = node_file(tmp_path, taken.getsockname()[1])
        make_link_secret(tmp_path / "cluster.secret")
        said = refused("node", "--config", str(path))
        assert said.endswith(f"on 127.0.0.1:{taken.getsockname()[1]}: the address is in use; choose another port")
    assert not (tmp_path / "n").exists() and not (tmp_path / "c.sqlite").exists()


def test_an_unknown_key_and_a_bad_flag(tmp_path: Path) -> None:
    path = node_file(tmp_path, free_base_port(1), "speed = 9\n")
    assert "unknown key 'speed'" in refused("node", "--config", str(path))
    good = node_file(tmp_path, free_base_port(1))
    assert "key=value" in refused("node", "--config", str(good), "--set", "oops")
    assert "unknown key 'amqp.prot'" in refused("node", "--config", str(good), "--set", "amqp.prot=1")
    assert not (tmp_path / "n").exists()


def test_a_directory_of_another_cluster(tmp_path: Path) -> None:
    path = node_file(tmp_path, free_base_port(1))
    assert txha("init", "--config", str(path)).returncode == 0
    process = subprocess.Popen([*TXHA, "node", "--config", str(path)], stderr=subprocess.DEVNULL)
    wait_for(tmp_path / "n" / "admin.json")
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert not (tmp_path / "n" / "admin.json").exists()
    other = node_file(tmp_path, free_base_port(1), cluster="other")
    assert "belongs to node n of cluster c" in refused("node", "--config", str(other))


def test_a_node_whose_store_is_in_use_may_be_started_again(tmp_path: Path) -> None:
    """A supervisor leaves a node alone that ends with 2: a person must mend something."""
    path = node_file(tmp_path, free_base_port(1))
    assert txha("init", "--config", str(path)).returncode == 0
    lock = lock_directory(tmp_path / "n")
    answer = txha("node", "--config", str(path))
    os.close(lock)
    assert answer.returncode == 1 and answer.returncode != REFUSED
    assert answer.stderr.strip().splitlines()[-1] == f"txha: {tmp_path / 'n'} is in use by another process"


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 10
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not appear"
        time.sleep(0.02)


@pytest.mark.parametrize("command", [("tx", "list"), ("dtx", "list"), ("dtx", "commit", "1:a:b")])
def test_no_node_answers(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Exit status 1, as docs/operations.md has it: there is nothing to mend in the command."""
    write_cluster(tmp_path, "c", [NodeEntry("node-1", None, 1, tmp_path / "node-1")])
    answer = txha(*command[:2], "--dir", str(tmp_path), *command[2:])
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"txha: no node of {tmp_path} answers; start the cluster with `txha cluster")
    assert "holds no cluster" in refused(*command[:2], "--dir", str(tmp_path / "other"), *command[2:])


def test_a_cluster_is_founded_with_init_and_once(tmp_path: Path) -> None:
    """``empty_node_founds_anew``: a node that finds no record says what to do, and writes nothing."""
    path = node_file(tmp_path, free_base_port(1))
    assert "found cluster c with `txha init`" in refused("node", "--config", str(path))
    assert [p.name for p in tmp_path.iterdir()] == ["node.toml"]
    answer = txha("init", "--config", str(path), "--json")
    said = json.loads(answer.stdout)
    assert answer.returncode == 0 and said["cluster"] == "c" and len(said["cluster_id"]) == 32
    identity = json.loads((tmp_path / "n" / "identity.json").read_text())
    assert identity["cluster_id"] == said["cluster_id"]
    secret = tmp_path / "cluster.secret"
    assert secret.stat().st_mode & 0o777 == 0o600 and secret.read_text().strip() not in answer.stdout + answer.stderr
    kept = secret.rename(tmp_path / "kept")
    assert "founded already" in refused("init", "--config", str(path))
    assert not secret.exists(), "nothing has been written"
    kept.rename(secret)
    assert json.loads((tmp_path / "n" / "identity.json").read_text()) == identity
    (tmp_path / "c.sqlite").unlink()
    assert "found cluster c with `txha init`" in refused("node", "--config", str(path))
    assert not (tmp_path / "c.sqlite").exists()
    assert txha("init", "--config", str(path)).returncode == 0
    assert json.loads((tmp_path / "n" / "identity.json").read_text())["cluster_id"] != said["cluster_id"]


def test_init_refuses_what_a_node_refuses(tmp_path: Path) -> None:
    path = node_file(tmp_path, free_base_port(1), "speed = 9\n")
    assert "unknown key 'speed'" in refused("init", "--config", str(path))
    good = node_file(tmp_path, free_base_port(1))
    nowhere = str(tmp_path / "nowhere" / "c.sqlite")
    assert "there is no directory" in refused("init", "--config", str(good), "--set", f"coordination={nowhere}")
    assert "names a file" in refused("init", "--config", str(good), "--set", f"peer.secret={'s' * 40}")
    assert [p.name for p in tmp_path.iterdir()] == ["node.toml"]


def test_no_cluster_here(tmp_path: Path) -> None:
    for command in (["status"], ["tx", "list"], ["promote", "node-1"]):
        assert "holds no cluster" in refused(*command, "--dir", str(tmp_path))


def test_a_cluster_directory_that_is_something_else(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    assert "is not empty" in refused("cluster", "--dir", str(tmp_path), "--base-port", str(free_base_port(3)))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["precious"]


def test_a_bad_setting_for_a_cluster(tmp_path: Path) -> None:
    where = ("--dir", str(tmp_path / "c"), "--base-port", str(free_base_port(3)))
    assert "unknown key 'speed'" in refused("cluster", *where, "--set", "speed=1")
    assert not (tmp_path / "c").exists()


def test_a_coordination_file_that_cannot_be_written(tmp_path: Path) -> None:
    path = node_file(tmp_path, free_base_port(1))
    nowhere = str(tmp_path / "nowhere" / "c.sqlite")
    assert "there is no directory" in refused("node", "--config", str(path), "--set", f"coordination={nowhere}")
    assert "is a directory" in refused("node", "--config", str(path), "--set", f"coordination={tmp_path}")
    assert "is not a directory" in refused("node", "--config", str(path), "--set", f"dir={path}")
    assert [p.name for p in tmp_path.iterdir()] == ["node.toml"]


def test_base_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} is in use" in refused("cluster", "--dir", str(tmp_path / "c"), "--base-port", str(port))
    assert not (tmp_path / "c").exists()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with LocalCluster(
        tmp_path_factory.mktemp("cli") / "cluster", 3, "--restart", "--set", "timing.lease_ttl=5"
    ) as running:
        yield running


def identity_of(cluster: LocalCluster, name: str) -> str:
    return str(json.loads((cluster.directory / name / "identity.json").read_text())["cluster_id"])


def test_cluster_json_and_status(cluster: LocalCluster) -> None:
    nodes = json.loads((cluster.directory / "cluster.json").read_text())["nodes"]
    assert [n["name"] for n in nodes] == ["node-1", "node-2", "node-3"]
    assert [n["amqp_port"] for n in nodes] == cluster.ports
    for each in nodes:
        os.kill(each["pid"], 0)
        assert Path(each["dir"]).is_dir()
    found = cluster.status()
    assert sorted(n["state"] for n in found) == ["active", "ready", "ready"]
    for key in ("name", "state", "generation", "ready", "open_transactions", "prepared_transactions"):
        assert all(key in n for n in found)
    assert {n["cluster_id"] for n in found} == {identity_of(cluster, name) for name in ("node-1", "node-2", "node-3")}
    assert [(n["min_ready"], n["shortage"], n["loss_accepted"]) for n in found] == [(2, None, 0)] * 3
    primary = next(n for n in found if n["state"] == "active")
    assert len(primary["backups"]) == 2 and all("lag_events" in b for b in primary["backups"].values())
    assert "node-2" in txha("status", "--dir", str(cluster.directory)).stdout


def test_open_transactions_are_listed(cluster: LocalCluster) -> None:
    import pika

    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cluster.ports[0])) as connection:
        channel = connection.channel()
        channel.queue_declare("listed", durable=True)
        channel.tx_select()
        channel.basic_publish("", "listed", b"x")
        channel.queue_declare("listed", passive=True)
        deadline = time.monotonic() + 5
        rows = []
        while not rows and time.monotonic() < deadline:
            rows = json.loads(txha("tx", "list", "--dir", str(cluster.directory), "--json").stdout)
        assert [(row["state"], row["queues"]) for row in rows] == [("open", ["listed"])]
        channel.tx_rollback()
    assert txha("tx", "list", "--dir", str(cluster.directory)).returncode == 0


def test_restart_updates_cluster_json(cluster: LocalCluster) -> None:
    before = json.loads((cluster.directory / "cluster.json").read_text())["nodes"]
    backup = next(n["name"] for n in cluster.status() if n["state"] == "ready")
    old = next(n["pid"] for n in before if n["name"] == backup)
    cluster.kill(backup)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        after = json.loads((cluster.directory / "cluster.json").read_text())["nodes"]
        pid = next(n["pid"] for n in after if n["name"] == backup)
        if pid not in (None, old) and cluster.state(backup) == "ready":
            return
        time.sleep(0.1)
    raise AssertionError(f"{backup} was not started again")


def test_backups_refuse_clients_where_they_are_told_to(tmp_path: Path) -> None:
    import pika
    from pika.exceptions import AMQPConnectionError

    with LocalCluster(tmp_path / "cluster", 2, "--set", "backup_clients=refuse") as cluster:
        primary = cluster.primary()
        for index, port in enumerate(cluster.ports):
            parameters = pika.ConnectionParameters("127.0.0.1", port)
            if f"node-{index + 1}" == primary:
                pika.BlockingConnection(parameters).close()
            else:
                with pytest.raises(AMQPConnectionError):
                    pika.BlockingConnection(parameters)


def test_a_second_supervisor_leaves_a_running_cluster_alone(cluster: LocalCluster) -> None:
    before = (cluster.directory / "cluster.json").read_text()
    other = str(free_base_port(3))
    assert "in use" in refused("cluster", "--dir", str(cluster.directory), "--base-port", other)
    assert (cluster.directory / "cluster.json").read_text() == before
    assert "down" not in [node["state"] for node in cluster.status()]


def test_promote_of_an_unknown_node(cluster: LocalCluster) -> None:
    assert "has no node node-9" in refused("promote", "--dir", str(cluster.directory), "node-9")


def test_nothing_is_left_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    cluster = LocalCluster(tmp_path / "cluster", 1).start()
    pid = cluster.pid("node-1")
    assert cluster._supervisor is not None
    cluster._supervisor.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            break
        if Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] == "Z":
            break
        time.sleep(0.05)
    else:
        raise AssertionError("the node outlived its supervisor")
    cluster.stop()


def test_values_that_no_configuration_would_take_are_refused(tmp_path: Path) -> None:
    """``rebuild_nonsense_values``, and the same for the grace of ``txha recover``: nothing is written."""
    words = ("rebuild", "--log", str(tmp_path), "--into", str(tmp_path / "x"))
    assert "outcome_seconds: Input should be a finite number" in refused(*words, "--outcome-seconds", "nan")
    assert "outcome_seconds: Input should be greater than 0" in refused(*words, "--outcome-seconds", "0")
    assert "outcomes_kept: Input should be greater than or equal to 1" in refused(*words, "--outcomes-kept", "-1")
    assert "--grace is for --settle" in refused("recover", "--plan", str(tmp_path), "--grace", "-1")
    for value in ("-1", "nan", "inf"):
        assert "--grace must be a finite number" in refused("recover", str(tmp_path), "--settle", "--grace", value)
        assert "--grace must be a finite number" in refused("dtx", "recover", "--grace", value)
    assert "with --broker and --database" in refused("dtx", "recover")
    assert "nothing says what was decided" in refused("dtx", "recover", "--broker", "amqp://localhost/")
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_url_of_a_broker_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    for url in ("nonsense://localhost/", "amqp://me:secret@localhost:port/", ""):
        told = refused("dtx", "recover", "--log", str(log), "--broker", url)
        assert "--broker" in told and "secret" not in told
