"""The schedules of calls that fail where they are initiated (P13): the ticket goes back, what was done is undone."""

from __future__ import annotations

import pytest

from ha.calls.answers import CallDone, CallNotMade, CallUnknown
from ha.calls.desk import TicketDesk
from ha.calls.initiation import Phase
from ha.messages.calls import CallAppend
from tests.ha.calls.test_calls import fails_on, started
from tests.support.memory_calls import CallsCluster, call_id
from tests.support.memory_cluster import MemoryNode

FOREVER = 1000.0
"""Seconds: so long a ticket does not run out by itself in any of these."""


def test_first_call_fails_halfway() -> None:
    """Nothing was ever in force, and the action has done a part of its work: it is undone, and no record remains. The
    ticket goes back, so another node's call need not wait for its end."""
    cluster = started(ticket_timeout=FOREVER)
    initiator = cluster.backups()[0]
    fails_on(cluster, initiator.name, 1)
    initiator.surroundings.outcome = lambda action: None if action.undo else "disk full"
    cluster.call(initiator, 1, "half")
    assert cluster.answered(1) == CallNotMade("disk full")
    assert cluster.levels() == ["", "", ""] and cluster.tnx_of(1) == 0
    assert initiator.disk.local_calls.intent is None
    cluster.call(cluster.primary, 2, "l", need=2)
    assert cluster.answered(2) == CallDone(1)


def test_an_undoing_that_fails_is_tried_again() -> None:
    """Until it succeeds; nothing else is run there meanwhile. ``undo_that_fails_keeps_the_ticket``: who has asked is
    answered, all nodes hear of it, and others make their calls."""
    cluster = started(ticket_timeout=FOREVER)
    initiator, other = cluster.backups()
    initiator.surroundings.outcome = lambda action: "no" if not action.undo else "nor that"
    cluster.call(initiator, 1, "half", seconds=1000.0)
    said = "no; it could not be undone here yet, and is tried again: nor that"
    assert cluster.answered(1) == CallNotMade(said)
    cluster.call(other, 2, "l", need=2, name="y", seconds=60.0)
    assert isinstance(cluster.answered(2), CallDone), "at two of the three"
    cluster.pause(1.0)
    assert cluster.level(initiator.name, "y") == "" and initiator.disk.local_calls.intent is not None
    assert undoing(cluster, initiator.name) == "nor that"
    cluster.call(initiator, 3, "later", seconds=2.0)
    waits = "the time was up before this node could begin: it cannot undo an earlier call: nor that"
    assert cluster.answered(3) == CallNotMade(waits)
    initiator.surroundings.outcome = lambda action: None
    cluster.run(lambda: cluster.levels("y") == ["l"] * 3)
    assert cluster.level(initiator.name) == "" and initiator.disk.local_calls.intent is None
    cluster.run(lambda: undoing(cluster, initiator.name) == "")
    cluster.call(initiator, 4, "again", seconds=60.0)
    assert isinstance(cluster.answered(4), CallDone)


def test_an_undoing_that_hangs_is_no_doubt_about_the_record() -> None:
    """The action has failed, so nothing was sent: the time is up, and the call was not made."""
    cluster = started(ticket_timeout=FOREVER)
    initiator = cluster.backups()[0]
    initiator.surroundings.outcome = lambda action: "no"
    initiator.surroundings.hangs = lambda action: action.undo
    cluster.call(initiator, 1, "half", seconds=5.0)
    assert cluster.answered(1) == CallNotMade("no; it is still being undone here")
    cluster.call(cluster.primary, 2, "l", need=2, seconds=5.0)
    assert isinstance(cluster.answered(2), CallDone), "the ticket went back"
    initiator.surroundings.hangs = lambda action: False
    initiator.surroundings.outcome = lambda action: None
    cluster.run(lambda: cluster.levels() == ["l"] * 3)


def undoing(cluster: CallsCluster, node: str) -> str:
    """What the primary knows of a node that cannot undo a call."""
    found = {member.node: report for member, report in leading_desk(cluster).cursors.reports.items()}[node]
    assert not found.failing
    return found.reason


def test_time_is_up_before_the_node_has_caught_up() -> None:
    """It has the ticket, and waits for a call that is on its way to the commit point: the ticket goes back."""
    cluster = started(ticket_timeout=FOREVER)
    primary, (initiator, other) = cluster.primary, cluster.backups()
    primary.disk_held = True
    cluster.call(primary, 1, "l", need=1, seconds=60.0)
    desk = leading_desk(cluster)
    cluster.run(lambda: desk._appended > 0)
    cluster.call(initiator, 2, "m", seconds=0.5)
    cluster.run(lambda: initiator.core.calls.initiator.present is not None)
    present = initiator.core.calls.initiator.present
    cluster.run(lambda: present.phase is Phase.GRANTED)
    assert cluster.answered(2) == CallNotMade("the time was up before this node had the ticket and had caught up")
    primary.disk_held = False
    cluster.call(other, 3, "n")
    assert isinstance(cluster.answered(3), CallDone) and cluster.levels() == ["n"] * 3
    assert not initiator_ran(initiator, 2)


