"""A node that is asked for definitions, users and rules, on a state that imports change."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from broker_plugin.node.audited_changes import AuditedChanges
from broker_plugin.node.definitions_admin import DefinitionsAdmin
from broker_plugin.node.rule_admin import RuleAdmin
from broker_plugin.node.user_admin import UserAdmin
from tests.broker_plugin.definitions.held import Held
from txobserver.events import Configure
from txobserver.ids import Member


class HeldNode:
    """``before``: what comes into the stream between the asking and the next change."""

    def __init__(self, logins: Any = "there") -> None:
        self.held = Held()
        self.before: list[Configure] = []
        self.says: str | None = None
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self._core: Any = SimpleNamespace(
            member=Member("b", "1"),
            replica=SimpleNamespace(contents=self.held.contents),
            settings=SimpleNamespace(calls_kept=10),
            configure=self._configure,
        )
        changes = AuditedChanges(self._core, lambda call: call(), logins)
        self.handlers = (
            DefinitionsAdmin(self._core, changes).handlers | UserAdmin(changes).handlers | RuleAdmin(changes).handlers
        )

    def _configure(self, step: Configure, done: Any) -> None:
        for other in self.before:
            assert self.held.do(other).refusal is None
        self.before.clear()
        done(self.says or self.held.do(step).refusal)

    async def handle(self, command: str, arguments: dict[str, Any]) -> Any:
        self.asked.append((command, arguments))
        return await self.handlers[command](arguments)

    def ask(self, command: str, arguments: dict[str, Any]) -> Any:
        return asyncio.run(self.handle(command, arguments))
