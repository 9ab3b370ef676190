"""Schedules of intents that the simulator found: what a call has done and nothing records is undone, whatever came."""

from __future__ import annotations

import pytest

from ha.calls.answers import CallDone, CallNotMade, CallUnknown
from ha.messages.calls import CursorReport
from tests.ha.calls.test_calls import started
from tests.ha.schedules.test_calls import at_head, killed_with
from tests.ha.schedules.test_joiner import force_resync
from tests.support.memory_calls import CallsCluster, call_id
from tests.support.memory_cluster import MemoryNode
from tests.support.memory_disk import MemoryDisk
from txobserver.calls import FAST_FORWARD, RESET, SKIP, LocalCalls


@pytest.mark.parametrize("control", [RESET, FAST_FORWARD, SKIP])
def test_what_was_to_undo_an_intent_is_let_go(control: str) -> None:
    """An action hangs until the history has passed its call by, and an operator lets the node off the later call of its
    name: the node does what that call would have undone itself."""
    cluster = started(ticket_timeout=1.0, calls_kept=1)
    initiator, other = cluster.backups()
    initiator.surroundings.hangs = lambda action: not action.tnx_id and not action.undo
    cluster.call(initiator, 1, "aborted")
    cluster.run(lambda: initiator.core.calls.hands.running is not None)
    for number, name in ((2, "x"), (3, "y"), (4, "z")):
        cluster.call(other, number, f"l{number}", need=2, name=name)
        cluster.answered(number)
    assert cluster.tnx_of(1) == 0 and initiator.core.replica.contents.calls.purged_to > 0
    of_it = ("", 0) if control == RESET else (initiator.name, cluster.tnx_of(2))
    cluster.control(other, 90, control, *of_it)
    assert cluster.answers[90] is None
    initiator.surroundings.hangs = lambda action: False
    cluster.run(lambda: at_head(cluster))
    assert cluster.level(initiator.name) == "" and cluster.level(other.name) == "l2"
    assert cluster.answered(1) == CallUnknown(call_id(1)), "whether it was recorded is remembered no more"


def test_another_call_came_while_the_intent_was_kept() -> None:
    """The ticket has run out by then: the action is not run behind a call that it has not seen."""
    cluster = started(ticket_timeout=0.5)
    initiator, other = cluster.backups()
    initiator.surroundings.keeps_held = True
    cluster.call(initiator, 1, "late")
    cluster.run(lambda: initiator.core.calls.hands.busy)
    cluster.call(other, 2, "l", need=2, seconds=20.0)
    assert cluster.answered(2) == CallDone(1)
    cluster.run(lambda: initiator.core.replica.contents.calls.last == 1)
    initiator.surroundings.keeps_held = False
    assert cluster.answered(1) == CallNotMade("its ticket had ended before it could be recorded")
    cluster.run(lambda: at_head(cluster))
    begun = [call for call, tnx_id, _, _ in initiator.surroundings.ran if not tnx_id]
    assert begun == [] and cluster.levels() == ["l"] * 3


def test_a_record_that_is_found_takes_no_earlier_call_along() -> None:
    """A new store has run nothing, and finds the record of what its machine had begun: the calls before it are run."""
    cluster = started()
    initiator, other = cluster.backups()
    cluster.call(other, 1, "l1", name="y")
    assert cluster.answered(1) == CallDone(1)
    cluster.lose = lambda source, target, message: target == initiator.name and cluster.tnx_of(2) > 0
    cluster.call(initiator, 2, "l2")
    cluster.run(lambda: cluster.tnx_of(2) > 0)
    intent = initiator.disk.local_calls.intent
    assert intent is not None
    name = killed_with(cluster, initiator)
    cluster.lose = lambda source, target, message: False
    cluster.disks[name] = MemoryDisk(initiator.disk.incarnation + "'")
    cluster.disks[name].local_calls = LocalCalls(intent=intent)
    cluster.start(name)
    cluster.run(lambda: cluster.all_ready() and at_head(cluster))
    assert cluster.level(name, "y") == "l1" and cluster.ran(name) == [1, 2]
    assert cluster.disks[name].local_calls.intent is None


@pytest.mark.parametrize("operation", ["level", "announce"])
def test_whether_it_was_recorded_is_remembered_no_more(operation: str) -> None:
    """The record has come and gone before its initiator is copied to: it is told as unknown, not as not made."""
    cluster = started(calls_kept=1, ticket_timeout=60.0)
    initiator, other = cluster.backups()
    cluster.lose = lambda source, target, message: target == initiator.name and cluster.tnx_of(1) > 0
    cluster.call(initiator, 1, "first", operation=operation, seconds=100.0)
    cluster.run(lambda: cluster.tnx_of(1) > 0)
    cluster.partition(initiator.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    for number, name in ((2, "x"), (3, "y"), (4, "z")):
        cluster.call(other, number, f"l{number}", name=name, operation=operation)
        assert isinstance(cluster.answered(number), CallDone)
    assert cluster.tnx_of(1) == 0 and 1 not in cluster.answers
    cluster.lose = lambda source, target, message: False
    force_resync(cluster.primary)
    cluster.heal()
    assert cluster.answered(1) == CallUnknown(call_id(1))
    cluster.run(lambda: at_head(cluster))
    assert cluster.levels(operation=operation) == ["l2"] * 3


def test_a_report_that_was_lost_with_the_attachment_is_made_again() -> None:
    """In the same generation, and by a node that has nothing new to say."""
    cluster = started()
    reporting, other = cluster.backups()
    cluster.lose = lambda source, target, message: source == reporting.name and isinstance(message, CursorReport)
    cluster.call(other, 1, "l", need=2)
    assert cluster.answered(1) == CallDone(1)
    cluster.run(lambda: at_head(cluster))
    cluster.pause(0.5)
    cursors = cluster.primary.core.leading.desk.cursors
    assert not cursors.has(reporting.member, 1)
    cluster.partition(reporting.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    cluster.lose = lambda source, target, message: False
    cluster.heal()
    cluster.run(lambda: cluster.all_ready() and cursors.has(reporting.member, 1))
    assert cluster.primary.core.leading.desk.cursors is cursors


def reported(cluster: CallsCluster, node: MemoryNode) -> str:
    told = cluster.primary.core.leading.desk.cursors.reports.get(node.member)
    return told.reason if told else ""


def test_each_new_reason_is_reported() -> None:
    cluster = started()
    failing, other = cluster.backups()
    failing.surroundings.outcome = lambda action: "no"
    cluster.call(other, 1, "l", need=2)
    assert cluster.answered(1) == CallDone(1)
    for reason in ("no disk", "no memory"):
        failing.surroundings.outcome = lambda action, reason=reason: reason
        cluster.run(lambda reason=reason: reported(cluster, failing) == reason)


@pytest.mark.parametrize("control", [SKIP, FAST_FORWARD])
def test_cursor_lost_while_away(control: str) -> None:
    """An enemy found it: a node that is down has lost what it had run, and is let off a call before it starts. The
    primary knows what it had told, and the node has the call in its log, and not that it is to do without it."""
    cluster = started()
    other, down = cluster.backups()
    cluster.call(other, 1, "l1")
    assert cluster.answered(1) == CallDone(1)
    name = killed_with(cluster, down)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    cluster.disks[name].local_calls = LocalCalls()
    cluster.control(cluster.primary, 90, control, name, 1)
    assert cluster.answers[90] is None
    cluster.start(name)
    cluster.run(lambda: cluster.all_ready() and at_head(cluster))
    assert cluster.ran(name) == []
