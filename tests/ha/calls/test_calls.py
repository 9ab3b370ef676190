"""A cluster call from its ticket to the answer, where nothing goes wrong; and what is refused."""

from __future__ import annotations

from ha.calls.answers import CallDone, CallLagging, CallNotMade, CallUnknown
from ha.messages.calls import CallAppend
from tests.support.memory_calls import CallsCluster, arguments, call_id
from txobserver.calls import FAST_FORWARD, LARGEST_ARGUMENTS, RESET, SKIP


def started(size: int = 3, **settings: object) -> CallsCluster:
    cluster = CallsCluster(size, **settings)
    cluster.settled()
    return cluster


def fails_on(cluster: CallsCluster, name: str, *numbers: int) -> None:
    """These calls do not succeed on this node."""
    ids = {call_id(number) for number in numbers}
    cluster.nodes[name].surroundings.outcome = lambda action: "no" if action.call_id in ids else None


def test_a_call_is_run_everywhere_and_answered() -> None:
    cluster = started()
    for number, node in enumerate(list(cluster.nodes.values()), 1):
        cluster.call(node, number, f"l{number}")
        assert cluster.answered(number) == CallDone(cluster.tnx_of(number))
        assert cluster.levels() == [f"l{number}"] * 3
    assert [cluster.tnx_of(number) for number in (1, 2, 3)] == [1, 2, 3]


def test_state_and_actions_have_one_numbering() -> None:
    cluster = started()
    host = cluster.primary.host
    for number in (1, 2):
        cluster.primary.report(lambda n=number: host.declare(f"q{n}"))  # type: ignore[misc]
        cluster.call(cluster.backups()[0], number, "l")
        assert isinstance(cluster.answered(number), CallDone)
    assert (host.number("q1"), cluster.tnx_of(1), host.number("q2"), cluster.tnx_of(2)) == (1, 2, 3, 4)
    cluster.check_agreement()


def test_one_that_cannot_be_undone_is_recorded_first() -> None:
    cluster = started()
    initiator = cluster.backups()[0]
    cluster.call(initiator, 1, "l", operation="announce")
    cluster.run(lambda: cluster.tnx_of(1) > 0)
    assert cluster.levels(operation="announce") == ["", "", ""], "no node has run it before it was recorded"
    assert cluster.answered(1) == CallDone(1) and cluster.levels(operation="announce") == ["l", "l", "l"]
    assert cluster.ran(initiator.name) == [1], "the initiator has run it like all others"


def test_a_failing_node_is_told_of_and_retries() -> None:
    cluster = started()
    initiator, failing = cluster.backups()
    fails_on(cluster, failing.name, 1)
    cluster.call(initiator, 1, "l", seconds=1.0)
    assert cluster.answered(1) == CallLagging(1, (str(failing.member),))
    cluster.call(cluster.primary, 2, "m", need=2, name="y")
    assert cluster.answered(2) == CallDone(2), "two nodes have it"
    assert cluster.ran(failing.name) == [] and cluster.level(failing.name, "y") == "", "later actions wait"
    failing.surroundings.outcome = lambda action: None
    cluster.ask(failing, 1)
    assert cluster.answered(1) == CallDone(1)
    cluster.run(lambda: cluster.ran(failing.name) == [1, 2])


def test_what_is_unknown_or_too_long_is_refused_at_once() -> None:
    cluster = started()
    node = cluster.backups()[0]
    cluster.call(node, 1, "l", operation="other")
    cluster.call(node, 2, "l", version=2)
    cluster.call(node, 3, "l" * LARGEST_ARGUMENTS)
    assert all(isinstance(cluster.answers[number], CallNotMade) for number in (1, 2, 3))
    cluster.ask(node, 1)
    assert cluster.answers[1] == CallUnknown(call_id(1)), "it was never recorded"
    cluster.pause(0.5)
    assert cluster.primary.core.replica.contents.calls.events == 0


def test_a_node_that_lags_initiates_nothing() -> None:
    cluster = started(ticket_timeout=1000.0)
    behind, other = cluster.backups()
    fails_on(cluster, behind.name, 1)
    cluster.call(other, 1, "l", need=2)
    assert cluster.answered(1) == CallDone(1)
    cluster.call(behind, 2, "m")
    answer = cluster.answered(2)
    assert isinstance(answer, CallNotMade) and "call 1 fails here" in answer.reason
    cluster.call(other, 3, "n", need=2)
    assert cluster.answered(3) == CallDone(2), "the ticket of the refused call has gone back"


