"""The schedules of cluster calls (FIVE_SEEDS, seed 000): each breaks P13 in a simpler design."""

from __future__ import annotations

import pytest

from ha.calls.answers import CallDone, CallLagging, CallNotMade, CallUnknown
from ha.messages.calls import CallAppend, CursorReport
from tests.ha.calls.test_calls import fails_on, started
from tests.ha.schedules.test_record import promote
from tests.support.memory_calls import CallsCluster, call_id
from tests.support.memory_cluster import MemoryNode
from txobserver.actions import ActionRegistry
from txobserver.calls import RESET, SKIP


def killed_with(cluster: CallsCluster, node: MemoryNode) -> str:
    """SIGKILL; the others go on without it."""
    cluster.kill(node.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == len(cluster.nodes))  # type: ignore[union-attr]
    return node.name


def at_head(cluster: CallsCluster) -> bool:
    last = cluster.primary.core.replica.contents.calls.last
    return all(
        node.core.calls.runner.at_head() and node.core.calls.runner.cursor.tnx_id >= last
        for node in cluster.nodes.values()
    )


def test_two_initiators_one_number() -> None:
    """All nodes ask at once: numbers are given one after the other, and every node runs all in that order."""
    cluster = started()
    for number, node in enumerate(list(cluster.nodes.values()), 1):
        cluster.call(node, number, f"l{number}")
    assert all(isinstance(cluster.answered(number), CallDone) for number in (1, 2, 3))
    assert sorted(cluster.tnx_of(number) for number in (1, 2, 3)) == [1, 2, 3]
    assert len(set(cluster.levels())) == 1
    for name in cluster.nodes:
        assert cluster.ran(name) == sorted(cluster.ran(name)) and len(cluster.ran(name)) == 2


def test_initiator_dies_between_action_and_record() -> None:
    """It has run the action and the record was never appended: what was in force is run, before anything else is."""
    cluster = started()
    initiator, other = cluster.backups()
    cluster.call(initiator, 1, "before")
    assert cluster.answered(1) == CallDone(1)
    cluster.lose = lambda source, target, message: source == initiator.name and isinstance(message, CallAppend)
    cluster.call(initiator, 2, "lost")
    cluster.run(lambda: cluster.level(initiator.name) == "lost")
    name = killed_with(cluster, initiator)
    cluster.call(other, 3, "after", name="y")
    assert cluster.answered(3) == CallDone(2), "its ticket has ended with its link"
    back = cluster.start(name)
    cluster.run(lambda: cluster.ran(name) == [2])
    assert [undo for _, _, undo, _ in back.surroundings.ran] == [True, False], "undone before the next call was run"
    assert cluster.levels() == ["before"] * 3 and cluster.tnx_of(2) == 0
    cluster.ask(back, 2)
    assert cluster.answered(2) == CallUnknown(call_id(2))


def test_initiator_dies_behind_the_record() -> None:
    """It has run the action and the record stands, and it does not know: nothing is undone, nor run again."""
    cluster = started()
    initiator = cluster.backups()[0]
    cluster.call(initiator, 1, "recorded")
    cluster.run(lambda: cluster.level(initiator.name) == "recorded")
    initiator.surroundings.keeps_held = True
    cluster.run(lambda: cluster.tnx_of(1) > 0)
    name = killed_with(cluster, initiator)
    assert cluster.disks[name].local_calls.intent is not None
    back = cluster.start(name)
    cluster.run(lambda: at_head(cluster))
    assert back.surroundings.ran == [] and cluster.levels() == ["recorded"] * 3
    cluster.ask(back, 1)
    assert cluster.answered(1) == CallDone(1)


def test_initiator_never_comes_back() -> None:
    """The others go on: its ticket has ended, and nothing waits for it."""
    cluster = started(ticket_timeout=600.0)
    initiator, other = cluster.backups()
    initiator.surroundings.hangs = lambda action: True
    cluster.call(initiator, 1, "never")
    cluster.run(lambda: initiator.core.calls.hands.running is not None)
    cluster.call(other, 2, "l")
    cluster.pause(0.5)
    assert 2 not in cluster.answers, "the ticket is held"
    killed_with(cluster, initiator)
    assert cluster.answered(2) == CallDone(1) and cluster.levels() == ["l", "l"]


