"""A node by itself, wired as the process does, whose actions are real: its files, hooks and listeners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker_plugin.admin.server import Handler
from broker_plugin.node.calls.actions import FlagAction, LogLevel, NodeAction
from broker_plugin.node.calls.admin import CallsAdmin
from broker_plugin.node.calls.hooks import Hooks
from broker_plugin.node.calls.kept_file import FileOwner
from broker_plugin.node.calls.listeners import ListenerAddress, Listeners
from broker_plugin.node.calls.surroundings import NodeSurroundings, actions_file, calls_file, local_calls
from broker_plugin.node.shell import CLOCKS
from tests.broker_plugin.coordination.test_stale_answers import ServedByShell

HOOK = '#!/bin/sh\nDIR={}\necho "$HOOK_UNDO:$*" >> $DIR/ran\n[ ! -e $DIR/fails ] || {{ cat $DIR/fails; exit 1; }}\n'


class CallsNode(ServedByShell):
    """Hook ``h`` writes its arguments into ``ran``, and fails while there is a file ``fails``."""

    def __init__(self, directory: Path, listeners: dict[str, ListenerAddress] | None = None) -> None:
        super().__init__(directory)
        directory.mkdir(exist_ok=True)
        self.clocks = CLOCKS
        hook = directory / "hook"
        hook.write_text(HOOK.format(directory))
        hook.chmod(0o755)
        owner = FileOwner("0" * 32, "a", "1")
        self.listeners = Listeners(self.guard, listeners or {}, 0.05)
        actions: dict[str, NodeAction] = {
            "log_level": LogLevel("warning"),
            "listener": self.listeners,
            "hook": Hooks({"h": hook}, 20.0, directory, {}),
            "flag": FlagAction(),
        }
        self.calls = calls_file(directory, owner)
        self.in_force = actions_file(directory, owner)
        self.surroundings = NodeSurroundings(self.guard, actions, self.calls, self.in_force, 0.05)
        self.local_calls = local_calls(self.calls, owner)
        self.surroundings.load()

    def after(self, former: CallsNode) -> CallsNode:
        """The next process of a node that has ended."""
        self.coordination = former.coordination
        return self

    def handlers(self) -> dict[str, Handler]:
        self.surroundings.answers = self.parts.shell.interpreter
        return CallsAdmin(self.parts.core, self.parts.shell, self.surroundings, 1).handlers

    def stop(self) -> None:
        self.call(self.parts.shell.stop)
        self.call(self.surroundings.stop)
        super().stop()

    def ask(self, command: str, **arguments: Any) -> Any:
        """The result, or the sentence of a refusal."""
        answer = self.administer(f"calls.{command}", **arguments)
        return answer["result"] if answer["ok"] else answer["error"]

    def make(self, operation: str, timeout: float = 8.0, **arguments: Any) -> Any:
        """A call; each argument is a text or a list of texts."""
        given = {key: each if isinstance(each, list) else [each] for key, each in arguments.items()}
        return self.ask("call", operation=operation, arguments=given, timeout=timeout)

    @property
    def ran(self) -> list[str]:
        """What the hook was given, and before it whether it was undone."""
        path = self.directory / "ran"
        return path.read_text().splitlines() if path.exists() else []