def test_skip_and_fast_forward_and_reset() -> None:
    cluster = started()
    failing, other = cluster.backups()
    fails_on(cluster, failing.name, 1, 2, 3, 4, 5)
    for number in (1, 2, 3):
        cluster.call(other, number, f"l{number}", need=2)
        assert cluster.answered(number) == CallDone(number)
    cluster.control(other, 90, SKIP, "nobody", 1)
    assert "no node" in str(cluster.answers[90])
    cluster.control(other, 91, SKIP, failing.name, 77)
    assert "no call 77" in str(cluster.answers[91])
    cluster.control(cluster.primary, 92, SKIP, failing.name, 1)
    cluster.run(lambda: failing.core.calls.runner.cursor.tnx_id == 1)
    cluster.control(failing, 93, FAST_FORWARD, failing.name, 3)
    assert cluster.answers[93] is None
    cluster.run(lambda: failing.core.calls.runner.cursor.tnx_id == 3)
    cluster.call(other, 4, "l4", need=2)
    assert cluster.answered(4) == CallDone(6)
    cluster.control(other, 94, RESET)
    cluster.run(lambda: failing.core.calls.runner.at_head())
    cluster.ask(other, 4)
    assert cluster.answered(4) == CallDone(6)
    assert cluster.ran(failing.name) == []
    fails_on(cluster, failing.name)
    cluster.call(failing, 5, "l5")
    assert cluster.answered(5) == CallDone(8) and cluster.levels() == ["l5"] * 3
    cluster.check_agreement()


def test_a_node_is_not_helped_over_what_it_has_run() -> None:
    """An operator who mistakes a number or a node is told so, and nothing is recorded."""
    cluster = started()
    failing, other = cluster.backups()
    fails_on(cluster, failing.name, 2, 3)
    for number in (1, 2, 3):
        cluster.call(other, number, f"l{number}", need=2)
        assert cluster.answered(number) == CallDone(number)
    cursors = cluster.primary.core.leading.desk.cursors
    cluster.run(lambda: cursors.has(other.member, 3) and cursors.has(failing.member, 1))
    in_vain = [
        (SKIP, failing, 1, "has run call 1, or is to do without it already"),
        (SKIP, other, 2, "has run call 2, or is to do without it already"),
        (SKIP, other, 4, "no call 4 is remembered"),
        (FAST_FORWARD, failing, 1, "has no call up to 1 to run"),
        (FAST_FORWARD, other, 3, "has no call up to 3 to run"),
        (FAST_FORWARD, failing, 4, "the last call is 3"),
    ]
    events = cluster.primary.core.replica.contents.calls.events
    for number, (operation, node, tnx_id, said) in enumerate(in_vain, 90):
        cluster.control(other, number, operation, node.name, tnx_id)
        assert said in str(cluster.answers[number])
    assert cluster.primary.core.replica.contents.calls.events == events
    cluster.control(other, 80, SKIP, failing.name, 3)
    cluster.control(other, 81, SKIP, failing.name, 3)
    assert cluster.answers[80] is None and "to do without it already" in str(cluster.answers[81])
    cluster.control(other, 82, FAST_FORWARD, failing.name, 2)
    cluster.control(other, 83, FAST_FORWARD, failing.name, 2)
    assert cluster.answers[82] is None and "has no call up to 2" in str(cluster.answers[83])
    cluster.run(lambda: all(node.core.calls.runner.at_head() for node in cluster.nodes.values()))


def test_the_primary_appends_nothing_without_a_ticket() -> None:
    cluster = started()
    primary, backup = cluster.primary, cluster.backups()[0]
    message = CallAppend(primary.core.generation, call_id(1), 1, "level", 1, "x", arguments("l"), 7)
    primary.report(lambda: primary.core.on_message(backup.name, message))
    cluster.pause(0.3)
    assert cluster.tnx_of(1) == 0 and cluster.levels() == ["", "", ""]


def test_the_history_holds_so_many_and_the_last_of_each_name() -> None:
    cluster = started(2, calls_kept=3)
    for number in range(1, 9):
        cluster.call(cluster.primary, number, f"l{number}", name="x" if number != 2 else "y")
        assert isinstance(cluster.answered(number), CallDone)
    calls = cluster.primary.core.replica.contents.calls
    assert [each.tnx_id for each in calls.kept] == [2, 6, 7, 8] and calls.purged_to == 5
    assert {node.core.replica.contents.calls.digest() for node in cluster.nodes.values()} == {calls.digest()}
