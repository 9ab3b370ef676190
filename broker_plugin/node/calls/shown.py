"""Cluster calls as people see them: rows of calls and of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ha.core import NodeCore
from ha.messages.calls import NodeCursor
from txobserver.actions import FLAG, SHIPPED
from txobserver.calls import KeptCall, KeptCalls

NOT_REPORTED = "it has not reported to this primary"


def own_standing(core: NodeCore) -> dict[str, Any]:
    """How far this node is, for its status."""
    calls, runner, hands = core.calls.runner.calls, core.calls.runner, core.calls.hands
    failing, undoing = runner.failing, core.calls.initiator.not_undone
    return {
        "last": calls.last,
        "cursor": hands.local.cursor.tnx_id,
        "behind": calls.behind(str(core.member), hands.local.cursor.tnx_id),
        "failing": failing.tnx_id if failing is not None else None,
        "undoing": bool(undoing),
        "reason": undoing or (hands.failed if failing is not None else None),
        "begun": hands.local.intent.id.hex() if hands.local.intent is not None else None,
        "flags": calls.names_of(FLAG),
    }


def node_row(calls: KeptCalls, cursor: NodeCursor) -> dict[str, Any]:
    """How far one node is, as the primary knows it. ``behind`` None: it has not reported. ``undoing``: it cannot yet
    undo a call that was begun there and was not made."""
    at = cursor.cursor.tnx_id if cursor.cursor is not None else None
    return {
        "node": cursor.member.node,
        "member": str(cursor.member),
        "counts": cursor.counts,
        "tnx_id": at,
        "behind": None if at is None else calls.behind(str(cursor.member), at),
        "failing": cursor.failing or None,
        "undoing": bool(cursor.reason) and not cursor.failing,
        "reason": cursor.reason or (NOT_REPORTED if at is None and calls.last else None),
    }


def call_row(calls: KeptCalls, call: KeptCall, nodes: Sequence[NodeCursor] | None) -> dict[str, Any]:
    """One call of these. ``nodes``: how far each is; None: the primary has not said it.

    ``passed_over``: the nodes that a skip, a fast-forward or a reset has let off it, unless they had run it before.
    """
    record = call.record
    return {
        "tnx_id": call.tnx_id,
        "operation": call.operation,
        "version": record.version,
        "name": record.name,
        "arguments": SHIPPED.shown(call.operation, record.version, record.arguments),
        "initiator": record.initiator,
        "created_at": created_at(record.created_ms),
        "id": record.id.hex(),
        "members": list(record.members),
        **_result(calls, call, nodes),
    }


def created_at(milliseconds: int) -> str:
    """In UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _result(calls: KeptCalls, call: KeptCall, nodes: Sequence[NodeCursor] | None) -> dict[str, Any]:
    if nodes is None:
        return {"result": "not known", "lagging": {}, "passed_over": []}
    lagging = {each.member.node: _why(call, each) for each in nodes if not _has(call, each)}
    members = {*call.record.members, *(str(each.member) for each in nodes)}
    over = sorted({each.partition("/")[0] for each in members if calls.passed_over(each, call.tnx_id)} - lagging.keys())
    result = f"done, or passed over: {', '.join(over)}" if over else "done"
    if lagging:
        result = f"lagging: {', '.join(sorted(lagging))}"
    return {"result": result, "lagging": lagging, "passed_over": over}


def _has(call: KeptCall, node: NodeCursor) -> bool:
    return node.cursor is not None and node.cursor.tnx_id >= call.tnx_id


def _why(call: KeptCall, node: NodeCursor) -> str:
    if node.cursor is None:
        return NOT_REPORTED
    if node.failing == call.tnx_id:
        return node.reason
    if node.reason and not node.failing:
        return f"it cannot undo a call that was not made: {node.reason}"
    return f"call {node.failing} fails there: {node.reason}" if node.failing else "it has not come to it yet"
