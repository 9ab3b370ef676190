"""``txha cluster``: a supervisor of local nodes, in the foreground."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from broker_plugin.cli.cluster.init import found_cluster
from broker_plugin.cli.cluster.plan import ClusterPlan, plan_cluster
from broker_plugin.cli.echo import Echo
from broker_plugin.cli.layout import CONFIG_FILE, LOG_FILE, NodeEntry, write_cluster
from broker_plugin.coordination.coordination_process import MODULE
from broker_plugin.node.config import NodeConfig, load_config, parse_settings
from ha.membership.record import CoordinationError
from recovery.reader.node_admin import AdminError, ask
from recovery.store.aside import PARTS

GRACE_SECONDS = 5.0
POLL_SECONDS = 0.1
SHORT_LIFE_SECONDS = 2.0
PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 5.0
REFUSED = 2
NODE_COMMAND = (*MODULE, "broker_plugin.cli.main", "node")


def run_cluster(
    directory: Path,
    count: int,
    base_port: int,
    restart: bool,
    settings: list[str],
    node_command: Sequence[str] = NODE_COMMAND,
    http_port: int | None = None,
) -> int:
    """Run the cluster until a signal comes; returns the exit status. Raises ClusterError, ConfigError, StoreError."""
    plan = plan_cluster(directory, count, base_port, settings, http_port=http_port)
    plan.write()
    found_if_new(plan, settings)
    supervisor = Supervisor(plan, restart, settings, node_command)
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, supervisor.stop)
    return supervisor.run()


def found_if_new(plan: ClusterPlan, settings: list[str]) -> None:
    """Found a cluster whose cluster.json says that it is not: an earlier command may have been killed before it had.

    Raises ConfigError, StoreError. A node makes its store when there is a record. So if another node has one, there was
    a record, and it was lost: then nothing is founded, and the nodes say what to do.
    """
    if plan.resumed:
        return
    config = load_config(plan.entries[0].directory / CONFIG_FILE, parse_settings(settings))
    others = [entry.directory / part for entry in plan.entries[1:] for part in PARTS]
    if not _has_record(config) and not any(path.exists() for path in others):
        found_cluster(config)
    with contextlib.suppress(OSError):  # the record says so, too
        write_cluster(plan.directory, plan.identifier, plan.entries)


def _has_record(config: NodeConfig) -> bool:
    """Also one that cannot be read: the nodes say more of it."""
    coordination = config.coordination.open(config.cluster)
    try:
        return coordination.read() is not None
    except CoordinationError:
        return True
    finally:
        coordination.close()


@dataclass
class _Child:
    """A node's last process (None: there was none yet), and when it is to be started (monotonic, None: not at all)."""

    entry: NodeEntry
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    pause: float = PAUSE_SECONDS
    again: float | None = 0.0

    @property
    def refused(self) -> bool:
        """Whether its last process has ended because it must not run."""
        return self.process is not None and self.entry.pid is None and self.process.returncode == REFUSED


