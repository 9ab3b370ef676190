"""The cluster of a storm: three nodes with a hook that says what it does, and what can be asked of them."""

from __future__ import annotations

import secrets
import socket
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from python_tests.harness.cluster import LocalCluster, free_base_port, keeps_users
from python_tests.harness.waiting import wait_until
from recovery.reader.node_admin import AdminError, ask

NAMES = [f"h{number}" for number in range(8)]
"""What the hook is called by: calls of one name take each other's place."""
HOOK = """#!/bin/sh
echo "$HOOK_CALL_ID $HOOK_UNDO $HOOK_NAME $1" >> {0}/ran.$HOOK_NODE
echo "$1" > {0}/$HOOK_NAME.$HOOK_NODE.new && mv {0}/$HOOK_NAME.$HOOK_NODE.new {0}/$HOOK_NAME.$HOOK_NODE
"""
LISTENERS = ["side", "far"]
"""Of each node, at ports of its own"""
FLAG = "calls"
OPEN, CLOSED, RAISED = "true", "false", "raised"
KEPT = 2000
READY_SECONDS = 60.0
Row = dict[str, Any]


class Ran(NamedTuple):
    """A line of the hook: for which call, whether to undo it, and what it was about."""

    call: str
    undo: bool
    name: str
    argument: str


class NotThere(Exception):
    """The node does not run: nothing was asked of it."""


class StormSite:
    """A context manager; ``directory`` holds all of it."""

    def __init__(self, directory: Path) -> None:
        hook = directory / "hook"
        hook.write_text(HOOK.format(directory))
        hook.chmod(0o755)
        hooks = [f"hooks.{name}={hook}" for name in NAMES]
        self.settings = [*hooks, f"calls_kept={KEPT}", "timing.call_retry=0.2", "log_level=warning"]
        self.directory = directory
        options = [word for setting in self.settings for word in ("--set", setting)]
        self.cluster = LocalCluster(directory / "cluster", 3, *options)
        self.nodes = [f"node-{number}" for number in (1, 2, 3)]
        places = [(node, name) for node in self.nodes for name in LISTENERS]
        first = free_base_port(len(places))
        self.ports = {place: first + number for number, place in enumerate(places)}

    def __enter__(self) -> StormSite:
        self.cluster.start()  # it writes the nodes' own files, in which listeners have their addresses
        self.cluster.stop()
        for node in self.nodes:
            with (self.cluster.directory / node / "node.toml").open("a") as file:
                for name in LISTENERS:
                    file.write(f'\n[listeners.{name}]\nhost = "127.0.0.1"\nport = {self.ports[node, name]}\n')
        self.cluster.start()
        try:
            self.wait_ready()
            wait_until(lambda: keeps_users(self.cluster), READY_SECONDS, "the cluster's users")
        except BaseException:
            self.cluster.stop()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.cluster.stop()

    def wait_ready(self) -> None:
        """All nodes. Raises TimeoutError."""
        wait_until(self.cluster.all_ready, READY_SECONDS, "all nodes ready")

    def kill_and_start(self, node: str) -> None:
        """SIGKILL, and the node again. Raises LookupError where it does not run."""
        self.cluster.kill(node)
        self.start(node)

    def start(self, node: str) -> None:
        """After its end."""
        self.cluster.start_node(node, settings=self.settings)

    def ask(self, node: str, command: str, seconds: float = 10.0, **arguments: Any) -> Any:
        """Raises AdminError."""
        return ask(self.cluster.directory / node, f"calls.{command}", arguments, seconds)

    def make(self, node: str, operation: str, given: dict[str, list[str]], need: int | str, seconds: float) -> Row:
        """A call under an id that is drawn here; ``no answer`` where the node is lost meanwhile.

        Raises NotThere if the node cannot have been asked.
        """
        drawn = secrets.token_hex(16)
        asked = {"operation": operation, "arguments": given, "succeed_num": need, "timeout": seconds, "id": drawn}
        try:
            answer: Row = self.ask(node, "call", seconds + 10.0, **asked)
        except AdminError as error:
            if str(error) == f"{node} does not run":
                raise NotThere(node) from error
            answer = {"result": "no answer", "reason": str(error)}
        return {**answer, "id": drawn}

    def settled(self) -> bool:
        """Whether all nodes have run all calls, and nothing that one has begun is left."""
        try:
            found = [self.ask(node, "status") for node in self.nodes]
        except AdminError:
            return False
        last = {each["own"]["last"] for each in found}
        return len(last) == 1 and all(not each["own"]["begun"] and not each["own"]["behind"] for each in found)

    def ran(self, node: str) -> list[Ran]:
        """What the hook did on this node, in order."""
        path = self.directory / f"ran.{node}"
        lines = path.read_text().splitlines() if path.exists() else []
        return [Ran(call, undo == "1", name, argument) for call, undo, name, argument in map(_four, lines)]

    def in_force(self, node: str) -> dict[str, str]:
        """What the hooks have made of this node, its level, which listeners take connections, which flag is raised."""
        found: dict[str, str] = defaultdict(str)
        for name in NAMES:
            path = self.directory / f"{name}.{node}"
            found[name] = path.read_text().strip() if path.exists() else ""
        status = self.ask(node, "status")
        found["log_level"] = str(status["in_force"].get("log_level", {}).get("", {}).get("level", ""))
        found[FLAG] = RAISED if status["flags"][FLAG] else ""
        for name in LISTENERS:
            found[name] = OPEN if _takes_connections(self.ports[node, name]) else CLOSED
        return dict(found)


def _takes_connections(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 5.0):
            return True
    except ConnectionRefusedError:
        return False


def _four(line: str) -> list[str]:
    return [*line.split(" "), "", ""][:4]
