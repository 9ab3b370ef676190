"""What an operator asks of cluster calls, at any node (``txha calls``)."""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from broker_plugin.admin.answers import answering
from broker_plugin.admin.server import CommandRefused, Handler
from broker_plugin.logs.events import OperatorCalls, OperatorControls
from broker_plugin.logs.formats import tell
from broker_plugin.node.calls.arguments import BadCall, asked_call
from broker_plugin.node.calls.shown import call_row, node_row, own_standing
from broker_plugin.node.calls.surroundings import NodeSurroundings
from broker_plugin.node.shell import Shell, wall_ms
from ha.calls.answers import ALL, Answer, CallDone, CallLagging, CallNotMade
from ha.calls.initiation import NewCall
from ha.core import NodeCore
from ha.membership.belonging import membership_of
from ha.messages.calls import ControlAsk, CursorsAsk, NodeCursor
from txobserver.actions import FLAG, FLAGS, SHIPPED
from txobserver.calls import FAST_FORWARD, ID_BYTES, RESET, SKIP

log = logging.getLogger("txha.calls")
CURSOR_SECONDS = 2.0
"""Seconds for which the primary may take to say how far each node is."""
CONTROL_SECONDS = 10.0
"""Seconds for which a skip, a fast-forward or a reset may take to pass the commit point."""
LONGEST_WAIT = 3600.0
"""Seconds that an operator may wait for nodes to run a call."""
IDS_REMEMBERED = 10_000
"""Ids that those who asked have drawn: none is used twice."""
GLANCE = 0.1
"""Seconds between two looks whether a node has skipped a call."""
T = TypeVar("T")


