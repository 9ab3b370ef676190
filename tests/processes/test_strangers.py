"""Real nodes and a stranger who reads everything that they say: no commit is answered for what it forges."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pika
import pytest
from msgspec.structs import replace

from broker_plugin.cli.cluster.cluster import found_if_new
from broker_plugin.cli.cluster.plan import Wiring, plan_cluster
from broker_plugin.cli.layout import cluster_id
from ha.messages.greeting import WIRE_VERSION, Hello
from ha.messages.stream import Ack
from ha.messages.wire import decode, encode
from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from recovery.reader.node_admin import ask

PATIENT = ["timing.prepare_timeout=60", "timing.link_down_grace=60", "timing.backup_timeout=60"]
"""So that a backup which is stopped stays in the ready set, and a commit waits for it"""
ROUNDS = 8


class Tap(threading.Thread):
    """Passes on what a node says to another, remembers it, and can put something in."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.said = b""
        self.there: socket.socket | None = None

    def run(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.port))
                except OSError:
                    near.close()
                    continue
                self.said, self.there = b"", far
                threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
                threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, remember: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if remember:
                    self.said += data
                target.sendall(data)
        for end in (source, target):
            end.close()

    def put_in(self, data: bytes) -> None:
        with suppress(OSError):
            assert self.there is not None
            self.there.sendall(data)


class Tapped(Wiring):
    """Every node reaches every other one through a tap."""

    def __init__(self) -> None:
        self.taps: dict[tuple[str, str], Tap] = {}

    def route(self, node: int, other: int, port: int) -> tuple[str, int]:
        tap = self.taps[f"node-{node + 1}", f"node-{other + 1}"] = Tap(port)
        tap.start()
        return "127.0.0.1", int(tap.listener.getsockname()[1])


class TappedCluster(LocalCluster):
    """Started node by node, as a service manager does."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.wiring = Tapped()
        plan = plan_cluster(directory, self.count, self.base_port, PATIENT, self.wiring)
        plan.write()
        found_if_new(plan, PATIENT)
        for entry in plan.entries:
            self.start_node(entry.name)
        wait_until(self.all_ready, 60, "all nodes ready")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[TappedCluster]:
    with ExitStack() as stack:
        made = TappedCluster(tmp_path / "cluster")
        stack.callback(made.stop)
        yield made


def last_ack(said: bytes) -> Ack:
    """The last acknowledgement in a stream, whatever stands between: it is not encrypted."""
    found = []
    for at in range(len(said) - 4):
        size = int.from_bytes(said[at : at + 4], "big")
        if 5 <= size <= 40:
            with suppress(ValueError):
                message = decode(said[at + 4 : at + 4 + size])
                if isinstance(message, Ack):
                    found.append(message)
    return found[-1]


def framed(message: object) -> bytes:
    data = encode(message)
    return len(data).to_bytes(4, "big") + data


def say(port: int, data: bytes) -> None:
    """As a stranger, until the node ends the connection or has had the time to take it."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall(data)
        connection.settimeout(0.05)
        while connection.recv(1 << 16):
            pass


def test_a_forged_acknowledgement_answers_no_commit(cluster: TappedCluster) -> None:
    """Both backups stand still, and their acknowledgements come from another process: 0.36 s, and it was answered."""
    primary, backups = cluster.primary() or "", cluster.backups()
    assert len(backups) == 2
    status = {node["name"]: node for node in cluster.status()}
    called = cluster_id(cluster.directory) or ""
    channel = pika.BlockingConnection(pika.URLParameters(cluster.url(primary) + "?heartbeat=0")).channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    taps = {name: cluster.wiring.taps[name, primary] for name in backups}
    answered = threading.Event()

    def commit() -> None:
        channel.basic_publish("", "q", b"on the disks of three nodes")
        channel.tx_commit()
        answered.set()

    client = threading.Thread(target=commit, daemon=True)
    with ExitStack() as stopped:
        captured = {}
        for name in backups:
            stopped.enter_context(cluster.frozen(name))
            captured[name] = taps[name].said
        client.start()
        for _ in range(ROUNDS):
            position = ask(cluster.directory / primary, "status")["position"]
            time.sleep(0.2)  # nothing is believed of an event that has not been sent yet
            for name in backups:
                forged = framed(replace(last_ack(captured[name]), sequence=int(position.split(".")[1])))
                taps[name].put_in(forged)
                hello = Hello(WIRE_VERSION, called, name, "127.0.0.1", 1, status[primary]["cluster_id"])
                say(taps[name].port, framed(hello) + forged)
            if answered.wait(0.05):
                break
        for name in backups:
            say(taps[name].port, captured[name])
        assert not answered.is_set(), "a commit was answered while both backups stood still"
    client.join(60)
    assert answered.is_set(), "and they go on, and it is"
