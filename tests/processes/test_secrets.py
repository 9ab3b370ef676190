"""Passwords that a real cluster is given on all its ways: none stands in a file, a log, a page or a process list."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pika
import pytest

from python_tests.harness.cluster import LocalCluster, free_base_port
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.http.routes import test_tags
from tests.processes.test_http import Door
from tests.processes.test_users import taken_over, users

pytestmark = pytest.mark.slice

BOSS, LATER = "correct-horse-of-boss", "battery-of-boss-later"
BY_HTTP, BY_FILE, HTTP_FILE = "staple-of-eve", "clip-of-ann", "pin-of-joe"
WRONG_AMQP, WRONG_HTTP, WRONG_COMMAND = "wrong-guess-amqp", "wrong-guess-http", "wrong-guess-command"
USERS = {
    BOSS: "boss",
    LATER: "boss",
    BY_HTTP: "eve",
    BY_FILE: "ann",
    HTTP_FILE: "joe",
    WRONG_AMQP: "boss",
    WRONG_HTTP: "boss",
    WRONG_COMMAND: "boss",
}
"""By the password, whose it is or was said to be"""
COMMANDS = [
    *("users list", "users list --json", "calls list --by boss", "calls list --by boss --json"),
    *("calls status", "calls status --json", "status", "status --json", "definitions export"),
]
FILLED = {
    "{vhost}": "%2F",
    "{user}": "boss",
    "{name}": "boss",
    "{port}": "1",
    "{protocol}": "amqp",
}


def forms(secret: str) -> Iterator[bytes]:
    """As it may stand somewhere: in clear, as logins and texts carry it."""
    user, data = USERS[secret], secret.encode()
    login = f"{user}:{secret}".encode()
    yield data
    yield secret.encode("utf-16-le")
    yield data.hex().encode()
    for each in (data, login, f"\0{user}\0{secret}".encode()):
        yield b64encode(each).rstrip(b"=")[:-1]


def found_in(data: bytes) -> list[str]:
    """The secrets that stand there."""
    return [secret for secret in USERS if any(form in data for form in forms(secret))]


def cluster_processes(cluster: LocalCluster) -> set[int]:
    """The nodes' processes and all that they have started."""
    parents: dict[int, int] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdecimal():
            try:
                parents[int(path.name)] = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found = {cluster.pid(f"node-{number}") for number in (1, 2, 3)}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def told(*words: str, given: str | None = None) -> bytes:
    """All that a command says, whatever became of it."""
    command = [sys.executable, "-m", "broker_plugin.cli.main", *words]
    input_ = None if given is None else f"{given}\n".encode()
    done = subprocess.run(command, input=input_, capture_output=True, check=False, timeout=120)
    return done.stdout + done.stderr


def with_wrong_passwords(cluster: LocalCluster, door: Door, here: tuple[str, ...]) -> None:
    host, port = "127.0.0.1", pika.URLParameters(cluster.urls[0]).port
    with pytest.raises(pika.exceptions.AMQPError):
        pika.BlockingConnection(pika.ConnectionParameters(host, port, "/", pika.PlainCredentials("boss", WRONG_AMQP)))
    assert door.ask(1, "/api/whoami", "boss", WRONG_HTTP)[0] == 401
    users("authenticate", "boss", *here, given=WRONG_COMMAND, status=1)


def given_on_all_ways(directory: Path, cluster: LocalCluster, door: Door, here: tuple[str, ...]) -> list[bytes]:
    """What commands say meanwhile."""
    users("add", "boss", "--tag", "administrator", *here, given=BOSS)
    wait_until(lambda: door.ask(1, "/api/whoami", "boss", BOSS)[0] == 200, 30, "the user")
    assert door.ask(1, "/api/users/eve", "boss", BOSS, "PUT", {"password": BY_HTTP, "tags": ""})[0] == 201
    ann, joe = ({"users": [{"name": USERS[each], "password": each, "tags": ""}]} for each in (BY_FILE, HTTP_FILE))
    file = directory.parent / "ann.json"
    file.write_text(json.dumps(ann))
    said = [told("definitions", "import", str(file), *here)]
    file.unlink()
    assert door.ask(1, "/api/definitions", "boss", BOSS, "POST", joe)[0] == 204
    twice = {"users": [*joe["users"], *joe["users"], 7]}
    assert door.ask(1, "/api/definitions", "boss", BOSS, "POST", twice)[0] == 400, "nor where a file is refused"
    with_wrong_passwords(cluster, door, here)
    users("passwd", "boss", *here, given=LATER)
    wait_until(lambda: door.ask(1, "/api/whoami", "boss", LATER)[0] == 200, 30, "the new password")
    return said


def pages(door: Door) -> Iterator[tuple[str, bytes]]:
    """All that can be read at the door."""
    for line, wanted in test_tags.WANTED:
        method, path = line.split(" ")
        if method == "GET":
            for part, value in FILLED.items():
                path = path.replace(part, value)
            status, page = door.ask(1, path, "boss", LATER)
            assert status in (200, 404, 503), (path, status, wanted)
            yield path, json.dumps(page).encode()


def test_no_password_stands_anywhere(tmp_path: Path) -> None:
    directory, base = tmp_path / "c", free_base_port(3)
    door, here = Door(base), ("--dir", str(directory))
    with LocalCluster(directory, 3, "--http-port", str(base)) as cluster:
        wait_until(lambda: taken_over(directory), 20, "users")
        wait_until(lambda: all(door.ask(each, "/health/ready")[0] == 200 for each in range(3)), 30, "ready nodes")
        said = given_on_all_ways(directory, cluster, door, here)
        said += [told(*words.split(), *here) for words in COMMANDS]
        said += [told("calls", "list", "--by", "", *form, *here) for form in ((), ("--json",))]
        assert b"boss" in b"".join(said) and not found_in(b"".join(said))
        for path, page in pages(door):
            assert not found_in(page), path
        processes = cluster_processes(cluster)
        assert len(processes) >= 6, "nodes and doors"
        for process in processes | {os.getpid()}:
            for file in ("cmdline", "environ"):
                assert not found_in(Path(f"/proc/{process}/{file}").read_bytes()), (process, file)
    files = [path for path in directory.rglob("*") if path.is_file()]
    assert {"node.log", "cluster.secret"} <= {path.name for path in files}
    for path in files:
        assert not found_in(path.read_bytes()), path


def test_a_secret_is_found_however_it_stands() -> None:
    """Else the test above could not fail."""
    for secret, user in USERS.items():
        login = b64encode(f"{user}:{secret}".encode())
        for data in (secret.encode(), b"x" + secret.encode("utf-16-le"), b"Basic " + login, quote(secret).encode()):
            assert secret in found_in(data)
