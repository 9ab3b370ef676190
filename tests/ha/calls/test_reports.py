"""What a node reports to its primary, whenever that has changed, and what the primary lets an operator do by it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ha.calls.controls import Controls
from ha.calls.cursors import CallCursors
from ha.calls.node_calls import LONGEST_REASON
from ha.messages.calls import ControlAsk, CursorReport
from tests.ha.calls.test_calls import started
from tests.support.memory_calls import CallsCluster, arguments, call_id
from tests.support.memory_cluster import MemoryNode
from txobserver.calls import SKIP, CallControl, CallMark, CallRecord, KeptCall, KeptCalls, control_step
from txobserver.ids import Member, Position


def reported(cluster: CallsCluster, node: MemoryNode) -> CursorReport | None:
    """The last that the primary has heard of this node."""
    leading = cluster.primary.core.leading
    assert leading is not None
    return leading.desk.cursors.reports.get(node.member)


def not_undone(reason: str) -> tuple[CallsCluster, MemoryNode]:
    """The first call ever fails, and its undoing as well."""
    cluster = started(ticket_timeout=1000.0)
    initiator = cluster.backups()[0]
    initiator.surroundings.outcome = lambda action: reason
    cluster.call(initiator, 1, "half")
    cluster.run(lambda: bool(initiator.core.calls.initiator.not_undone))
    return cluster, initiator


def reason_of(cluster: CallsCluster, node: MemoryNode) -> str | None:
    found = reported(cluster, node)
    return None if found is None else found.reason


def test_the_primary_hears_of_an_undoing_that_fails_before_there_is_any_call() -> None:
    """Also that it is over: nothing else would tell it, as long as no call is recorded."""
    cluster, initiator = not_undone("no room")
    cluster.run(lambda: reason_of(cluster, initiator) == "no room")
    initiator.surroundings.outcome = lambda action: None
    cluster.run(lambda: reason_of(cluster, initiator) == "")
    assert cluster.primary.core.replica.contents.calls.events == 0


def test_a_long_reason_is_reported_in_part() -> None:
    cluster, initiator = not_undone("n" * (LONGEST_REASON + 500))
    cluster.run(lambda: bool(reason_of(cluster, initiator)))
    assert reason_of(cluster, initiator) == "n" * LONGEST_REASON


def test_a_node_that_is_attached_again_reports_again() -> None:
    """Nothing has changed but the link: else the primary would let it off a call that it has run."""
    cluster = started()
    backup, other = cluster.backups()
    cluster.call(other, 1, "l")
    cluster.answered(1)
    generation, attachments = cluster.primary.core.generation, backup.core.sessions
    cluster.partition(backup.name)
    cluster.pause(0.1)
    cluster.heal()
    cluster.run(cluster.all_ready)
    cluster.pause(0.5)
    assert cluster.primary.core.generation == generation and backup.core.sessions > attachments
    cluster.control(other, 90, SKIP, backup.name, 1)
    assert "has run call 1" in str(cluster.answers[90])


def test_a_linked_node_outside_the_ready_set_may_skip_a_call() -> None:
    """It may be outside because it lags."""
    record = CallRecord(call_id(1), 1, "x", arguments("l"), "a", 7, ["a/1", "b/1"], 9)
    at = Position(1, 1)
    contents = SimpleNamespace(calls=KeptCalls(kept=[KeptCall(1, at, "level", record)], last=1, events=1))
    replica: Any = SimpleNamespace(
        applied=at, tail=at, resyncing=False, position_of=lambda sequence: Position(1, sequence), contents=contents
    )
    cursors, member = CallCursors(replica, lambda: ()), Member("b", "1")
    controls, asked = Controls(replica, cursors, lambda: (Member("a", "1"),)), ControlAsk(1, call_id(2), SKIP, "b", 1)
    assert "no node 'b'" in str(controls.refusal(asked))
    cursors.report("b", CursorReport(1, member, CallMark(0, Position(0, 0)), 1, "no"))
    assert controls.refusal(asked) is None
    assert controls.step(asked) == control_step(SKIP, CallControl(call_id(2), "b/1", 1))
