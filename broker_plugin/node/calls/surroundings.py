"""The surroundings of a node: runs actions beside the event loop, and keeps durably what is in force here.

Two files stand in the node's directory. ``calls.json`` holds what the core wants kept (``LocalCalls``): the cursor, and
the intent of a call that was begun here. ``actions.json`` holds the arguments of each (operation, name) that are in
force on this machine. An action has succeeded when both it and that file are done.

What cannot be written is tried again every ``call_retry`` seconds: until a cursor is durable the node begins nothing
else, and serves its clients meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import msgspec

from broker_plugin.guard import Guard
from broker_plugin.logs.events import ActionNotRun, CallsNotKept
from broker_plugin.logs.formats import tell
from broker_plugin.node.calls.actions import ActionContext, ActionFailed, NodeAction
from broker_plugin.node.calls.kept_file import FileOwner, KeptFile
from ha.effects import KeepCalls, ReadAction, RunAction
from ha.interpreter import Interpreter
from txobserver.actions import SHIPPED
from txobserver.calls import LocalCalls

log = logging.getLogger("txha.calls")
CALLS_FILE = "calls.json"
ACTIONS_FILE = "actions.json"
NOTHING_IN_FORCE = b""
"""What was before the first call of a name: the node's own file counts. An aborted call leaves nothing that would
overrule it (``aborted_call_overrules_the_nodes_file``)."""


class InForce(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of the last action on ``name`` that has succeeded on this machine."""

    operation: str
    name: str
    version: int
    arguments: bytes


def calls_file(directory: Path, owner: FileOwner) -> KeptFile[LocalCalls]:
    """What the core wants kept."""
    return KeptFile(
        directory / CALLS_FILE,
        owner,
        LocalCalls,
        "this node then runs all calls that are kept again, and one that it had begun itself is not undone here",
    )


def actions_file(directory: Path, owner: FileOwner) -> KeptFile[list[InForce]]:
    """What is in force."""
    return KeptFile(
        directory / ACTIONS_FILE,
        owner,
        list[InForce],
        "this node then takes its configuration for what is in force, until it is called again",
    )


def local_calls(file: KeptFile[LocalCalls], owner: FileOwner) -> LocalCalls:
    """What was kept. A cursor is of a store: a node with a new one has run nothing (``wiped_store_inherits_cursor``).

    An intent is of the machine, whose surroundings hold what was begun. Raises StoreError.
    """
    found = file.read()
    if found is None:
        return LocalCalls()
    whose, local = found
    return local if whose == owner else LocalCalls(intent=local.intent)


