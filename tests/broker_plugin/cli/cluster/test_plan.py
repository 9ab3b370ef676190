"""What a local cluster will be is checked in full before anything is written."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_plugin.cli.cluster import plan
from broker_plugin.cli.cluster.plan import plan_cluster
from broker_plugin.cli.layout import ClusterError, NodeEntry, free_ports, read_cluster, write_cluster
from broker_plugin.node.config import SECRET_FILE, ConfigError, load_config, parse_settings
from broker_plugin.node.link_secrets import link_secrets
from recovery.store.identity import Identity, create_identity, lock_directory
from txobserver.ports.store import StoreError


@pytest.fixture
def port() -> int:
    return free_ports(1, set())[0]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("speed=1", "unknown key 'speed'"),
        ("timing.lease_ttl=soon", "timing.lease_ttl: Input should be a valid number"),
        ("log_format=xml", "log_format: Input should be 'text' or 'json'"),
        ("timing.lease_ttl=inf", "timing.lease_ttl: Input should be a finite number"),
        ("min_ready=2", "min_ready is 2 in a cluster of 1"),
        ("name.x=1", "name has no keys of its own"),
        ("peers.0.port=1", "peers has no keys of its own"),
        ("oops", "--set wants key=value"),
        ("name=me", "name cannot be set for a local cluster"),
        ("amqp.port=5672", "amqp.port cannot be set for a local cluster"),
        ("coordination=/tmp/elsewhere", "coordination cannot be set for a local cluster"),
        ("peer.secret=@/tmp/elsewhere", "peer.secret cannot be set for a local cluster"),
        ("http.port=15672", "http.port cannot be set for a local cluster: give --http-port"),
        ("peer.read_secret=plain", "peer.read_secret names a file, as @FILE"),
    ],
)
def test_a_bad_setting_writes_nothing(tmp_path: Path, port: int, setting: str, sentence: str) -> None:
    with pytest.raises((ConfigError, ClusterError)) as found:
        plan_cluster(tmp_path / "c", 1, port, [setting])
    assert sentence in str(found.value) and "\n" not in str(found.value)
    assert not (tmp_path / "c").exists()


def test_set_does_not_reach_a_node_started_alone(tmp_path: Path, port: int) -> None:
    """A node that is started with its file alone has what ``txha cluster --set`` gave."""
    settings = ["min_ready=1", "timing.lease_ttl=2", "log_level=debug", 'amqp.users.a "b"=c\\d', "amqp.heartbeat = 7"]
    plan = plan_cluster(tmp_path / "c", 3, port, settings)
    plan.write()
    flags = parse_settings(settings)
    for entry in plan.entries:
        path = entry.directory / "node.toml"
        alone = load_config(path, environment={})
        assert alone == load_config(path, flags, environment={})
        assert (alone.name, alone.min_ready, alone.timing.lease_ttl, len(alone.peers)) == (entry.name, 1, 2.0, 2)
        assert (alone.log_level, alone.amqp.passwords()['a "b"'], alone.amqp.heartbeat) == ("debug", "c\\d", 7)


def test_passwords_of_a_cluster(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is named by its whole path, since a node may be started anywhere; a password in clear is its owner's."""
    (tmp_path / "file").write_text("s3cr3t")
    (tmp_path / "file").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    plan_cluster(tmp_path / "c", 1, port, ["amqp.users.a=@file", "amqp.users.b=plain", "amqp.users.c=@@d"]).write()
    path = tmp_path / "c/node-1/node.toml"
    assert f'a = "@{tmp_path}/file"' in path.read_text() and "s3cr3t" not in path.read_text()
    assert load_config(path, environment={}).amqp.passwords() == {"a": "s3cr3t", "b": "plain", "c": "@d"}
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_cluster_of_a_version_without_secrets_gets_one(tmp_path: Path, port: int) -> None:
    """And keeps it: each later start of the same directory goes by that file, which only its owner can read."""
    plan = plan_cluster(tmp_path / "c", 3, port, [])
    plan.write()
    path = tmp_path / "c" / SECRET_FILE
    first = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600 and len(first.strip()) == 43
    plan.write()
    assert path.read_text() == first
    path.unlink()
    plan.write()
    assert path.read_text() != first
    for entry in plan.entries:
        text = (entry.directory / "node.toml").read_text()
        assert f'secret = "@{path}"' in text and path.read_text().strip() not in text
        assert link_secrets(load_config(entry.directory / "node.toml", environment={})).own in path.read_bytes()


def test_the_environment_is_checked_too(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXHA_AMQP__PORT", "5672")
    with pytest.raises(ClusterError, match=r"amqp\.port cannot be set"):
        plan_cluster(tmp_path / "c", 1, port, [])


def a_file(path: Path) -> None:
    path.write_text("data")


def below_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.write_text("data")


def something_else(path: Path) -> None:
    path.mkdir()
    (path / "precious").write_text("data")


def damaged(path: Path) -> None:
    path.mkdir()
    (path / "cluster.json").write_text('{"nodes": 3}')


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (a_file, "cannot be used: Not a directory"),
        (below_a_file, "cannot"),
        (something_else, "is not empty and holds no cluster"),
        (damaged, "is damaged: it is not what `txha cluster` writes"),
    ],
)
def test_a_directory_that_will_not_do(tmp_path: Path, port: int, make: Callable[[Path], None], sentence: str) -> None:
    place = tmp_path / "parent" / "c"
    place.parent.mkdir()
    make(place)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ClusterError) as found:
        plan_cluster(place, 1, port, [])
    assert sentence in str(found.value) and "\n" not in str(found.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("count", "base"), [(1, 0), (2, 65535), (1, 70000)])