def test_a_ticket_ends_after_its_time() -> None:
    """An action that hangs keeps the ticket for so long, and no longer; what it did at last is undone."""
    cluster = started(ticket_timeout=1.0)
    initiator, other = cluster.backups()
    initiator.surroundings.hangs = lambda action: not action.tnx_id and not action.undo
    cluster.call(initiator, 1, "slow", seconds=2.0)
    cluster.run(lambda: initiator.core.calls.hands.running is not None)
    cluster.call(other, 2, "l", need=2)
    assert cluster.answered(2) == CallDone(1) and cluster.answered(1) == CallUnknown(call_id(1))
    initiator.surroundings.hangs = lambda action: False
    cluster.run(lambda: at_head(cluster))
    assert cluster.levels() == ["l"] * 3 and cluster.tnx_of(1) == 0


def test_hanging_action_holds_up_a_declare() -> None:
    """State never waits for an action: not for one that hangs at its initiator, nor at any other node."""
    cluster = started()
    primary, (initiator, other) = cluster.primary, cluster.backups()
    other.surroundings.hangs = lambda action: True
    cluster.call(initiator, 1, "l", need=2)
    assert cluster.answered(1) == CallDone(1)
    primary.surroundings.hangs = lambda action: True
    cluster.call(primary, 2, "m")
    cluster.run(lambda: primary.core.calls.hands.running is not None and other.core.calls.hands.running is not None)
    primary.report(lambda: primary.host.declare("q"))
    cluster.run(lambda: primary.host.answer("declare q") == "ok")
    cluster.run(lambda: all("q" in n.core.replica.contents.configuration.queues for n in cluster.nodes.values()))


def test_ticket_outlives_its_generation() -> None:
    """A call that was initiated under one primary is not recorded by the next: it is undone, and may be made again."""
    cluster = started()
    primary, (initiator, other) = cluster.primary, cluster.backups()
    initiator.surroundings.hangs = lambda action: not action.undo and not action.tnx_id
    cluster.call(initiator, 1, "old ticket", seconds=30.0)
    cluster.run(lambda: initiator.core.calls.hands.running is not None)
    cluster.kill(primary.name)
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    cluster.run(cluster.all_ready)
    initiator.surroundings.hangs = lambda action: False
    answer = cluster.answered(1)
    assert isinstance(answer, CallNotMade) and cluster.tnx_of(1) == 0
    assert cluster.level(initiator.name) == "" and cluster.level(other.name) == ""


def cut_off(cluster: CallsCluster) -> tuple[MemoryNode, list[MemoryNode]]:
    """The primary has recorded its own call 1 on its disk alone, and dies; the others have another primary."""
    primary, others = cluster.primary, cluster.backups()
    cluster.held |= {(primary.name, other.name) for other in others}
    cluster.call(primary, 1, "cut off")
    cluster.run(lambda: primary.disk.frames[-1].last == primary.core.replica.tail.sequence > 1)
    assert cluster.level(primary.name) == "cut off" and 1 not in cluster.answers
    cluster.kill(primary.name)
    cluster.held.clear()
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    return primary, others


def test_number_cut_off_and_given_again() -> None:
    """The record was on one disk only: the next primary gives its number to another call, which that node runs too."""
    cluster = started()
    primary, others = cut_off(cluster)
    cluster.call(others[0], 2, "given again", need=2, name="y")
    assert cluster.answered(2) == CallDone(1)
    cluster.start(primary.name)
    cluster.run(lambda: len(cluster.nodes) == 3 and cluster.all_ready() and at_head(cluster))
    assert cluster.levels() == ["", "", ""], "what was cut off is undone"
    assert cluster.levels("y") == ["given again"] * 3
    cluster.ask(cluster.primary, 2)
    assert cluster.answered(2) == CallDone(1)


def test_catch_up_runs_an_action_twice() -> None:
    """The initiator's own record comes back to it in the stream: it has run it, and does not again."""
    cluster = started()
    for number in range(1, 4):
        cluster.call(cluster.backups()[0], number, f"l{number}")
        assert cluster.answered(number) == CallDone(number)
    ran = [call for call, _, _, _ in cluster.backups()[0].surroundings.ran]
    assert ran == [call_id(number) for number in (1, 2, 3)]


def test_a_cursor_that_was_not_durable_runs_the_action_again() -> None:
    """Once more, and no later one before it: actions are idempotent for this."""
    cluster = started()
    initiator, other = cluster.backups()
    other.surroundings.keeps_held = True
    cluster.call(initiator, 1, "l", need=2)
    assert cluster.answered(1) == CallDone(1)
    cluster.run(lambda: cluster.level(other.name) == "l")
    cluster.pause(0.5)
    assert not cluster.primary.core.leading.desk.cursors.has(other.member, 1), "it has run it, and would run it again"
    name = killed_with(cluster, other)
    cluster.call(initiator, 2, "m", need=2)
    assert cluster.answered(2) == CallDone(2)
    cluster.start(name)
    cluster.run(lambda: at_head(cluster))
    assert cluster.ran(name) == [1, 2]