class NodeSurroundings:
    """Implements ``ha.interpreter.Surroundings``. ``answers`` is the interpreter; ``actions`` by operation.

    ``running``: the action that runs, for people.
    """

    def __init__(
        self,
        guard: Guard,
        actions: Mapping[str, NodeAction],
        calls: KeptFile[LocalCalls],
        in_force: KeptFile[list[InForce]],
        retry: float,
    ) -> None:
        self.answers: Interpreter
        self.running: str | None = None
        self._guard = guard
        self._actions = actions
        self._calls = calls
        self._file = in_force
        self._retry = retry
        self._in_force: dict[tuple[str, str], InForce] = {}
        self._tasks: set[asyncio.Task[object]] = set()
        self._said = ""
        self._complained: tuple[bytes, bool, str] | None = None

    def load(self) -> None:
        """Read what is in force, and do again what has gone with the node's former process. Raises StoreError."""
        found = self._file.read()
        for each in found[1] if found is not None else ():
            self._in_force[each.operation, each.name] = each
            action = self._actions.get(each.operation)
            if action is not None and SHIPPED.refusal(each.operation, each.version, each.arguments, each.name) is None:
                action.restore(each.name, _decoded(each.operation, each.version, each.arguments))

    def stop(self) -> None:
        """The node ends: what runs is ended, and its call is gone on with when the node starts."""
        for task in self._tasks:
            task.cancel()
        for action in self._actions.values():
            action.stop()

    def shown(self) -> dict[str, dict[str, Any]]:
        """What is in force, by operation and name, as people read it."""
        found: dict[str, dict[str, Any]] = {}
        for (operation, name), each in sorted(self._in_force.items()):
            said = msgspec.json.decode(SHIPPED.shown(operation, each.version, each.arguments))
            found.setdefault(operation, {})[name] = said
        return found

    def amiss(self) -> dict[str, str]:
        """What is in force and is not so here: by operation and name, with the reason."""
        found = {operation: action.amiss() for operation, action in self._actions.items()}
        return {f"{operation} {name}": why for operation, each in found.items() for name, why in each.items()}

    # -- Surroundings

    def run(self, effect: RunAction) -> None:
        """Beside the loop; answered when it is done for good, or has failed."""
        self._begin(self._run(effect))

    def read(self, effect: ReadAction) -> None:
        """What is in force."""
        try:
            found = self._before(effect.operation, effect.name)
        except ActionFailed as error:
            said = str(error)
            self._guard.call_soon(lambda: self.answers.action_read(effect, None, said))
            return
        self._guard.call_soon(lambda: self.answers.action_read(effect, found))

    def keep(self, effect: KeepCalls) -> None:
        """Answered when it is durable, however often that takes."""
        self._begin(self._keep(effect))

    def _before(self, operation: str, name: str) -> bytes:
        """Raises ActionFailed where that cannot be known, and for a name that this node does not have any more: what
        was in force of it could not be brought back (``a_name_is_taken_out_of_the_nodes_file``)."""
        self._actions[operation].initial(name)
        found = self._in_force.get((operation, name))
        return found.arguments if found is not None else NOTHING_IN_FORCE

    # -- tasks

    def _begin(self, work: Coroutine[Any, Any, object]) -> None:
        task = self._guard.create_task(work)
        self._tasks.add(task)
        self._guard.when_done(task, self._tasks.discard)

    async def _run(self, effect: RunAction) -> None:
        self.running = f"{effect.operation} {effect.name}".strip()
        try:
            error = await self._failed_with(effect)
        finally:
            self.running = None
        complaint = None if error is None else (effect.call_id, effect.undo, error)
        if error is not None and complaint != self._complained:  # it is run again every second
            self._complained = complaint
            tell(log, logging.WARNING, ActionNotRun(effect.operation, effect.name, effect.tnx_id, effect.undo, error))
        self.answers.action_ran(effect, error)

    async def _failed_with(self, effect: RunAction) -> str | None:
        operation, name, version = effect.operation, effect.name, effect.version
        context = ActionContext(effect.call_id.hex(), effect.tnx_id, effect.undo)
        action, nothing = self._actions[operation], effect.arguments == NOTHING_IN_FORCE
        try:
            wanted = action.initial(name) if nothing else _decoded(operation, version, effect.arguments)
            await action.run(name, wanted, context)
        except ActionFailed as error:
            return str(error)
        kept = {**self._in_force, (operation, name): InForce(operation, name, version, effect.arguments)}
        if nothing:
            del kept[operation, name]
        try:
            await asyncio.to_thread(self._file.write, list(kept.values()))
        except OSError as error:
            return _unwritten(self._file.path, error)
        self._in_force = kept
        return None

    async def _keep(self, effect: KeepCalls) -> None:
        while (reason := await self._unkept(effect)) is not None:
            if reason != self._said:
                self._said = reason
                tell(log, logging.WARNING, CallsNotKept(reason))
            await asyncio.sleep(self._retry)
        self._said = ""
        self.answers.calls_kept(effect)

    async def _unkept(self, effect: KeepCalls) -> str | None:
        try:
            await asyncio.to_thread(self._calls.write, effect.local)
        except OSError as error:
            return _unwritten(self._calls.path, error)
        return None


def _decoded(operation: str, version: int, arguments: bytes) -> Any:
    action = SHIPPED.get(operation, version)
    assert action is not None, "what is unknown here is refused where it is received"
    return msgspec.msgpack.decode(arguments, type=action.arguments)


def _unwritten(path: Path, error: OSError) -> str:
    return f"{path} cannot be written: {error.strerror or error}; make room, or let this user write there"
