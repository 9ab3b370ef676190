"""A real cluster that grows from one node to three and shrinks again under load (docs/membership.md)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from python_tests.harness.cluster import free_base_port
from python_tests.harness.waiting import wait_until
from tests.support.commands import txha_here

LONG = 120.0
NAMES = ("node-1", "node-2", "node-3")


class Machines:
    """Three nodes, each with a file of its own that lists no other. ``told``: what was committed, as clients know."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.base = free_base_port(6)
        self.told: list[str] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._ended = threading.Event()
        for number, name in enumerate(NAMES):
            self.config(name).parent.mkdir(parents=True)
            self.config(name).write_text(f'''
name = "{name}"
cluster = "growing"
dir = "{directory / name}"
coordination = "sqlite:///{directory / "record.sqlite"}"
[amqp]
port = {self.base + number}
[peer]
port = {self.peer_port(name)}
secret = "@{directory / "cluster.secret"}"
[timing]
lease_ttl = 6.0
''')

    def config(self, name: str) -> Path:
        return self.directory / name / "node.toml"

    def peer_port(self, name: str) -> int:
        return self.base + 3 + NAMES.index(name)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.peer_port(name)}"

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "broker_plugin.cli.main", "node", "--config", str(self.config(name))]
        with (self.directory / f"{name}.err").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stderr=log, stdout=log)

    def stop(self, name: str) -> None:
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM)
        process.wait(LONG)

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.err").read_text()

    def txha(self, *words: str, at: str = "node-1", status: int = 0) -> str:
        found = txha_here(*words, "--config", str(self.config(at)))
        assert found.returncode == status, found.stdout + found.stderr
        return found.stdout + found.stderr

    def member(self, *words: str, at: str = "node-1", status: int = 0) -> str:
        return self.txha("member", *words, at=at, status=status)

    def members(self, at: str = "node-1") -> Any:
        return json.loads(self.member("list", "--json", at=at))

    def status(self, name: str) -> dict[str, Any]:
        with suppress(AssertionError):
            return json.loads(self.txha("status", "--json", at=name))[0]
        return {"state": "down"}

    def ready(self, *names: str) -> bool:
        return set(self.status("node-1").get("ready_set", ())) == set(names)

    def url(self, name: str) -> pika.URLParameters:
        return pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{self.base + NAMES.index(name)}/?heartbeat=60")

    @contextmanager
    def load(self) -> Iterator[None]:
        """Commits at node-1, one after the other; an answer that does not come leaves its outcome open."""
        worker = threading.Thread(target=self._work)
        worker.start()
        try:
            yield
        finally:
            self._ended.set()
            worker.join(LONG)

    def _work(self) -> None:
        number = 0
        while not self._ended.is_set():
            with (
                suppress(pika.exceptions.AMQPError, OSError),
                pika.BlockingConnection(self.url("node-1")) as connection,
            ):
                channel = connection.channel()
                channel.queue_declare("q", durable=True)
                channel.tx_select()
                while not self._ended.is_set():
                    number += 1
                    for _ in "ab":
                        channel.basic_publish("", "q", f"{number}".encode(), pika.BasicProperties(delivery_mode=2))
                    channel.tx_commit()
                    self.told.append(str(number))

    def more_committed(self) -> None:
        before = len(self.told)
        wait_until(lambda: len(self.told) > before + 2, LONG, "more commits")

    def drained(self, name: str) -> list[str]:
        found = []
        with pika.BlockingConnection(self.url(name)) as connection:
            channel = connection.channel()
            while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
                found.append(got[2].decode())
        return found

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    machines = Machines(tmp_path)
    try:
        yield machines
    finally:
        machines.end()


@pytest.mark.timeout(900)
def test_one_node_three_and_one_again_under_load(machines: Machines) -> None:
    """P2: nothing that a client was told is lost; ``min_ready`` follows; a removed store is refused until it is
    discarded."""
    machines.txha("init")
    machines.start("node-1")
    wait_until(lambda: machines.status("node-1")["state"] == "active", LONG, "the first primary")
    assert "raise the flag first" in machines.member("add", "node-2", machines.address("node-2"), status=1)
    machines.txha("calls", "call", "flag", "name=members")
    with machines.load():
        machines.more_committed()
        for name in NAMES[1:]:
            machines.member("add", name, machines.address(name))
        assert machines.members()["min_ready"] == 1
        machines.more_committed()  # nothing waits for nodes that are not there
        for name in NAMES[1:]:
            machines.start(name)
        wait_until(lambda: machines.ready(*NAMES), LONG, "three ready nodes")
        assert machines.members("node-3")["min_ready"] == 2
        machines.more_committed()
        assert "is the primary: hand over" in machines.member("remove", "node-1", at="node-2", status=1)

        served = pika.BlockingConnection(machines.url("node-3"))
        machines.member("remove", "node-3", at="node-2")
        wait_until(lambda: "was removed from cluster growing" in machines.log("node-3"), LONG, "its word")
        found = machines.members()
        assert [each["name"] for each in found["members"]] == ["node-1", "node-2"] and found["min_ready"] == 1
        assert machines.status("node-3")["state"] == "joining" and not machines.status("node-3")["ready"]
        with pytest.raises(pika.exceptions.AMQPError):
            wait_until(lambda: served.process_data_events(0.05), LONG, "the end of a client of the removed node")
        with pytest.raises(pika.exceptions.AMQPError):
            pika.BlockingConnection(machines.url("node-3"))
        machines.more_committed()
        machines.member("add", "node-3", machines.address("node-3"))
        wait_until(lambda: "and its store is refused" in str(machines.status("node-3")), LONG, "its refusal")
        assert machines.ready("node-1", "node-2")
        machines.stop("node-3")
        machines.txha("discard", "--yes", at="node-3")
        machines.start("node-3")
        wait_until(lambda: machines.ready(*NAMES), LONG, "three ready nodes again")

        for name in NAMES[1:]:
            machines.member("remove", name)
        assert machines.ready("node-1")
        assert machines.members()["min_ready"] == 1
        machines.more_committed()
    bodies = machines.drained("node-1")
    assert [each for each in machines.told if bodies.count(each) != 2] == []
    assert all(bodies.count(each) == 2 for each in bodies), "each transaction whole, and once"


@pytest.mark.every
@pytest.mark.timeout(600)
def test_a_move_is_followed_and_what_cannot_be_is_refused(machines: Machines) -> None:
    machines.txha("init")
    machines.start("node-1")
    wait_until(lambda: machines.status("node-1")["state"] == "active", LONG, "the first primary")
    machines.txha("calls", "call", "flag", "name=members")
    machines.member("add", "node-2", "127.0.0.1:1")  # where no process listens
    machines.start("node-2")
    wait_until(lambda: "this node's file lets it listen on" in machines.log("node-2"), LONG, "its word")
    assert machines.ready("node-1")
    machines.member("move", "node-2", machines.address("node-2"))
    wait_until(lambda: machines.ready("node-1", "node-2"), LONG, "both ready")
    before = machines.members()
    assert "there is no member node-9" in machines.member("remove", "node-9", status=1)
    assert "is the address of member node-1" in machines.member("add", "node-9", machines.address("node-1"), status=1)
    assert "is a member already" in machines.member("add", "node-2", "127.0.0.1:9", status=1)
    assert machines.members() == before
    machines.member("add", "node-2", machines.address("node-2"))
    assert machines.members() == before, "it is so already"