def test_new_node_skips_an_action() -> None:
    """A node with a new store takes the last call of each name, and the history, before it initiates or is counted."""
    cluster = started(calls_kept=2)
    name = killed_with(cluster, cluster.backups()[0])
    other = cluster.backups()[0]
    for number, of in enumerate(("x", "y", "y", "y", "y"), 1):
        cluster.call(other, number, f"l{number}", need=2, name=of)
        assert cluster.answered(number) == CallDone(number)
    cluster.primary.core.log_first = cluster.primary.core.replica.tail.sequence + 1
    back = cluster.start(name, wipe=True)
    cluster.run(lambda: at_head(cluster))
    assert cluster.ran(name) == [1, 4, 5], "the last of x, and the history"
    assert cluster.levels() == ["l1"] * 3 and cluster.levels("y") == ["l5"] * 3
    cluster.call(back, 6, "l6")
    assert cluster.answered(6) == CallDone(6)
    assert len({node.core.replica.contents.calls.digest() for node in cluster.nodes.values()}) == 1


def test_history_purged_under_a_cursor() -> None:
    """A node whose cursor is behind the history takes the last of each name: no number is silently jumped over."""
    cluster = started(calls_kept=2)
    failing, other = cluster.backups()
    fails_on(cluster, failing.name, 1)
    for number, of in enumerate(("x", "y", "y", "x", "y", "y"), 1):
        cluster.call(other, number, f"l{number}", need=2, name=of)
        assert cluster.answered(number) == CallDone(number)
    cluster.run(lambda: at_head(cluster))
    assert cluster.ran(failing.name) == [3, 4, 5, 6], "the first has gone when the fourth had taken its place"
    assert cluster.levels() == ["l4"] * 3 and cluster.levels("y") == ["l6"] * 3


def test_wiped_store_inherits_cursor() -> None:
    """A cursor is of a store: the same node with a new one has run nothing, and counts as lagging until it has."""
    cluster = started()
    backup, other = cluster.backups()
    cluster.call(other, 1, "l")
    assert cluster.answered(1) == CallDone(1)
    name = killed_with(cluster, backup)
    back = cluster.start(name, wipe=True)
    back.surroundings.outcome = lambda action: "no"
    cluster.run(cluster.all_ready)
    cluster.call(other, 2, "m", name="y", seconds=1.0)
    assert cluster.answered(2) == CallLagging(2, (str(back.member),))
    cursors = cluster.primary.core.leading.desk.cursors
    assert not cursors.has(back.member, 1) and not any(
        member.node == name and member != back.member for member in cursors.reports
    )
    back.surroundings.outcome = lambda action: None
    cluster.run(lambda: at_head(cluster))
    assert cluster.ran(name) == [1, 2]


def test_dead_node_pins_history() -> None:
    """The history has its length whether or not a node is away, and "all" are those that are still members."""
    cluster = started(calls_kept=3)
    name = killed_with(cluster, cluster.backups()[0])
    other = cluster.backups()[0]
    for number in range(1, 8):
        cluster.call(other, number, f"l{number}")
        assert cluster.answered(number) == CallDone(number), "of all that count"
    assert len(cluster.primary.core.replica.contents.calls.kept) == 3
    cluster.start(name)
    cluster.run(lambda: at_head(cluster))
    assert cluster.ran(name)[-3:] == [5, 6, 7] and cluster.levels() == ["l7"] * 3


def test_all_are_those_at_the_record_less_those_removed() -> None:
    """A member that leaves while a call waits for it is waited for no more."""
    cluster = started()
    leaving, other = cluster.backups()
    leaving.surroundings.hangs = lambda action: True
    cluster.call(other, 1, "l", seconds=20.0)
    cluster.run(lambda: cluster.level(cluster.primary.name) == "l")
    cluster.pause(0.5)
    assert 1 not in cluster.answers
    killed_with(cluster, leaving)
    assert cluster.answered(1) == CallDone(1)


