"""Three real nodes with files of their own, certificates, and recorders on every way from one node to another."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika

from recovery.reader.node_admin import AdminError, ask
from tests.support.cluster_certificates import ClusterAuthority
from tests.support.recorder import Recorder

NUMBERS = (1, 2, 3)
PATIENCE = 180.0
"""Seconds; other work may share the machine"""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """Its first true value."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} has not come about"
        time.sleep(0.1)
    return found


def free_ports(count: int) -> list[int]:
    """Ports that no one listens at now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [each.getsockname()[1] for each in held]
    for each in held:
        each.close()
    return found


class EncryptedCluster:
    """Nodes ``node-1`` to ``node-3`` of cluster ``orders``. ``ways``: recorders, by from and to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = ClusterAuthority(directory, "orders")
        self.amqp, self.peer = free_ports(3), free_ports(3)
        self.ways = {(a, b): Recorder(self.peer[b - 1]) for a in NUMBERS for b in NUMBERS if a != b}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def write(self, number: int, peer: str, tls: bool = True) -> None:
        """The file of this node, with these lines in its table for peers."""
        out = self.authority.holder("node", f"node-{number}")
        files = "\n".join(f'{key} = "{out / key}.pem"' for key in ("certificate", "key", "authority"))
        peers = "\n".join(
            f'[[peers]]\nname = "node-{other}"\nport = {self.ways[number, other].port}'
            for other in NUMBERS
            if other != number
        )
        (self.directory / f"node-{number}.toml").write_text(
            f'name = "node-{number}"\ncluster = "orders"\ndir = "{self.node_directory(number)}"\n'
            f'coordination = "sqlite:///{self.directory}/record.sqlite"\n[amqp]\nport = {self.amqp[number - 1]}\n'
            f"[peer]\nport = {self.peer[number - 1]}\n{peer}\n" + (f"[tls]\n{files}\n" if tls else "") + peers
        )

    def node_directory(self, number: int) -> Path:
        """Of this node."""
        return self.directory / f"node-{number}"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, to its end."""
        command = [sys.executable, "-m", "broker_plugin.cli.main", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)

    def found(self) -> None:
        """The cluster, by its first node."""
        done = self.run("init", "--config", str(self.directory / "node-1.toml"))
        assert done.returncode == 0, done.stderr

    def start(self, *numbers: int) -> None:
        """These nodes."""
        for number in numbers:
            with (self.directory / f"node-{number}.log").open("ab") as log:
                self.processes[number] = subprocess.Popen(
                    [sys.executable, "-m", "broker_plugin.cli.main", "node", "--config", f"node-{number}.toml"],
                    cwd=self.directory,
                    stderr=log,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                )

    def stop(self, number: int, how: signal.Signals = signal.SIGTERM) -> None:
        """This node, and wait for its end."""
        process = self.processes.pop(number)
        process.send_signal(how)
        process.wait(PATIENCE)

    def log(self, number: int) -> str:
        """What a node has said."""
        return (self.directory / f"node-{number}.log").read_text()

    def status(self, number: int) -> dict[str, Any]:
        """What a node says of itself; nothing where it does not answer."""
        try:
            return dict(ask(self.node_directory(number), "status"))
        except AdminError:
            return {}

    def primary(self) -> int | None:
        """Which node is active."""
        return next((each for each in self.processes if self.status(each).get("state") == "active"), None)

    def ready(self, count: int) -> bool:
        """Whether so many nodes are in the ready set of the primary."""
        primary = self.primary()
        return primary is not None and len(self.status(primary).get("ready_set") or ()) == count

    def commit(self, queue: str, *bodies: str) -> None:
        """One transaction at the primary; again and again until one is answered: a body may come twice."""

        def committed() -> bool:
            primary = self.primary()
            if primary is None:
                return False
            with contextlib.suppress(pika.exceptions.AMQPError, OSError):
                parameters = pika.ConnectionParameters("127.0.0.1", self.amqp[primary - 1], socket_timeout=20)
                with pika.BlockingConnection(parameters) as connection:
                    channel = connection.channel()
                    channel.queue_declare(queue, durable=True)
                    channel.tx_select()
                    for body in bodies:
                        channel.basic_publish("", queue, body.encode())
                    channel.tx_commit()
                    return True
            return False

        wait_until(committed, "a commit")

    def waiting(self, queue: str) -> set[str]:
        """The bodies in a queue, at the primary."""
        primary = wait_until(self.primary, "a primary")
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", self.amqp[primary - 1])) as connection:
            channel = connection.channel()
            found = set()
            while (got := channel.basic_get(queue))[0] is not None:
                found.add(got[2].decode())
            return found

    def recorded(self) -> bytes:
        """What has passed between nodes."""
        return b"|".join(each.said for each in self.ways.values())

    def forget(self) -> None:
        """What has been recorded."""
        for each in self.ways.values():
            each.forget()

    def close(self) -> None:
        """End everything."""
        for number in list(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.stop(number, signal.SIGKILL)
        for each in self.ways.values():
            each.close()
