"""A cluster whose nodes are processes of the suite itself, with a network, disk and clock that it can tamper with."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from broker_plugin.cli.cluster.cluster import found_if_new
from broker_plugin.cli.cluster.plan import plan_cluster
from broker_plugin.cli.layout import COORDINATION_FILE, read_cluster
from broker_plugin.coordination.address import in_file
from ha.membership.record import CoordinationError, Record
from python_tests.harness.cluster import START_SECONDS, LocalCluster
from python_tests.harness.stress.clock import FakeClock
from python_tests.harness.stress.disk import SmallDisk
from python_tests.harness.stress.members import Members
from python_tests.harness.stress.network import Network
from python_tests.harness.stress.syncs import Disks, together
from python_tests.harness.waiting import wait_until
from recovery.reader.node_admin import AdminError, ask

USER = "stress"
"""Who logs in, and the password. It is not guest, who comes over loopback only: nodes have networks of their own."""
PATIENCE = 0.5
"""Seconds within which a node that is well answers its administration"""


class StressCluster(LocalCluster):
    """``small``: index of the node whose directory is a small disk; None for none. ``clock``: None for the true one;
    ``disks``: None for those of the machine as they are. ``members``: the etcd that keeps its record; None for a file.

    A context manager, to be entered from the thread that lives longest: nodes end with the thread that started them.
    """

    def __init__(
        self,
        directory: Path,
        nodes: int,
        network: Network,
        settings: Sequence[str] = (),
        small: int | None = None,
        clock: FakeClock | None = None,
        disks: Disks | None = None,
        members: Members | None = None,
    ) -> None:
        super().__init__(directory, nodes)
        self.members = members
        self.names = [f"node-{index + 1}" for index in range(nodes)]
        self.network = network
        self.clock = clock
        self.disks = disks
        self.small = None if small is None else self.names[small]
        self.disk = SmallDisk(directory / self.names[small]) if small is not None else None
        self._users = directory.with_name(f"{directory.name}-users.toml")
        self._settings = [f"amqp.users_file={self._users}", *settings]
        if small is not None:  # what a full disk does is wanted, not the alarm before it
            self._settings.insert(0, "store.disk_free_bytes=0")
        self._identifier = ""
        self._mounted = False

    @property
    def urls(self) -> list[str]:
        """Of all nodes, as clients take them."""
        hosts = [self.network.host(index) for index in range(self.count)]
        return [f"amqp://{USER}:{USER}@{host}:{port}/" for host, port in zip(hosts, self.ports, strict=True)]

    def start(self) -> StressCluster:
        """Start, and wait until every node is ready.

        Raises TimeoutError, NetworkError, and what ``plan_cluster`` raises.
        """
        try:
            self.network.open()
            self._write_users()
            plan = plan_cluster(self.directory, self.count, self.base_port, self._settings, self.network)
            if self.members is not None:
                plan = self.members.keeping_the_record(plan)
            self._identifier = plan.identifier
            plan.write()
            if self.disk is not None:
                self.disk.mount()
                self._mounted = True
            self.network.start_proxies()
            if self.members is not None:
                self.members.start()
            found_if_new(plan, self._settings)
            for name in self.names:
                self.start_node(name)
            wait_until(self.all_ready, START_SECONDS, "a cluster with all nodes ready", every=0.1)
        except BaseException:
            self.stop()
            raise
        return self

    def _write_users(self) -> None:
        self._users.parent.mkdir(parents=True, exist_ok=True)
        self._users.touch(mode=0o600)
        self._users.write_text(f'{USER} = "{USER}"\n')

    def __enter__(self) -> StressCluster:
        return self.start()

    def stop(self) -> None:
        """End every node, and take away what was made for them."""
        super().stop()
        if self.members is not None:
            self.members.stop()
        if self.disk is not None and self._mounted:
            self._mounted = False
            self.disk.unmount()
        self.network.close()

    def node_command(self, name: str, settings: Sequence[str] = ()) -> list[str]:
        """How one node is run: where its network is, and never longer than the suite."""
        command = super().node_command(name, [*self._settings, *settings])
        return [*self.network.command(self.index(name)), *command, "--with-parent", str(os.getpid())]

    def start_node(
        self,
        name: str,
        environment: dict[str, str] | None = None,
        settings: Sequence[str] = (),
        log: Path | None = None,
    ) -> None:
        """As ``LocalCluster.start_node``; by the node's own clock, and with a log that no small disk can fill."""
        super().start_node(name, {**self._tampered(name), **(environment or {})}, settings, log or self.log_of(name))

    def _tampered(self, name: str) -> dict[str, str]:
        """What a node needs in its environment for its clock and its disk."""
        clock = self.clock.environment(name) if self.clock is not None else {}
        disk = self.disks.environment(name, self.directory / name) if self.disks is not None else {}
        return together(disk, clock)

    def log_of(self, name: str) -> Path:
        """What a node said."""
        return self.directory / f"{name}.log"

    def said(self, name: str) -> int:
        """How much a node has said so far, in bytes."""
        path = self.log_of(name)
        return path.stat().st_size if path.exists() else 0

    def said_since(self, name: str, before: int) -> str:
        """What a node has said since it had said so much."""
        with self.log_of(name).open("rb") as log:
            log.seek(before)
            return log.read().decode(errors="replace")

    @property
    def record(self) -> Path:
        """The coordination file."""
        return self.directory / COORDINATION_FILE

    def recover(self, *options: str) -> subprocess.CompletedProcess[str]:
        """``txha recover`` with the directories of all nodes; none of them may run."""
        directories = [str(self.directory / name) for name in self.names]
        command = [sys.executable, "-m", "broker_plugin.cli.main", "recover", *options, "--json", *directories]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def index(self, name: str) -> int:
        """The index of a node."""
        return self.names.index(name)

    def status(self) -> list[dict[str, Any]]:
        """What each node says of itself, in the order of the nodes; one that says nothing is ``down``."""
        return [self._status(index, entry.directory) for index, entry in enumerate(read_cluster(self.directory))]

    def in_the_record(self) -> str | None:
        """The node that the coordination record names as primary now."""
        record = self._read_record()
        return record.primary.node if record is not None and record.primary is not None else None

    def ready_in_the_record(self) -> list[str]:
        """The nodes of the ready set now."""
        record = self._read_record()
        return [] if record is None else [member.node for member in record.ready]

    def _read_record(self) -> Record | None:
        if self.members is None and not self.record.exists():
            return None  # to open it would make it
        kept = in_file(self.record) if self.members is None else self.members.record
        store = kept.open(self._identifier)
        try:
            return store.read()
        except CoordinationError:
            return None
        finally:
            store.close()

    def _status(self, index: int, directory: Path) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.network.call(index, lambda: ask(directory, "status", timeout=PATIENCE))
            return found
        except AdminError:
            return {"name": self.names[index], "state": "down", "generation": 0}
