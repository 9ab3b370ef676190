"""The HTTP door of a real cluster: a user added at a backup is on all nodes, health follows a kill, no secret stays."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64encode
from pathlib import Path
from typing import Any

import pika
from prometheus_client.parser import text_string_to_metric_families

from python_tests.harness.cluster import LocalCluster, free_base_port
from python_tests.harness.waiting import wait_until
from tests.processes.test_users import taken_over, users

SECRET, GIVEN, WRONG = "correct-horse-battery", "staple-of-eve-7431", "wrong-guess-of-a-stranger"


class Door:
    """The doors of a cluster whose first node has this port."""

    def __init__(self, base: int) -> None:
        self.base = base

    def ask(
        self, node: int, path: str, user: str = "", password: str = "", method: str = "GET", body: Any = None
    ) -> tuple[int, Any]:
        """Status and answer; (0, None) where there is none."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.base + node}{path}", data, method=method)
        if user:
            request.add_header("authorization", "Basic " + b64encode(f"{user}:{password}".encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return answer.status, _read(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _read(error.read())
        except OSError:
            return 0, None


def _read(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.decode()


def work(cluster: LocalCluster, node: int) -> None:
    """Five transactions of a message each."""
    with pika.BlockingConnection(pika.URLParameters(cluster.urls[node])) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        for _ in range(5):
            channel.basic_publish("", "q", b"m")
            channel.tx_commit()
        channel.close()


def metrics(door: Door, node: int, user: str, password: str) -> dict[str, float]:
    """Those with one sample."""
    status, text = door.ask(node, "/metrics", user, password)
    assert status == 200, text
    families = text_string_to_metric_families(text)
    return {each.samples[0].name: each.samples[0].value for each in families if len(each.samples) == 1}


def doors_of(directory: Path) -> dict[str, int]:
    """The processes of the doors, by their nodes' processes."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                if b"broker_plugin.http.main" in (path / "cmdline").read_bytes():
                    found[(path / "stat").read_text().rsplit(")", 1)[1].split()[1]] = int(path.name)
            except OSError:
                continue
    return found


NAMES = [f"node-{number}" for number in (1, 2, 3)]
EVE = {"password": GIVEN, "tags": "monitoring"}


def a_user_given_at_a_backup_is_on_all_nodes(door: Door, backup: int, primary: str) -> None:
    assert door.ask(backup, "/api/users/eve", "boss", WRONG, "PUT", EVE)[0] == 401
    assert door.ask(backup, "/api/users/eve", "boss", SECRET, "PUT", EVE)[0] == 201
    whoami = 200, {"name": "eve", "tags": ["monitoring"]}
    for node in range(3):
        wait_until(lambda node=node: door.ask(node, "/health/ready")[0] == 200, 30, "ready nodes")
        wait_until(lambda node=node: door.ask(node, "/api/whoami", "eve", GIVEN) == whoami, 30, "the user")
        assert door.ask(node, "/api/users", "eve", GIVEN)[1]["reason"] == "Not administrator user"
    status, ready = door.ask(backup, "/api/txha/ready-set", "eve", GIVEN)
    assert status == 200 and ready["primary"] == primary and sorted(ready["ready_set"]) == NAMES


def a_door_that_dies_harms_no_node_and_comes_again(directory: Path, door: Door, node: int, pid: str) -> None:
    killed = doors_of(directory)[pid]
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: doors_of(directory).get(pid) not in (None, killed), 30, "another door")
    wait_until(lambda: door.ask(node, "/health/live")[0] == 200, 30, "the other door")


def a_request_whose_user_is_deleted_meanwhile_changes_nothing(door: Door, node: int) -> None:
    """The rest of its body comes when the deletion has been answered, at the same node."""
    guest = {"password": GIVEN, "tags": "administrator"}
    assert door.ask(node, "/api/users/gone", "boss", SECRET, "PUT", guest)[0] == 201
    body = json.dumps(EVE).encode()
    login = b64encode(f"gone:{GIVEN}".encode()).decode()
    head = f"PUT /api/users/more HTTP/1.1\r\nhost: x\r\nauthorization: Basic {login}\r\ncontent-length: {len(body)}"
    with socket.create_connection(("127.0.0.1", door.base + node), 30) as client:
        client.sendall(head.encode() + b"\r\nexpect: 100-continue\r\n\r\n")
        assert b" 100 " in client.recv(4096), "it has been let in, and its body is waited for"
        assert door.ask(node, "/api/users/gone", "boss", SECRET, "DELETE")[0] == 204
        client.sendall(body)
        assert b" 401 " in client.recv(4096).splitlines()[0]
    names = [each["name"] for each in door.ask(node, "/api/users", "boss", SECRET)[1]]
    assert "boss" in names and not {"gone", "more"} & set(names)


def a_node_starts_though_a_door_that_outlives_it_has_its_port(
    cluster: LocalCluster, directory: Path, door: Door, node: int
) -> None:
    """That door was stopped; it ends when it goes on, and then the node's own opens."""
    name, old = NAMES[node], doors_of(directory)[str(cluster.pid(NAMES[node]))]
    os.kill(old, signal.SIGSTOP)
    try:
        cluster.kill(name)
        cluster.start_node(name)
        wait_until(cluster.all_ready, 60, "ready nodes")
        wait_until(lambda: cluster.status()[node]["door_error"] is not None, 30, "the reason")
        assert cluster.status()[node]["door_error"].startswith("the door is not open: cannot listen for operators on ")
    finally:
        os.kill(old, signal.SIGCONT)
    wait_until(lambda: door.ask(node, "/health/live")[0] == 200, 60, "a door")
    assert cluster.status()[node]["door_error"] is None


def what_is_counted_never_falls(cluster: LocalCluster, directory: Path, door: Door, first: int, then: int) -> None:
    """Not with a channel, nor with the primary's role."""
    work(cluster, first)
    before = metrics(door, first, "eve", GIVEN)
    assert before["rabbitmq_global_messages_received_total"] == before["txha_transactions_committed_total"] == 5
    assert before["txha_take_overs_total"] == 1 and before["rabbitmq_queue_messages"] == 5
    assert before["rabbitmq_channels_closed_total"] == 1 and before["txha_ready_nodes"] == 3
    promote = [sys.executable, "-m", "broker_plugin.cli.main", "promote", "--dir", str(directory), NAMES[then]]
    subprocess.run(promote, check=True, timeout=60)
    after = metrics(door, first, "eve", GIVEN)
    assert after["txha_active"] == 0 and not any(key.startswith("rabbitmq_queue_messages") for key in after)
    assert not [name for name in before if name.endswith("_total") and after[name] < before[name]]
    assert metrics(door, then, "eve", GIVEN)["txha_take_overs_total"] == 1
    status, queues = door.ask(then, "/metrics/per-object", "eve", GIVEN)
    assert status == 200 and 'rabbitmq_queue_messages_ready{queue="q",vhost="/"} 5.0' in queues
    wait_until(lambda: door.ask(first, "/health/ready")[0] == 200, 30, "the former primary")


def a_primary_is_killed_and_its_door_goes_with_it(
    cluster: LocalCluster, directory: Path, door: Door, first: int, backup: int
) -> None:
    old = str(cluster.pid(NAMES[first]))
    cluster.kill(NAMES[first])
    wait_until(lambda: door.ask(first, "/health/live")[0] == 0, 30, "the end of its door")
    assert old not in doors_of(directory)
    wait_until(lambda: cluster.primary() not in (None, NAMES[first]), 30, "another primary")
    critical = "/api/health/checks/node-is-quorum-critical"
    wait_until(lambda: door.ask(backup, critical, "eve", GIVEN)[0] == 503, 30, "two that are ready")
    assert door.ask(backup, "/api/users/eve", "boss", SECRET, "DELETE")[0] == 204
    wait_until(lambda: door.ask(backup, "/api/whoami", "eve", GIVEN)[0] == 401, 30, "the deletion")
    _, changes = door.ask(backup, "/api/txha/changes?by=boss", "boss", SECRET)
    done = [(each["operation"], each["name"]) for each in changes]
    assert done == [("user.put", "eve"), ("user.put", "gone"), ("user.delete", "gone"), ("user.delete", "eve")]
    assert all((each["user"], each["address"]) == ("boss", "127.0.0.1") for each in changes)


def test_the_door_of_a_cluster(tmp_path: Path) -> None:
    directory, base = tmp_path / "c", free_base_port(3)
    door = Door(base)
    with LocalCluster(directory, 3, "--http-port", str(base)) as cluster:
        wait_until(lambda: taken_over(directory), 20, "users")
        users("add", "boss", "--tag", "administrator", "--dir", str(directory), given=SECRET)
        primary = cluster.primary()
        assert primary is not None
        first = NAMES.index(primary)
        backup = (first + 1) % 3
        wait_until(lambda: door.ask(backup, "/health/ready")[0] == 200, 30, "a ready backup")
        a_user_given_at_a_backup_is_on_all_nodes(door, backup, primary)
        a_door_that_dies_harms_no_node_and_comes_again(directory, door, backup, str(cluster.pid(NAMES[backup])))
        a_request_whose_user_is_deleted_meanwhile_changes_nothing(door, backup)
        a_node_starts_though_a_door_that_outlives_it_has_its_port(cluster, directory, door, backup)
        what_is_counted_never_falls(cluster, directory, door, first, backup)
        a_primary_is_killed_and_its_door_goes_with_it(cluster, directory, door, backup, first)
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert not any(secret.encode() in data for secret in (SECRET, GIVEN, WRONG)), path