def test_ports_out_of_range(tmp_path: Path, count: int, base: int) -> None:
    with pytest.raises(ClusterError, match="out of range"):
        plan_cluster(tmp_path / "c", count, base, [])
    assert not (tmp_path / "c").exists()


def test_what_is_written_can_be_read(tmp_path: Path, port: int) -> None:
    """Also where the directory's name has characters that TOML treats specially."""
    directory = tmp_path / 'quo"te\\d é'
    plan = plan_cluster(directory, 1, port, [])
    assert not plan.resumed and list(directory.iterdir()) == [directory / "lock"]
    plan.write()
    assert read_cluster(directory) == plan.entries
    assert load_config(directory / "node-1/node.toml", environment={}).dir == directory / "node-1"


def test_a_store_of_another_cluster_is_refused(tmp_path: Path, port: int) -> None:
    plan_cluster(tmp_path / "c", 1, port, []).write()
    create_identity(tmp_path / "c/node-1", Identity(1, "theirs", "node-1", "0a"))
    _unlock(tmp_path / "c")
    with pytest.raises(StoreError, match="belongs to node node-1 of cluster theirs"):
        plan_cluster(tmp_path / "c", 1, port, [])


def test_another_number_of_nodes_is_refused(tmp_path: Path, port: int) -> None:
    plan_cluster(tmp_path / "c", 1, port, []).write()
    _unlock(tmp_path / "c")
    with pytest.raises(ClusterError, match="holds a cluster of 1 nodes; give --nodes 1"):
        plan_cluster(tmp_path / "c", 3, port, [])


def test_a_running_cluster_is_left_alone(tmp_path: Path, port: int) -> None:
    plan_cluster(tmp_path / "c", 1, port, []).write()
    with pytest.raises(StoreError, match="in use by another process"):
        plan_cluster(tmp_path / "c", 1, port, [])


def _unlock(directory: Path) -> None:
    """As if the process that made the cluster had ended: its lock goes with it."""
    (directory / "lock").unlink()


def test_a_node_that_runs_by_itself_is_named(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor said that its port was in use, and with another one it wrote all files anew."""
    directory = tmp_path / "c"
    directory.mkdir()
    write_cluster(directory, "c", [NodeEntry(f"node-{n}", None, port + n - 1, directory / f"node-{n}") for n in (1, 2)])
    for name in ("node-1", "node-2"):
        (directory / name).mkdir()
    os.close(lock_directory(directory / "node-1"))
    runs = lock_directory(directory / "node-2")
    # each of several commands has the directory for itself
    monkeypatch.setattr(
        plan, "lock_directory", lambda of, create=True: 0 if of == directory else lock_directory(of, create)
    )
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", port + 1))
        listening.listen()
        for base in (port, free_ports(1, {port})[0]):
            with pytest.raises(ClusterError, match=r"^node-2 of .* runs by itself"):
                plan_cluster(directory, 2, base, [])
    os.close(runs)
    monkeypatch.undo()
    assert plan_cluster(directory, 2, port, []).identifier == "c"


def test_each_node_has_a_door_of_its_own(tmp_path: Path, port: int) -> None:
    plan_cluster(tmp_path / "c", 3, port, [], http_port=(door := free_neighbours(port))).write()
    configs = [load_config(tmp_path / "c" / f"node-{number}" / "node.toml", environment={}) for number in (1, 2, 3)]
    assert [config.http and config.http.addresses for config in configs] == [
        [("127.0.0.1", door + number)] for number in range(3)
    ]
    plan_cluster(tmp_path / "d", 3, port, []).write()
    assert load_config(tmp_path / "d" / "node-1" / "node.toml", environment={}).http is None


def free_neighbours(port: int) -> int:
    """The first of three free ports, apart from those of clients."""
    return next(first for first in range(20000, 32000, 3) if all(map(plan.port_is_free, range(first, first + 3))))


@pytest.mark.parametrize(
    ("http_port", "settings", "sentence"),
    [
        (0, [], "choose another --http-port"),
        (65535, [], "ports 65535 to 65536 are out of range; choose another --http-port"),
        (-1, [], "choose another --http-port"),
        (None, ["http.metrics_port=9"], "http.port cannot be set for a local cluster"),
        (
            None,
            ["amqp.tls_port=9", "tls.certificate=a", "tls.key=b", "tls.authority=c"],
            "amqp.tls_port cannot be set for a local cluster of several nodes",
        ),
    ],
)
def test_doors_that_cannot_be(
    tmp_path: Path, port: int, http_port: int | None, settings: list[str], sentence: str
) -> None:
    with pytest.raises(ClusterError) as found:
        plan_cluster(tmp_path / "c", 2, port, settings, http_port=http_port)
    assert sentence in str(found.value) and not (tmp_path / "c").exists()


def test_clients_and_operators_have_ports_of_their_own(tmp_path: Path, port: int) -> None:
    with pytest.raises(ClusterError, match=f"port {port} is for clients and for operators"):
        plan_cluster(tmp_path / "c", 1, port, [], http_port=port)
    door = free_neighbours(port)
    with pytest.raises(ClusterError, match="read /metrics at each node's door"):
        plan_cluster(tmp_path / "c", 2, port, ["http.metrics_port=9"], http_port=door)