class CallsAdmin:
    """The commands. ``nodes``: how many the cluster has."""

    def __init__(self, core: NodeCore, shell: Shell, surroundings: NodeSurroundings, nodes: int) -> None:
        self._core = core
        self._shell = shell
        self._surroundings = surroundings
        self._nodes = nodes
        self._drawn: deque[bytes] = deque(maxlen=IDS_REMEMBERED)

    @property
    def handlers(self) -> dict[str, Handler]:
        """By the names of the commands."""
        return {
            "calls.status": self._status,
            "calls.list": self._list,
            "calls.inspect": self._inspect,
            "calls.call": self._call,
            "calls.control": self._control,
            "calls.fix": self._fix,
        }

    # -- looking

    async def _status(self, arguments: dict[str, Any]) -> Any:
        cursors = await self._cursors()
        core, calls = self._core, self._core.calls.runner.calls
        return {
            "node": core.member.node,
            "own": {**own_standing(core), "running": self._surroundings.running},
            "in_force": self._surroundings.shown(),
            "amiss": self._surroundings.amiss(),
            "flags": {flag: flag in calls.names_of(FLAG) for flag in sorted(FLAGS)},
            "purged_to": calls.purged_to,
            "reset": calls.reset.tnx_id,
            "nodes": None if cursors is None else [node_row(calls, each) for each in cursors],
            "calls": [call_row(calls, each, cursors) for each in calls.kept],
        }

    async def _list(self, arguments: dict[str, Any]) -> Any:
        cursors, calls = await self._cursors(), self._core.calls.runner.calls
        return [call_row(calls, each, cursors) for each in calls.kept]

    async def _inspect(self, arguments: dict[str, Any]) -> Any:
        wanted = str(arguments.get("call"))
        cursors, calls = await self._cursors(), self._core.calls.runner.calls
        for each in calls.kept:
            if wanted in (str(each.tnx_id), each.record.id.hex()):
                return call_row(calls, each, cursors)
        raise CommandRefused(
            f"no call {wanted} is kept at this node: the history begins behind call {calls.purged_to}, and the last "
            f"call is {calls.last}"
        )

    async def _cursors(self) -> list[NodeCursor] | None:
        """How far each node is; None where the primary does not say it."""
        core = self._core

        def ask(done: Callable[[list[NodeCursor] | None], None]) -> None:
            if not core.role.desk_at:
                done(None)
            else:
                core.calls.cursors(CursorsAsk(core.generation, _new_id()), core.now + CURSOR_SECONDS, done)

        return await self._answer(ask)

    # -- calling

    async def _call(self, arguments: dict[str, Any]) -> Any:
        core = self._core
        need, seconds = self._need(arguments.get("succeed_num", "all")), _seconds(arguments.get("timeout", 10))
        operation, given = str(arguments.get("operation")), arguments.get("arguments")
        try:
            asked = asked_call(SHIPPED, operation, _texts(given))
        except BadCall as error:
            raise CommandRefused(str(error)) from None
        call = NewCall(self._id(arguments.get("id")), *asked, wall_ms())
        shown = SHIPPED.shown(asked.operation, asked.version, asked.arguments)
        tell(log, logging.INFO, OperatorCalls(asked.operation, asked.name, shown, call.id.hex()))
        answer: Answer = await self._answer(lambda done: core.calls.call(call, need, core.now + seconds, done))
        return {"id": call.id.hex(), **await self._told(answer)}

    async def _told(self, answer: Answer) -> dict[str, Any]:
        if isinstance(answer, CallDone):
            return {"result": "done", "tnx_id": answer.tnx_id}
        if isinstance(answer, CallNotMade):
            return {"result": "not made", "reason": answer.reason}
        if isinstance(answer, CallLagging):
            cursors, calls = await self._cursors(), self._core.calls.runner.calls
            found = calls.numbered(answer.tnx_id)
            why = call_row(calls, found, cursors)["lagging"] if found is not None else {}
            nodes = sorted({each.partition("/")[0] for each in answer.nodes})
            return {"result": "lagging", "tnx_id": answer.tnx_id, "nodes": nodes, "lagging": why}
        return {"result": "unknown"}

    def _id(self, given: object) -> bytes:
        """The id that who asks has drawn, so that it can ask again although the answer is lost; else a new one."""
        if given is None:
            return _new_id()
        try:
            found = bytes.fromhex(str(given))
        except ValueError:
            found = b""
        if len(found) != ID_BYTES:
            raise CommandRefused(f"an id has {2 * ID_BYTES} hexadecimal digits")
        if found in self._drawn or self._core.calls.runner.calls.by_id(found) is not None:
            raise CommandRefused(f"a call with the id {given} was asked for before: inspect it")
        self._drawn.append(found)
        return found

    def _need(self, given: object) -> int:
        if given == "all":
            return ALL
        membership = membership_of(self._core.record)
        most = self._nodes if membership is None else len(membership.nodes)
        if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= most:
            raise CommandRefused(f"succeed_num is a number from 1 to {most}, the nodes of this cluster, or all")
        return given

    # -- controls

    async def _control(self, arguments: dict[str, Any]) -> Any:
        operation = {"skip": SKIP, "fast-forward": FAST_FORWARD, "reset": RESET}.get(str(arguments.get("operation")))
        node, tnx_id = arguments.get("node", ""), arguments.get("tnx_id", 0)
        if operation is None or not isinstance(node, str) or type(tnx_id) is not int or not 0 <= tnx_id < 1 << 63:
            raise CommandRefused("it wants operation (skip, fast-forward, reset), node and tnx_id")
        if (refused := await self._ask_control(operation, node, tnx_id)) is not None:
            raise CommandRefused(refused)
        return {"operation": arguments["operation"], "node": node, "tnx_id": tnx_id}

    async def _ask_control(self, operation: str, node: str, tnx_id: int) -> str | None:
        """None when it has passed the commit point, or why it is not made. The log has it also if who asks has gone."""
        core = self._core

        def ask(done: Callable[[str | None], None]) -> None:
            def answered(refused: str | None) -> None:
                level = logging.WARNING if refused is None else logging.INFO
                tell(log, level, OperatorControls(operation.removeprefix("call."), node, tnx_id, refused or ""))
                done(refused)

            asked = ControlAsk(core.generation, _new_id(), operation, node, tnx_id)
            core.calls.control(asked, core.now + CONTROL_SECONDS, answered)

        return await self._answer(ask)

    async def _fix(self, arguments: dict[str, Any]) -> Any:
        """Let a node skip the calls that fail there and that later ones of the same name have taken the place of."""
        node, skipped = str(arguments.get("node")), list[int]()
        deadline = asyncio.get_running_loop().time() + CONTROL_SECONDS
        while True:
            row = await self._row_of(node)
            found = {"node": node, "skipped": skipped, "failing": row.failing or None, "reason": row.reason or None}
            found["undoing"] = bool(row.reason) and not row.failing
            if not row.failing:
                return found
            if row.failing not in skipped:
                if not self._superseded(row.failing):
                    return found
                refused = await self._ask_control(SKIP, node, row.failing)
                if refused is None:
                    skipped.append(row.failing)
                elif (await self._row_of(node)).failing == row.failing:
                    raise CommandRefused(refused)
            if asyncio.get_running_loop().time() >= deadline:
                raise CommandRefused(f"{node} has not gone on within {CONTROL_SECONDS:g} s; see `txha calls status`")
            await asyncio.sleep(GLANCE)

    async def _row_of(self, node: str) -> NodeCursor:
        cursors = await self._cursors()
        if cursors is None:
            raise CommandRefused("the primary does not say how far each node is; see `txha status`")
        row = next((each for each in cursors if each.member.node == node), None)
        if row is None:
            raise CommandRefused(f"no node {node!r} takes part in calls")
        return row

    def _superseded(self, tnx_id: int) -> bool:
        calls = self._core.calls.runner.calls
        found = calls.numbered(tnx_id)
        return found is None or calls.last_of(*found.key) > tnx_id

    # -- inside

    async def _answer(self, ask: Callable[[Callable[[T], None]], None]) -> T:
        """Ask the core in a turn of its own, and wait for what it calls back with."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._shell.report(lambda: ask(answering(answer)))
        return await answer


def _new_id() -> bytes:
    return secrets.token_bytes(ID_BYTES)


def _seconds(given: object) -> float:
    number = isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given)
    if number and isinstance(given, int | float) and 0 < given <= LONGEST_WAIT:
        return float(given)
    raise CommandRefused(f"timeout is a number of seconds, more than 0 and at most {LONGEST_WAIT:g}")


def _texts(given: object) -> dict[str, list[str]]:
    lists = isinstance(given, dict) and all(isinstance(each, list) for each in given.values())
    if isinstance(given, dict) and lists and all(isinstance(text, str) for each in given.values() for text in each):
        return given
    raise CommandRefused("arguments are texts, a list for each name")