class Supervisor:
    """Starts the nodes, watches them, ends them."""

    def __init__(self, plan: ClusterPlan, restart: bool, settings: list[str], node_command: Sequence[str]) -> None:
        self._plan = plan
        self._restart = restart
        self._command = [*node_command, "--with-parent", str(os.getpid())]
        self._options = [word for setting in settings for word in ("--set", setting)]
        self._children: list[_Child] = []
        self._announced = False
        # A plain flag: an Event may be locked by the very thread that the signal's handler interrupts.
        self._stopping = False
        self._echo = Echo(sys.stderr.fileno(), {e.name: e.directory / LOG_FILE for e in plan.entries})

    def stop(self, signum: int, frame: FrameType | None) -> None:
        """A signal came: end everything."""
        self._stopping = True

    def run(self) -> int:
        """Start, announce, watch, end."""
        try:
            self._children = [_Child(entry) for entry in self._plan.entries]
            while not self._stopping:
                if self._look_after() and self._hopeless():
                    return REFUSED
                if not self._announced and self._all_ready():
                    self._announced = True
                    print("cluster ready", flush=True)
                time.sleep(POLL_SECONDS)
            return 0
        finally:
            self._end()

    def _start(self, entry: NodeEntry) -> subprocess.Popen[bytes]:
        """A new process of this node. It writes its log file itself."""
        with self._log_file(entry) as log:
            process = subprocess.Popen(
                [*self._command, "--config", str(entry.directory / CONFIG_FILE), *self._options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        entry.pid = process.pid
        return process

    def _log_file(self, entry: NodeEntry) -> IO[bytes]:
        try:
            return (entry.directory / LOG_FILE).open("ab")
        except OSError as error:  # a disk that is read-only now: the node has to meet it, not its supervisor
            self._echo.say(f"txha: {entry.directory / LOG_FILE} cannot be written: {error.strerror}")
            return Path(os.devnull).open("ab")

    def _look_after(self) -> bool:
        """Notice the dead, start again those that are due; returns whether anything has changed."""
        changed = False
        now = time.monotonic()
        for child in self._children:
            if child.entry.pid is not None and child.process and child.process.poll() is not None:
                self._has_ended(child, child.process.returncode, now)
                changed = True
            if child.again is not None and now >= child.again:
                self._start_again(child, now)
                changed = True
        if changed:
            self._write()
        return changed

    def _start_again(self, child: _Child, now: float) -> None:
        """If the machine has no process or memory for it, that is no reason to end the nodes that run."""
        try:
            child.process, child.started, child.again = self._start(child.entry), now, None
        except OSError as error:
            self._echo.say(f"txha: {child.entry.name} cannot be started: {error.strerror}; it is tried again")
            self._put_off(child, now)

    @staticmethod
    def _put_off(child: _Child, now: float) -> None:
        child.again = now + child.pause
        child.pause = min(2 * child.pause, LONGEST_PAUSE_SECONDS)

    def _has_ended(self, child: _Child, status: int, now: float) -> None:
        """With --restart a node comes back at once; one that keeps dying young comes back ever later."""
        entry = child.entry
        entry.pid = None
        self._echo.say(f"[{entry.name}] ended {_how(status)}")
        if status == REFUSED:
            self._echo.say(f"txha: {entry.name} refuses to run, see {entry.directory / LOG_FILE}")
        elif self._restart and now - child.started < SHORT_LIFE_SECONDS:
            self._put_off(child, now)
        elif self._restart:
            child.again, child.pause = now, PAUSE_SECONDS

    def _hopeless(self) -> bool:
        """Whether no node is left but those that refuse to run, or one refuses and the cluster is new.

        The nodes of a resumed cluster hold data: they go on without one whose disk is damaged.
        """
        refused = [child.refused for child in self._children]
        return all(refused) or (any(refused) and not self._plan.resumed and not self._announced)

    def _all_ready(self) -> bool:
        states = []
        for child in self._children:
            try:
                states.append(ask(child.entry.directory, "status", timeout=0.5)["state"])
            except AdminError:
                return False
        return sorted(states) == ["active"] + ["ready"] * (len(states) - 1)

    def _write(self) -> None:
        plan = self._plan
        try:
            write_cluster(plan.directory, plan.identifier, plan.entries)
        except OSError as error:  # a full disk here is no reason to end nodes that may be well
            self._echo.say(f"txha: {plan.directory} cannot be written: {error.strerror}")

    def _end(self) -> None:
        """SIGTERM for all, patience, then SIGKILL."""
        started = [(child.entry, child.process) for child in self._children if child.process]
        for _, process in started:
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        deadline = time.monotonic() + GRACE_SECONDS
        for entry, process in started:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._echo.say(f"[{entry.name}] does not end, killing it")
                process.kill()
                process.wait()
            entry.pid = None
        self._write()
        self._echo.end()


def _how(status: int) -> str:
    """The end of a process in words. A negative status is a signal, as in ``subprocess``."""
    return f"by signal {-status}" if status < 0 else f"with status {status}"