def test_ticket_runs_out_before_the_intent_is_durable() -> None:
    """Another call has come before this one meanwhile: its action is not run, since what it would undo to is old."""
    cluster = started(ticket_timeout=0.5)
    initiator, other = cluster.backups()
    initiator.surroundings.keeps_held = True
    cluster.call(initiator, 1, "late", seconds=FOREVER)
    cluster.run(lambda: initiator.core.calls.hands.busy and bool(initiator.surroundings.asked))
    cluster.call(other, 2, "l", need=2)
    assert cluster.answered(2) == CallDone(1)
    cluster.run(lambda: not initiator.core.calls.runner.at_head())
    initiator.surroundings.keeps_held = False
    assert cluster.answered(1) == CallNotMade("its ticket had ended before it could be recorded")
    cluster.run(lambda: cluster.levels() == ["l"] * 3)
    assert not initiator_ran(initiator, 1) and initiator.disk.local_calls.intent is None


def test_an_undoing_that_fails_is_tried_again_after_a_while() -> None:
    """Every ``call_retry`` seconds, not as fast as it fails."""
    cluster = started(ticket_timeout=FOREVER, call_retry=0.2)
    initiator = cluster.backups()[0]
    initiator.surroundings.outcome = lambda action: "no"
    cluster.call(initiator, 1, "half")
    assert isinstance(cluster.answered(1), CallNotMade)
    before = len(initiator_ran(initiator, 1))
    cluster.pause(1.0)
    assert 3 <= len(initiator_ran(initiator, 1)) - before <= 5


def recorded_and_forgotten(cluster: CallsCluster) -> MemoryNode:
    """The initiator of call 1, which has asked for the record and is cut off: it stands among the calls, and two later
    ones of its name have taken its place before the initiator is back, to which what is left is copied."""
    initiator = cluster.backups()[0]
    cluster.call(initiator, 1, "forgotten", seconds=FOREVER)
    sent: list[CallAppend] = []

    def seen(source: str, target: str, message: object) -> bool:
        if isinstance(message, CallAppend):
            sent.append(message)
        return False

    cluster.lose = seen
    cluster.run(lambda: bool(sent))
    cluster.held |= {(cluster.primary.name, initiator.name)}
    cluster.run(lambda: cluster.tnx_of(1) > 0 or leading_desk(cluster)._appended > 0)
    cluster.partition(initiator.name)
    cluster.held.clear()
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    for number in (2, 3):
        cluster.call(cluster.primary, number, f"l{number}", need=2)
        assert isinstance(cluster.answered(number), CallDone)
    assert cluster.tnx_of(1) == 0 and cluster.primary.core.replica.contents.calls.purged_to >= 1
    cluster.primary.core.log_first = cluster.primary.core.replica.tail.sequence + 1
    assert 1 not in cluster.answers and initiator.disk.local_calls.intent is not None
    return initiator


@pytest.mark.parametrize("undone", [True, False])
def test_record_is_forgotten_before_its_initiator_hears_of_it(undone: bool) -> None:
    """Whether it was made is not known there any more: nobody is told that it was not, also where it cannot be undone
    (``superseded``). The later call of its name counts in the end."""
    cluster = started(ticket_timeout=FOREVER, calls_kept=1)
    initiator = recorded_and_forgotten(cluster)
    initiator.surroundings.outcome = lambda action: "nor that" if action.undo and not undone else None
    cluster.heal()
    if not undone:
        cluster.run(lambda: initiator.core.calls.initiator.not_undone == "nor that", 60.0)
        cluster.pause(1.0)
        assert 1 not in cluster.answers, "neither made nor not made, as far as this node knows"
        initiator.surroundings.outcome = lambda action: None
    cluster.run(lambda: 1 in cluster.answers, 60.0)
    assert cluster.answers[1] == CallUnknown(call_id(1))
    cluster.run(lambda: cluster.levels() == ["l3"] * 3)


def leading_desk(cluster: CallsCluster) -> TicketDesk:
    leading = cluster.primary.core.leading
    assert leading is not None
    return leading.desk


def initiator_ran(node: MemoryNode, number: int) -> list[bool]:
    """How often a node has run this call of its own: whether each time to undo it."""
    return [undo for each, tnx_id, undo, _ in node.surroundings.ran if each == call_id(number) and not tnx_id]
