"""``txha cluster``: a supervisor of local nodes, in the foreground."""

from __future__ import annotations

import contextlib
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import IO, Any

from broker_plugin.admin.client import AdminError, ask
from broker_plugin.cli.layout import (
    CLUSTER_FILE,
    CONFIG_FILE,
    COORDINATION_FILE,
    LOG_FILE,
    ClusterError,
    NodeEntry,
    cluster_id,
    free_ports,
    port_is_free,
    read_cluster,
    write_cluster,
)
from broker_plugin.node.config import load_config, parse_settings

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.1
STATE_MARKS = (" state ", " following ", " stepping down", " is ready", " out of the ready set", " ERROR ")


def run_cluster(directory: Path, count: int, base_port: int, restart: bool, settings: list[str]) -> int:
    """Run the cluster until a signal comes; returns the exit status. Raises ClusterError, ConfigError."""
    supervisor = Supervisor(directory, count, base_port, restart, settings)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, supervisor.stop)
    return supervisor.run()


class Supervisor:
    """Starts the nodes, watches them, ends them."""

    def __init__(self, directory: Path, count: int, base_port: int, restart: bool, settings: list[str]) -> None:
        self._directory = directory.absolute()
        self._count = count
        self._base_port = base_port
        self._restart = restart
        self._settings = settings
        self._identifier = ""
        self._entries: list[NodeEntry] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = threading.Event()

    def stop(self, signum: int, frame: FrameType | None) -> None:
        """A signal came: end everything."""
        self._stopping.set()

    def run(self) -> int:
        """Start, announce, watch, end."""
        self._prepare()
        try:
            for entry in self._entries:
                self._start(entry)
            self._write()
            announced = False
            while not self._stopping.wait(POLL_SECONDS):
                if failed := self._look_after():
                    return failed
                if not announced and self._all_ready():
                    announced = True
                    print("cluster ready", flush=True)
            return 0
        finally:
            self._end()

    # -- the directory

    def _prepare(self) -> None:
        """Check everything, then write what is missing."""
        resumed = (self._directory / CLUSTER_FILE).exists()
        if self._directory.exists() and not resumed and any(self._directory.iterdir()):
            raise ClusterError(f"{self._directory} is not empty and holds no cluster; choose another directory")
        ports = [self._base_port + index for index in range(self._count)]
        for port in ports:
            if not 0 < port < 65536 or not port_is_free(port):
                raise ClusterError(f"port {port} is in use or out of range; choose another --base-port")
        if resumed:
            self._resume(ports)
        else:
            self._create(ports)

    def _resume(self, ports: list[int]) -> None:
        found = read_cluster(self._directory)
        if len(found) != self._count:
            raise ClusterError(f"{self._directory} holds a cluster of {len(found)} nodes; give --nodes {len(found)}")
        self._identifier = cluster_id(self._directory) or ""
        self._entries = [
            NodeEntry(entry.name, None, port, self._directory / entry.name)
            for entry, port in zip(found, ports, strict=True)
        ]
        self._write_configs()

    def _create(self, ports: list[int]) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(f"cannot make {self._directory}: {error.strerror}") from error
        self._identifier = f"local-{secrets.token_hex(6)}"
        names = [f"node-{index + 1}" for index in range(self._count)]
        self._entries = [
            NodeEntry(name, None, port, self._directory / name) for name, port in zip(names, ports, strict=True)
        ]
        self._write_configs()
        self._write()

    def _write_configs(self) -> None:
        peer_ports = free_ports(self._count, {entry.amqp_port for entry in self._entries})
        for entry, peer_port in zip(self._entries, peer_ports, strict=True):
            others = [
                f'[[peers]]\nname = "{other.name}"\nhost = "127.0.0.1"\nport = {port}\n'
                for other, port in zip(self._entries, peer_ports, strict=True)
                if other is not entry
            ]
            text = (
                f'name = "{entry.name}"\ncluster = "{self._identifier}"\ndir = "{entry.directory}"\n'
                f'coordination = "{self._directory / COORDINATION_FILE}"\n\n'
                f'[amqp]\nhost = "127.0.0.1"\nport = {entry.amqp_port}\n\n'
                f'[peer]\nhost = "127.0.0.1"\nport = {peer_port}\n\n' + "\n".join(others)
            )
            entry.directory.mkdir(exist_ok=True)
            (entry.directory / CONFIG_FILE).write_text(text)
            load_config(entry.directory / CONFIG_FILE, parse_settings(self._settings))

    def _write(self) -> None:
        write_cluster(self._directory, self._identifier, self._entries)

    # -- the processes

    def _start(self, entry: NodeEntry) -> None:
        (entry.directory / "admin.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "broker_plugin.cli.main", "node", "--with-parent"]
        command += ["--config", str(entry.directory / CONFIG_FILE)]
        for setting in self._settings:
            command += ["--set", setting]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        assert process.stdout is not None
        threading.Thread(target=self._copy_log, args=(entry, process.stdout), daemon=True).start()
        self._processes[entry.name] = process
        entry.pid = process.pid

    def _copy_log(self, entry: NodeEntry, stream: IO[bytes]) -> None:
        """Everything to the node's log file; changes of state to the terminal as well."""
        with (entry.directory / LOG_FILE).open("ab", buffering=0) as file:
            for line in stream:
                file.write(line)
                text = line.decode(errors="replace").rstrip()
                if any(mark in text for mark in STATE_MARKS) or text.startswith("txha: "):
                    print(f"[{entry.name}] {text}", file=sys.stderr, flush=True)

    def _look_after(self) -> int:
        """Notice the dead; start them again if that was asked for. A node that refuses its configuration ends all."""
        for entry in self._entries:
            process = self._processes[entry.name]
            status = process.poll()
            if status is None or entry.pid is None:
                continue
            if status == 2:
                print(f"txha: {entry.name} could not start, see {entry.directory / LOG_FILE}", file=sys.stderr)
                return 2
            print(f"[{entry.name}] ended with status {status}", file=sys.stderr, flush=True)
            if self._restart:
                self._start(entry)
            else:
                entry.pid = None
            self._write()
        return 0

    def _all_ready(self) -> bool:
        states = []
        for entry in self._entries:
            try:
                answer: dict[str, Any] = ask(entry.directory, "status", timeout=0.5)
            except AdminError:
                return False
            states.append(answer["state"])
        return sorted(states) == sorted(["active"] + ["ready"] * (len(states) - 1))

    def _end(self) -> None:
        """SIGTERM for all, patience, then SIGKILL."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
                process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + GRACE_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for entry in self._entries:
            entry.pid = None
        if self._entries and (self._directory / CLUSTER_FILE).exists():
            self._write()
