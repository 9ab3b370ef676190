"""A call as people see it: who lags, and who was let off it."""

from __future__ import annotations

import msgspec

from broker_plugin.node.calls.shown import call_row, node_row
from ha.messages.calls import NodeCursor
from txobserver.actions import SHIPPED
from txobserver.calls import CallMark, CallRecord, KeptCall, KeptCalls
from txobserver.ids import Member, Position

A, B = Member("a", "1"), Member("b", "1")
ARGUMENTS = msgspec.msgpack.encode(SHIPPED.latest("log_level").arguments("info"))  # type: ignore[union-attr]
RECORD = CallRecord(bytes(16), 1, "", ARGUMENTS, "a", 0, ["a/1", "b/1"], 9)
CALL = KeptCall(4, Position(1, 9), "log_level", RECORD)


def at(member: Member, tnx_id: int, counts: bool = True) -> NodeCursor:
    return NodeCursor(member, counts, CallMark(tnx_id, Position(1, 9)), 0, "")


def result(calls: KeptCalls, *nodes: NodeCursor) -> str:
    return str(call_row(calls, CALL, nodes)["result"])


def test_a_node_outside_the_ready_set_lags_as_well() -> None:
    calls = KeptCalls(kept=[CALL], last=4)
    assert result(calls, at(A, 4), at(B, 3, counts=False)) == "lagging: b"
    assert result(calls, at(A, 4), at(B, 4, counts=False)) == "done"


def test_who_was_let_off_a_call_is_not_told_to_have_run_it() -> None:
    """Else nobody sees that the nodes differ."""
    behind = CallMark(5, Position(1, 10))
    skipped = KeptCalls(kept=[CALL], last=4, skips={"b/1": [4]})
    forwarded = KeptCalls(kept=[CALL], last=4, forwarded={"b/1": CallMark(4, Position(1, 10))})
    for calls in (skipped, forwarded):
        assert result(calls, at(A, 4), at(B, 4)) == "done, or passed over: b"
        assert result(calls, at(A, 4)) == "done, or passed over: b", "it is not here at the moment"
    assert result(KeptCalls(kept=[CALL], last=4, reset=behind), at(A, 4), at(B, 4)) == "done, or passed over: a, b"
    elsewhere = KeptCalls(kept=[CALL], last=4, skips={"b/1": [3]}, forwarded={"b/1": CallMark(3, Position(1, 10))})
    assert result(elsewhere, at(A, 4), at(B, 4)) == "done"


def test_a_node_that_fails_is_not_shown_as_one_that_cannot_undo() -> None:
    """Both have a reason: one may be skipped, the other not."""
    calls = KeptCalls(kept=[CALL], last=4)
    fails, undoes = (NodeCursor(B, True, CallMark(3, Position(1, 9)), failing, "no room") for failing in (4, 0))
    shown = [
        (row["failing"], row["undoing"], row["reason"]) for row in (node_row(calls, fails), node_row(calls, undoes))
    ]
    assert shown == [(4, False, "no room"), (None, True, "no room")]
    assert not node_row(calls, at(B, 4))["undoing"]


def test_a_call_waits_for_an_undoing_and_its_row_says_so() -> None:
    calls = KeptCalls(kept=[CALL], last=4)
    cursors = [NodeCursor(B, True, CallMark(3, Position(1, 9)), failing, "no room") for failing in (0, 4, 3)]
    why = [call_row(calls, CALL, [each])["lagging"]["b"] for each in cursors]
    assert why == ["it cannot undo a call that was not made: no room", "no room", "call 3 fails there: no room"]
    assert call_row(calls, CALL, [at(B, 3)])["lagging"] == {"b": "it has not come to it yet"}
