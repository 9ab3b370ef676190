"""Files of a real RabbitMQ, imported into a real cluster and read back by RabbitMQ's own command line for operators."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pytest

from python_tests.harness.cluster import LocalCluster, free_base_port
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.definitions.held import FILES
from tests.broker_plugin.http.test_rabbitmqadmin import WHERE
from tests.processes.test_http import NAMES, Door
from tests.processes.test_users import taken_over, users
from tests.support.cases import some_of

COMMANDS = Path("/usr/lib/rabbitmq/lib")
BOSS = "correct-horse-battery"
SECTIONS = ("permissions", "topic_permissions", "policies", "queues", "exchanges", "bindings")
"""What is the same in both, entry for entry"""


def rabbitmqadmin(port: int, *words: str) -> str:
    (command,) = COMMANDS.glob(WHERE)
    login = ("-H", "127.0.0.1", "-P", str(port), "-u", "boss", "-p", BOSS)
    done = subprocess.run(
        [sys.executable, str(command), *login, *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def entries(file: dict[str, Any], section: str) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True) for each in file[section])


def are_the_same(original: dict[str, Any], read_back: dict[str, Any]) -> None:
    """All that the original says is there, and nothing else but what the cluster had before."""
    for section in SECTIONS:
        own = {"user": "boss"}.items()
        found = {**read_back, section: [each for each in read_back[section] if not own <= each.items()]}
        if section == "permissions":
            found[section] = [each for each in found[section] if (each["user"], each["vhost"]) != ("txha", "/")]
        assert entries(found, section) == entries(original, section), section
    there = {user["name"]: user for user in read_back["users"]}
    for user in original["users"]:
        assert there[user["name"]] | {"tags": sorted(user["tags"])} == there[user["name"]]
        assert there[user["name"]]["password_hash"] == user["password_hash"], "RabbitMQ's hash, until the first login"
        assert there[user["name"]]["limits"] == user["limits"]
    assert {each["name"] for each in read_back["vhosts"]} == {each["name"] for each in original["vhosts"]}
    assert read_back["parameters"] == original["parameters"]


@pytest.mark.parametrize("version", some_of(["3.10", "4.0"], suite=["4.0"]))
def test_a_real_file_is_imported_and_read_back(version: str, tmp_path: Path) -> None:
    directory, base = tmp_path / "c", free_base_port(3)
    door, file = Door(base), FILES / f"rabbitmq-{version}-http.json"
    original = json.loads(file.read_bytes())
    with LocalCluster(directory, 3, "--http-port", str(base)) as cluster:
        wait_until(lambda: taken_over(directory), 20, "users")
        users("add", "boss", "--tag", "administrator", "--dir", str(directory), given=BOSS)
        primary = cluster.primary()
        assert primary is not None
        backup = (NAMES.index(primary) + 1) % 3
        wait_until(lambda: door.ask(backup, "/health/ready")[0] == 200, 30, "a ready backup")
        assert "Uploaded definitions" in rabbitmqadmin(base + backup, "import", str(file))
        read_back(base + backup, tmp_path, original)
        os.kill(cluster.pid(primary), signal.SIGKILL)
        wait_until(lambda: cluster.primary() not in (None, primary), 30, "another primary")
        other = (backup + 1) % 3 if NAMES[(backup + 1) % 3] != primary else backup
        wait_until(lambda: door.ask(other, "/health/ready")[0] == 200, 60, "a node that is ready")
        read_back(base + other, tmp_path, original)
        in_use(cluster.urls[other].rpartition(":")[2].partition("/")[0])


def read_back(port: int, directory: Path, original: dict[str, Any]) -> None:
    file = directory / "out.json"
    file.unlink(missing_ok=True)
    assert "Exported definitions" in rabbitmqadmin(port, "export", str(file))
    are_the_same(original, json.loads(file.read_bytes()))


def in_use(port: str) -> None:
    """A user of the file logs in with the password, and a message takes the way that the file says."""
    login = pika.PlainCredentials("ann", "secret-of-ann")
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", int(port), "orders", login)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("shop.events", "paid.eu", b"paid", mandatory=True)
        channel.basic_publish("shop.events", "unrouted", b"lost", mandatory=True)
        assert channel.basic_get("shop.paid", auto_ack=True)[2] == b"paid"
        assert channel.basic_get("shop.lost", auto_ack=True)[2] == b"lost"
