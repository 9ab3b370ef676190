"""Users of a real cluster: changed at any node, the same after a SIGKILL of the primary, and never in clear."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until

SECRET, LATER = "correct-horse-battery", "staple-of-another-kind"


def users(*arguments: str, given: str = "", status: int = 0) -> str:
    return txha("users", *arguments, given=given, status=status)


def txha(*arguments: str, given: str = "", status: int = 0) -> str:
    command = [sys.executable, "-m", "broker_plugin.cli.main", *arguments]
    found = subprocess.run(command, input=f"{given}\n", capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == status, found.stdout + found.stderr
    return found.stdout + found.stderr


def url(cluster: LocalCluster, number: int, user: str, password: str) -> pika.URLParameters:
    host = cluster.urls[number].rsplit("@", 1)[1]
    return pika.URLParameters(f"amqp://{user}:{password}@{host}")


def logs_in(cluster: LocalCluster, number: int, user: str, password: str) -> bool:
    try:
        with pika.BlockingConnection(url(cluster, number, user, password)):
            return True
    except pika.exceptions.ProbableAuthenticationError:
        return False
    except pika.exceptions.AMQPError:  # the primary is changing
        return logs_in(cluster, number, user, password)


def listed(directory: Path) -> Any:
    return json.loads(users("list", "--dir", str(directory), "--json"))


def test_users_of_a_cluster(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    here = ("--dir", str(directory))
    with LocalCluster(directory, 3) as cluster:
        wait_until(lambda: "guest" in users("list", *here) if taken_over(directory) else False, 20, "users")
        assert "app may do nothing yet" in users("add", "app", "--tag", "management", *here, given=SECRET)
        assert "NOT_ALLOWED - access to vhost '/' refused for user 'app'" in refused(cluster, "app", SECRET)
        txha("permissions", "set", "app", "^q", ".*", ".*", "--config", str(directory / "node-2" / "node.toml"))
        assert "exists already" in users("add", "app", *here, given=SECRET, status=1)
        backup = directory / "node-3" / "node.toml"
        users("add", "other", "--config", str(backup), given=SECRET)
        assert [each["name"] for each in listed(directory)] == ["app", "guest", "other"]
        assert all(logs_in(cluster, number, "app", SECRET) for number in range(3))
        assert not logs_in(cluster, 1, "app", LATER)
        users("passwd", "app", "--config", str(backup), given=LATER)
        assert logs_in(cluster, 2, "app", LATER) and not logs_in(cluster, 0, "app", SECRET)

        first = cluster.primary()
        assert first is not None
        cluster.kill(first)
        wait_until(lambda: cluster.primary() not in (None, first), 30, "another primary")
        living = 0 if first != "node-1" else 1
        assert logs_in(cluster, living, "app", LATER) and not logs_in(cluster, living, "app", SECRET)
        connection = pika.BlockingConnection(url(cluster, living, "app", LATER))
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        a_permission_holds_on_an_open_channel(channel, here)
        users("authenticate", "app", *here, given=LATER)
        users("authenticate", "app", *here, given=SECRET, status=1)
        users("set-tags", "app", "b", "a", *here)
        txha("limits", "set", "max-channels", "3", "--user", "app", *here)
        assert {"name": "app", "tags": ["a", "b"], "limits": {"max-channels": 3}} in listed(directory)
        users("delete", "app", *here)
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            while True:
                connection.process_data_events(0.5)
        assert (closed.value.reply_code, closed.value.reply_text) == (320, "CONNECTION_FORCED - user 'app' is deleted")
        assert not logs_in(cluster, living, "app", LATER)
    for path in directory.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            assert SECRET.encode() not in data and LATER.encode() not in data, path


def refused(cluster: LocalCluster, user: str, password: str) -> str:
    """What a client is told that may not connect."""
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as told:
        pika.BlockingConnection(url(cluster, 0, user, password))
    return str(told.value)


def a_permission_holds_on_an_open_channel(channel: Any, here: tuple[str, ...]) -> None:
    """It has outlived the primary at which it was set, and a change of it is asked for at once."""
    permissions = json.loads(txha("permissions", "list", "--json", *here))
    assert [(each["name"], each["configure"]) for each in permissions] == [("app", "^q"), ("guest", ".*")]
    channel.basic_publish("", "q", b"x")
    txha("permissions", "set", "app", ".*", "^$", ".*", *here)
    channel.basic_publish("", "q", b"x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.queue_declare("q", passive=True)
    text = "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'app'"
    assert (closed.value.reply_code, closed.value.reply_text) == (403, text)


def taken_over(directory: Path) -> bool:
    return any("keeps its users itself" in path.read_text() for path in directory.glob("node-*/node.log"))


@pytest.mark.every
def test_a_node_with_users_of_its_own_starts_again_until_its_file_says_something_else(tmp_path: Path) -> None:
    directory, file = tmp_path / "c", tmp_path / "users.toml"
    settings = ("--set", f"amqp.users_file={file}", "--set", "timing.lease_ttl=30")

    def write(password: str) -> None:
        file.touch(mode=0o600)
        file.write_text(f'guest = "guest"\napp = "{password}"\n')

    write(SECRET)
    with LocalCluster(directory, 1, *settings) as cluster:
        wait_until(lambda: taken_over(directory), 20, "users")
        assert logs_in(cluster, 0, "app", SECRET)
        users("passwd", "app", "--dir", str(directory), given=LATER)
    with LocalCluster(directory, 1, *settings) as cluster:
        assert logs_in(cluster, 0, "app", LATER) and not logs_in(cluster, 0, "app", SECRET)
    write("something else")
    command = [sys.executable, "-m", "broker_plugin.cli.main", "node", "--config", str(directory / "node-1/node.toml")]
    found = subprocess.run([*command, *settings], capture_output=True, text=True, check=False, timeout=60)
    assert found.returncode == 2 and "remove the key, and change users with `txha users`" in found.stderr
    assert len(found.stderr.strip().splitlines()) == 1 and "something else" not in found.stderr


@pytest.mark.every
def test_a_virtual_host_goes_on_all_nodes_and_stays_gone_when_the_primary_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    here = ("--dir", str(directory))
    with LocalCluster(directory, 3) as cluster:
        wait_until(lambda: taken_over(directory), 20, "users")
        txha("vhosts", "add", "billing", "--config", str(directory / "node-2" / "node.toml"))
        txha("permissions", "set", "guest", ".*", ".*", ".*", "--vhost", "billing", *here)
        parameters = url(cluster, 0, "guest", "guest")
        pika.BlockingConnection(parameters).channel().queue_declare("stays", durable=True)
        parameters.virtual_host = "billing"
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        for number in range(200):
            channel.queue_declare(f"q{number}", durable=True)
        first = cluster.primary()
        assert first is not None
        txha("vhosts", "delete", "billing", *here)
        cluster.kill(first)
        wait_until(lambda: cluster.primary() not in (None, first), 30, "another primary")
        wait_until(lambda: listed_vhosts(directory) == ["/"], 30, "the end of the deletion")
        wait_until(lambda: all(queues == ["stays"] for queues in queues_by_node(directory)), 30, "the same on all")


def listed_vhosts(directory: Path) -> list[str]:
    return [each["name"] for each in json.loads(txha("vhosts", "list", "--json", "--dir", str(directory)))]


def queues_by_node(directory: Path) -> list[list[str]]:
    """Of the nodes that run."""
    nodes = json.loads(txha("status", "--json", "--dir", str(directory)))
    return [list(node["queues"]) for node in nodes if node["state"] != "down"]