def test_reset_with_a_report_in_flight() -> None:
    """A node's report of before the reset comes behind it: no node counts as having what it has not."""
    cluster = started()
    slow, other = cluster.backups()
    cluster.call(other, 1, "l")
    assert cluster.answered(1) == CallDone(1)
    fails_on(cluster, slow.name, 2, 3)
    cluster.call(other, 2, "m", need=2)
    assert cluster.answered(2) == CallDone(2)
    old = CursorReport(cluster.primary.core.generation, slow.member, slow.core.calls.runner.cursor)
    cluster.control(other, 90, RESET)
    cluster.run(lambda: at_head(cluster))
    cluster.primary.report(lambda: cluster.primary.core.on_message(slow.name, old))
    cluster.call(other, 3, "n", need=2)
    assert cluster.answered(3) == CallDone(4)
    assert not cluster.primary.core.leading.desk.cursors.has(slow.member, 4) and cluster.ran(slow.name) == [1]
    fails_on(cluster, slow.name)
    cluster.run(lambda: at_head(cluster))
    assert cluster.ran(slow.name) == [1, 4], "what is behind the reset is not run any more"


def test_unknown_operation_is_acknowledged() -> None:
    """A node whose release does not know the action takes nothing of it to its disk, and stays out until upgraded."""
    cluster = started()
    older, other = cluster.backups()
    older.core.replica.actions = ActionRegistry()
    cluster.call(other, 1, "l", need=2)
    cluster.run(lambda: older.core.waits_for_operator is not None)
    assert "unknown here" in str(older.core.waits_for_operator)
    assert older.disk.durable < cluster.primary.disk.durable and cluster.level(older.name) == ""
    assert cluster.answered(1) == CallDone(1)


def test_primary_lost_while_a_call_waits_for_all() -> None:
    """The next primary learns how far each node is from their reports, and the initiator gets its answer of it."""
    cluster = started(size=4)
    primary, (initiator, slow, _) = cluster.primary, cluster.backups()
    slow.surroundings.hangs = lambda action: True
    cluster.call(initiator, 1, "l", seconds=60.0)
    cluster.run(lambda: len([name for name in cluster.nodes if cluster.level(name) == "l"]) == 3)
    cluster.kill(primary.name)
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()) and cluster.all_ready())
    assert 1 not in cluster.answers
    slow.surroundings.hangs = lambda action: False
    assert cluster.answered(1) == CallDone(1) and cluster.levels() == ["l"] * 3


def test_skip_beside_a_running_action() -> None:
    """The skip of a call takes effect when the action that runs has returned; the next one does not run beside it."""
    cluster = started()
    slow, other = cluster.backups()
    slow.surroundings.hangs = lambda action: action.tnx_id == 1
    for number in (1, 2):
        cluster.call(other, number, f"l{number}", need=2)
        assert cluster.answered(number) == CallDone(number)
    cluster.control(other, 90, SKIP, slow.name, 1)
    cluster.pause(1.0)
    assert cluster.ran(slow.name) == [] and cluster.level(slow.name) == ""
    slow.surroundings.hangs = lambda action: False
    cluster.run(lambda: at_head(cluster))
    assert cluster.ran(slow.name) == [1, 2] and cluster.levels() == ["l2"] * 3


@pytest.mark.parametrize("why", ["a skip", "a later call of its name"])
def test_what_let_a_node_pass_over_a_call_is_lost(why: str) -> None:
    """An operator accepts the loss of it: the call is to be run there after all, as on all other nodes."""
    cluster = started(calls_kept=2)
    primary, (failing, behind) = cluster.primary, cluster.backups()
    fails_on(cluster, failing.name, 1, 3)
    cluster.call(behind, 1, "l", need=2)
    assert cluster.answered(1) == CallDone(1)
    if why != "a skip":
        cluster.call(behind, 2, "l", need=2, name="y")
        assert cluster.answered(2) == CallDone(2)
    name = killed_with(cluster, behind)
    if why == "a skip":
        cluster.control(primary, 90, SKIP, failing.name, 1)
    else:
        cluster.call(primary, 3, "lost", need=1)
        assert cluster.answered(3) == CallDone(3)
    ran, passed = ([], 1) if why == "a skip" else ([2], 2)
    cluster.run(lambda: failing.disk.local_calls.cursor.tnx_id == passed)
    assert cluster.ran(failing.name) == ran, "call 1 was passed over"
    for gone in (primary.name, failing.name):
        cluster.kill(gone)
    left = cluster.start(name)
    cluster.run(lambda: promote(left) is None)
    cluster.start(failing.name)
    cluster.run(lambda: cluster.all_ready() and at_head(cluster))
    assert cluster.ran(failing.name)[:1] == [1] and cluster.levels() == ["l", "l"]
