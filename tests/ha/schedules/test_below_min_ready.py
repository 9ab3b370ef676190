"""Below ``min_ready`` nothing is confirmed; what no client waits for is taken all the same, as from any client."""

from __future__ import annotations

from tests.ha.schedules.test_ready_set import hold_the_add
from tests.support.memory_host import text
from tests.support.steps import backups_of, declared
from txobserver.events import TxOpen


def test_what_is_confirmed_is_refused_and_what_is_not_is_taken() -> None:
    cluster = declared("q", min_ready=2)
    node = cluster.primary
    primary, number = node.core.leading.primary, node.host.number("q")
    assert primary is not None and not primary.decisions.below_min_ready
    for backup in backups_of(cluster):
        cluster.kill(backup.name)
    cluster.run(lambda: primary.decisions.below_min_ready)
    answers: list[str | None] = []
    tail = node.core.replica.tail.sequence
    primary.ledger.publish([number], text("m"), answers.append)
    assert len(answers) == 1 and answers[0] and node.core.replica.tail.sequence == tail
    primary.ledger.publish([number], text("m"), None)
    assert len(answers) == 1 and node.core.replica.tail.sequence == tail + 1


def test_who_may_be_ready_is_not_counted_among_the_ready() -> None:
    """Its addition may never have been made: then what is confirmed would be lost with the others."""
    cluster = declared("q", size=2, min_ready=2)
    node, (backup,) = cluster.primary, backups_of(cluster)
    primary, keeper = node.core.leading.primary, node.core.leading.keeper
    assert primary is not None and keeper is not None
    cluster.kill(backup.name)
    cluster.run(lambda: primary.decisions.below_min_ready)
    joiner = cluster.start(backup.name)
    hold_the_add(cluster, node, joiner)
    cluster.pause(0.1)
    assert keeper.counted() == {joiner.member} and primary.decisions.below_min_ready
    cluster.cas_held.clear()
    cluster.run(lambda: not primary.decisions.below_min_ready)
    assert joiner.member in keeper.record.ready


def test_a_primary_that_was_abandoned_takes_nothing() -> None:
    """Late calls of clients that are being closed have no effect."""
    cluster = declared("q")
    node = cluster.primary
    primary, number = node.core.leading.primary, node.host.number("q")
    assert primary is not None
    primary.abandon()
    assert primary.writer.abandoned and primary.writer.append(TxOpen(77)) == 0
    tail = node.core.replica.tail.sequence
    primary.ledger.publish([number], text("m"), None)
    assert node.core.replica.tail.sequence == tail


def test_a_primary_that_takes_over_below_min_ready_serves_all_the_same() -> None:
    """What it refuses to confirm it refuses to clients; it does not wait for others before it serves any."""
    cluster = declared("q", size=2, min_ready=2)
    (backup,) = backups_of(cluster)
    cluster.kill(cluster.primary.name)
    cluster.run(lambda: backup.state == "active")
    assert [member.node for member in backup.core.leading.keeper.record.ready] == [backup.name]
    cluster.run(lambda: backup.core.leading.primary.decisions.below_min_ready)


def test_who_steps_down_forgets_what_was_never_written() -> None:
    """Its tail is on no disk: it would stand for primary, and be followed, by events that no node has."""
    cluster = declared("q", size=2)
    node = cluster.primary
    tail, primary = node.core.replica.tail, node.core.leading.primary
    primary.ledger.publish([node.host.number("q")], text("m"), None)
    assert node.core.replica.tail.sequence == tail.sequence + 1
    node.core.look_at_clock(cluster.now + 3600, 0)
    assert node.core.leading is None and primary.writer.abandoned
    assert node.core.replica.tail == tail


def test_a_primary_that_gives_its_lease_up_commits_nothing_more() -> None:
    """Its change of the record may have been made already, and the next primary have begun."""
    cluster = declared("q", size=2)
    node = cluster.primary
    leading = node.core.leading
    cluster.cas_held.add(node.name)
    leading.keeper.release("", cluster.now)
    before, tail = leading.primary.point.sequence, node.core.replica.tail.sequence
    leading.primary.ledger.publish([node.host.number("q")], text("m"), None)
    cluster.pause(0.1)
    assert node.core.leading is leading and leading.backups.attachments.durable_everywhere() > tail
    assert leading.primary.point.sequence == before
