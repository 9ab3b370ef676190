"""A local cluster as a user runs it: ``txha cluster`` and ``txha node`` as processes, seen from outside."""

from __future__ import annotations

import json
import os
import random
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from broker_plugin.cli.asking import node_status
from broker_plugin.cli.layout import LOWEST_PORT, ClusterError, ephemeral_range, port_is_free, read_cluster
from python_tests.harness.waiting import wait_until
from recovery.reader.node_admin import AdminError, ask

START_SECONDS = 30.0
HOST_COMMAND = "TXHA_TEST_HOST"
"""Environment: a command that runs a host broker, with ``{socket}`` for where its node listens. Clusters that are
started here then have such brokers in place of the embedded one (docs/hosts.md)."""
SOCKET = "host.sock"


def free_base_port(count: int) -> int:
    """The first of ``count`` neighbouring loopback ports that no process listens on at the moment.

    They lie below the range of outgoing connections: a port of that range could be taken by any client between this
    look and the start of the node that shall listen there. Raises RuntimeError if there are none.
    """
    candidates = list(range(LOWEST_PORT, ephemeral_range()[0] - count + 1))
    random.shuffle(candidates)
    for base in candidates:
        if all(port_is_free(base + offset) for offset in range(count)):
            return base
    raise RuntimeError(f"there are no {count} free loopback ports from {LOWEST_PORT} up to the outgoing connections'")


def end_on_sigterm() -> None:
    """From now on SIGTERM leaves this process as an error would, so that it ends what it has started."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def limit_files(limit: int) -> None:
    """From now on this process, and what it starts, may open so many files at most."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))


class NodeProcesses:
    """Which process each node of the cluster in ``directory`` has: one of its supervisor's, or one that was added."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._added: dict[str, subprocess.Popen[bytes]] = {}

    def add(self, name: str, process: subprocess.Popen[bytes]) -> None:
        """From now on this is the node's."""
        self._added[name] = process

    def added(self) -> list[subprocess.Popen[bytes]]:
        """Those that were added, one for each node at most."""
        return list(self._added.values())

    def forget(self) -> None:
        """All of those have ended, and the nodes have none of them any more."""
        self._added = {}

    def pid(self, name: str) -> int:
        """The process of a node. Raises LookupError if it does not run."""
        extra = self._added.get(name)
        if extra is not None:
            if extra.poll() is None:
                return extra.pid
            raise LookupError(f"{name} does not run")
        for node in json.loads((self._directory / "cluster.json").read_text())["nodes"]:
            if node["name"] == name and node["pid"] is not None:
                return int(node["pid"])
        raise LookupError(f"{name} does not run")

    def runs(self, name: str) -> bool:
        """Whether a node has a process; of one that has just ended that may be noticed a moment later."""
        try:
            self.pid(name)
        except LookupError:
            return False
        return True

    def runs_as(self, name: str, pid: int) -> bool:
        """Whether a node has this very process."""
        try:
            return self.pid(name) == pid
        except LookupError:
            return False

    def exit_status(self, name: str) -> int | None:
        """How a node that was started by itself has ended, negative for a signal; None while it runs."""
        return self._added[name].poll()


