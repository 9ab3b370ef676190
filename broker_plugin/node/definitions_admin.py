"""What an operator's command and the HTTP door ask of definitions: all that there is, and to carry out an import."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from broker_plugin.admin.server import CommandRefused, Handler
from broker_plugin.definitions.found import titled
from broker_plugin.definitions.state import DefinitionsHeld, packed_state, unpacked_steps
from broker_plugin.node.audited_changes import AuditedChanges
from ha.core import NodeCore
from txobserver.access import PUT_USER
from txobserver.batch import EVERYTHING, LOAD, check_asked, parts_of
from txobserver.configuration import BIND, DECLARE_EXCHANGE, DECLARE_QUEUE, BindingSpec
from txobserver.definitions import Trial
from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rules import rule_of
from txobserver.vhosts import parts_of as name_of

LOOK = "txha definitions export"
REASONS = {
    Refusal.GONE: "there is no such user",
    Refusal.NO_VHOST: "there is no such virtual host",
    Refusal.GOING: "it is being deleted",
    Refusal.EXISTS: "it is there already, and declared otherwise",
    Refusal.NO_SOURCE: "there is no such exchange",
    Refusal.NO_DESTINATION: "what it leads to is not there",
    Refusal.TOO_MANY: "the cluster can keep no more",
}


class DefinitionsAdmin:
    """``changes``: how an import comes into the stream."""

    def __init__(self, core: NodeCore, changes: AuditedChanges) -> None:
        self._core = core
        self._changes = changes

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the names of the commands."""
        return {"definitions.state": self._state, "definitions.load": self._load}

    async def _state(self, arguments: dict[str, Any]) -> Any:
        access, there = self._changes.kept(), self._core.replica.contents.configuration
        declared = list(there.queues.values()), list(there.exchanges.values()), list(there.bindings)
        held = DefinitionsHeld(list(access.users.values()), list(access.rules.values()), *declared)
        return {"state": await asyncio.to_thread(packed_state, held)}

    async def _load(self, arguments: dict[str, Any]) -> Any:
        try:
            step = await asyncio.to_thread(_asked, arguments.get("steps"))
            parts = parts_of(step)
        except (ValueError, msgspec.MsgspecError) as error:
            raise CommandRefused(f"these are no steps of an import: {error}") from None
        await self._changes.change("definitions", step, arguments, lambda error: self._sentence(step, error), LOOK)
        return {"steps": len(parts)}

    def _sentence(self, step: Configure, error: str) -> str:
        """Why nothing was imported, and for which part, if it can be told still."""
        if error not in REASONS:
            return error
        contents = self._core.replica.contents
        trial = Trial(contents.configuration, contents.access)
        parts = parts_of(step)
        trial.carry_out(parts)
        if trial.failed is None:
            return f"nothing was imported: {error} at that moment; import again"
        return f"nothing was imported: {_title(parts[trial.failed.part])}: {REASONS[trial.failed.refusal]}"


def _asked(steps: Any) -> Configure:
    """Raises ValueError, MsgspecError."""
    step = Configure(0, LOAD, EVERYTHING, unpacked_steps(steps))
    check_asked(step)
    return step


def _title(part: Configure) -> str:
    if part.operation == PUT_USER:
        return titled("user", part.name)
    if part.operation == BIND:
        spec = msgspec.msgpack.decode(part.arguments, type=BindingSpec)
        vhost, source = name_of(spec.source)
        return titled(f"binding of {name_of(spec.destination)[1]!r} to", source, vhost)
    if part.operation in (DECLARE_QUEUE, DECLARE_EXCHANGE):
        vhost, name = name_of(part.name)
        return titled(part.operation.partition(".")[0], name, vhost)
    rule = rule_of(part)
    kind, vhost = part.operation.partition(".")[0].replace("_", " "), rule.vhost if rule is not None else ""
    return titled(f"{kind} of" if kind != "policy" else kind, part.name, vhost or "/")