class HostBrokers:
    """The host brokers of a cluster's nodes, one process each, where ``command`` runs one; none without it.

    A broker outlives its node: it is to attach again when the node has been started anew.
    """

    def __init__(self, directory: Path, nodes: int, command: str | None) -> None:
        self._directory = directory
        self._nodes = [f"node-{number + 1}" for number in range(nodes)]
        self._command = shlex.split(command) if command else []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def options(self) -> tuple[str, ...]:
        """What ``txha cluster`` is to be given."""
        return ("--set", f"host.socket={SOCKET}") if self._command else ()

    def start(self) -> None:
        """Start those that do not run; they wait for their nodes."""
        missing = [node for node in self._nodes if self._command and node not in self._processes]
        for node in missing:
            socket = str(self._directory / node / SOCKET)
            command = [word.replace("{socket}", socket) for word in self._command]
            with self._directory.with_name(self._directory.name + ".hosts").open("ab") as log:
                self._processes[node] = subprocess.Popen(command, stdout=log, stderr=log)

    def pid(self, node: str) -> int:
        """The process of this node's broker. Raises KeyError if there is none."""
        return self._processes[node].pid

    def kill(self, node: str) -> None:
        """SIGKILL; ``start`` starts another one. Raises KeyError if there is none."""
        process = self._processes.pop(node)
        process.kill()
        process.wait()

    def stop(self) -> None:
        """End them."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = {}


class LocalCluster:
    """Three nodes (by default) below ``directory``. A context manager: everything it started is ended with it."""

    def __init__(
        self,
        directory: Path,
        nodes: int = 3,
        *options: str,
        environment: dict[str, str] | None = None,
        files: int | None = None,
    ) -> None:
        """``files``: how many each process of it may open, at most."""
        self.directory = directory
        self.count = nodes
        self.base_port = free_base_port(nodes)
        self.hosts = HostBrokers(directory, nodes, os.environ.get(HOST_COMMAND))
        self._options = (*options, *self.hosts.options)
        self._environment = {**os.environ, **(environment or {})}
        self._files = files
        self._supervisor: subprocess.Popen[str] | None = None
        self.processes = NodeProcesses(directory)

    @property
    def ports(self) -> list[int]:
        """The AMQP ports of all nodes."""
        return [self.base_port + index for index in range(self.count)]

    @property
    def urls(self) -> list[str]:
        """The same, as clients take them."""
        return [f"amqp://guest:guest@127.0.0.1:{port}/" for port in self.ports]

    def url(self, name: str) -> str:
        """Where clients reach one node."""
        return self.urls[int(name.removeprefix("node-")) - 1]

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> LocalCluster:
        """Start, and wait for ``cluster ready``. Raises RuntimeError if that does not come."""
        self.directory.parent.mkdir(parents=True, exist_ok=True)
        log = self.directory.with_name(self.directory.name + ".err")
        self.hosts.start()
        with log.open("ab") as errors:
            self._supervisor = subprocess.Popen(
                [
                    *(sys.executable, "-m", "broker_plugin.cli.main", "cluster", "--dir", str(self.directory)),
                    *("--nodes", str(self.count), "--base-port", str(self.base_port), *self._options),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
                preexec_fn=partial(limit_files, self._files) if self._files is not None else None,
            )
        assert self._supervisor.stdout is not None
        line = self._supervisor.stdout.readline()
        if line.strip() != "cluster ready":
            self.stop()
            raise RuntimeError(f"the cluster did not start: {log.read_text()[-500:]}")
        return self

    def stop(self) -> None:
        """End every process, cleanly if possible."""
        processes = [p for p in (self._supervisor, *self.processes.added()) if p is not None]
        for process in processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._supervisor = None
        self.processes.forget()
        self.hosts.stop()

    def status(self) -> list[dict[str, Any]]:
        """What ``txha status --json`` says; asked from here, since a process for each question would cost half a second
        of a processor, many times a second."""
        try:
            return [node_status(entry) for entry in read_cluster(self.directory)]
        except ClusterError:
            return []

    def primary(self) -> str | None:
        """The name of the active primary."""
        active = [node for node in self.status() if node["state"] == "active"]
        return max(active, key=lambda node: node["generation"])["name"] if active else None

    def backups(self) -> list[str]:
        """The names of the backups that are ready."""
        return [node["name"] for node in self.status() if node["state"] == "ready"]

    def all_ready(self) -> bool:
        """Whether there is a primary and every other node is a ready backup."""
        return sorted(node["state"] for node in self.status()) == ["active"] + ["ready"] * (self.count - 1)

    def state(self, name: str) -> str:
        """The state of one node."""
        return next((node["state"] for node in self.status() if node["name"] == name), "down")

    def pid(self, name: str) -> int:
        """The process of a node. Raises LookupError if it does not run."""
        return self.processes.pid(name)

    @contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """SIGSTOP, and SIGCONT in the end if it lives by then."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if self.processes.runs_as(name, pid):
                os.kill(pid, signal.SIGCONT)

    def kill(self, name: str) -> float:
        """SIGKILL; returns the monotonic time of it, when the end of the process has been noticed."""
        pid = self.pid(name)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        wait_until(lambda: not self.processes.runs_as(name, pid), START_SECONDS, f"the end of {name}")
        return killed

    def promote(self, name: str) -> None:
        """``txha promote`` of a ready backup. Raises CalledProcessError where that is refused."""
        command = [sys.executable, "-m", "broker_plugin.cli.main", "promote", "--dir", str(self.directory), name]
        subprocess.run(command, check=True)

    def start_node(
        self,
        name: str,
        environment: dict[str, str] | None = None,
        settings: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        """Start a node anew, by itself, with ``settings`` as ``--set`` takes them; ``log`` gets what it says.

        Raises TimeoutError if it has not ended.
        """
        wait_until(lambda: not self.processes.runs(name), START_SECONDS, f"the end of {name}")
        with (log or self.directory / name / "node.log").open("ab") as output:
            process = subprocess.Popen(
                self.node_command(name, settings),
                stdout=output,
                stderr=output,
                env={**self._environment, **(environment or {})},
                start_new_session=True,
            )
        self.processes.add(name, process)

    def node_command(self, name: str, settings: Sequence[str] = ()) -> list[str]:
        """How one node is run by itself."""
        options = [*self.hosts.options, *(word for setting in settings for word in ("--set", setting))]
        config = self.directory / name / "node.toml"
        return [sys.executable, "-m", "broker_plugin.cli.main", "node", "--config", str(config), *options]

    def wait_state(self, name: str, state: str, seconds: float = START_SECONDS) -> None:
        """Wait until a node is in this state. Raises TimeoutError."""
        wait_until(lambda: self.state(name) == state, seconds, f"the state {state} of {name}", every=0.05)


def keeps_users(cluster: LocalCluster) -> bool:
    """Whether the users of its nodes' files have become the cluster's: that step has a number, as a call has."""
    nodes = [cluster.directory / f"node-{number + 1}" for number in range(cluster.count)]
    try:
        return all(ask(node, "users.list", {}, 10.0) for node in nodes)
    except AdminError:
        return False
