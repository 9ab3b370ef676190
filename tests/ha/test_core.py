"""What one node does with what its shell and its operator tell it, one rule a test (``ha.core``)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from ha.apply.record_gate import NO_RECORD
from ha.catchup.join_guard import JoinGuard
from ha.catchup.replicating_subscription import ReplicatingSubscription
from ha.effects import LogLine, ReadQueue, Send
from ha.log_events import RefusedByPrimary
from ha.membership.record import MemoryCoordination, first_record
from ha.messages.attaching import AttachmentRefused, Granted, Join
from ha.messages.election import HandoverRefused, HandoverRequest, Outdated, Probe, Promoted
from ha.messages.sizes import ENTRY, OVERHEAD, message_bytes
from ha.messages.stream import Ack
from ha.primary.backlog import EVENT_OVERHEAD
from ha.primary.backup_session import BackupSession
from tests.support.branch_steps import decide_globally, work_on
from tests.support.invariants import unchecked
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_disk import CLUSTER_ID
from tests.support.memory_host import text
from tests.support.steps import backups_of, begin_t, declared, publish
from txobserver.events import Removal, Settle
from txobserver.ids import Member
from txobserver.ports.ledger import Found
from txobserver.ports.store import Above, Page


def test_a_node_without_a_record_stops_and_says_what_to_do() -> None:
    """It founds nothing by itself (``empty_node_founds_anew``)."""
    cluster = MemoryCluster(2)
    cluster.coordination.record = None
    cluster.turn()
    assert {node.stopped for node in cluster.nodes.values()} == {NO_RECORD}


def test_a_primary_whose_store_failed_only_gives_its_lease_up() -> None:
    """Its clients are told once, the store's reason; and a lease that ends meanwhile is no second one."""
    cluster = declared("q", size=1)
    node = cluster.primary
    cluster.cas_held.add(node.name)
    node.report(lambda: node.core.on_store_error("input/output error"))
    assert node.host.closed == ["input/output error"]
    keeper, now = node.core.leading.keeper, cluster.now + 3600
    assert keeper is not None and keeper.expired(now) and not node.core.overslept(now)
    node.core.look_at_clock(now, 0)
    assert node.host.closed == ["input/output error"] and node.core.leading.keeper is keeper
    node.core.on_store_error("once more")
    assert node.host.closed == ["input/output error"] and node.core.failed == "input/output error"
    node.core.resign("the node is stopping")
    assert node.host.closed == ["input/output error"]
    assert not any("resigning" in str(effect) for effect in node.core.take_effects())


@pytest.mark.parametrize("fails", [False, True])
def test_a_primary_whose_store_failed_takes_no_page_that_was_asked_for_before(fails: bool) -> None:
    """Its clients have gone, and with them all who wait for it."""
    cluster, found = declared("q", size=1), list[Found]()
    node = cluster.primary
    assert node.host.ledger is not None
    node.host.ledger.read(Above(node.host.number("q"), -1, 9, 1000), found.append)
    (asked,) = (effect for effect in node.core.take_effects() if isinstance(effect, ReadQueue))
    if fails:
        node.core.on_store_error("input/output error")
    node.core.on_queue_read(asked, Page([], False))
    assert len(found) == (0 if fails else 1)


def test_what_is_cut_is_not_durable_however_late_its_write_is_heard_of() -> None:
    """Also at a node that follows no primary: what it takes next at these sequences is on no disk yet."""
    (backup,) = backups_of(declared("q", size=2))
    core, tail = backup.core, backup.core.replica.tail.sequence
    for follows in (True, False):
        assert (core.following is not None) is follows
        core.on_durable(tail + 5)
        assert core.replica.durable == tail
        assert core.record is not None
        core.on_record(replace(core.record, version=core.record.version + 1, primary=None))


def test_a_primary_and_one_whose_store_failed_go_by_no_record_that_is_read() -> None:
    """The keeper of the one knows better, and the other only waits for its end."""
    cluster = declared("q", size=2)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    primary.report(lambda: primary.core.on_record(None))
    assert primary.stopped is None and primary.core.leading is not None
    backup.report(lambda: backup.core.on_store_error("input/output error"))
    said = backup.stopped
    assert backup.core.leading is None and backup.core.failed
    backup.report(lambda: backup.core.on_record(None))
    assert backup.stopped == said != NO_RECORD


def test_who_has_failed_is_not_promoted_by_what_it_asked_before() -> None:
    """Its proposal is made while its store fails: the lease ends by itself, and no node serves from that store."""
    cluster = declared("q", size=2)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    cluster.cas_held.add(backup.name)
    cluster.kill(primary.name)
    cluster.run(lambda: backup.core.candidate.in_flight is not None)
    backup.report(lambda: backup.core.on_store_error("input/output error"))
    cluster.cas_held.clear()
    before = cluster.coordination.record
    cluster.run(lambda: cluster.coordination.record is not before)
    cluster.turn()
    assert backup.core.leading is None and backup.core.failed


def test_who_asks_to_be_primary_is_still_a_backup_meanwhile() -> None:
    """It is attached to no primary anew; what its attachment brings is taken as ever."""
    cluster = declared("q", size=2)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    backup.core.candidate._unresolved = 1 << 30
    assert backup.core.candidate.proposing
    publish(primary, "q", "m")
    cluster.run(lambda: confirmed(primary))
    assert backup.member in cluster.coordination.record.ready  # type: ignore[union-attr]


@pytest.mark.parametrize("primary", ["no node", "itself", "another"])
def test_a_backup_whose_primary_is_no_primary_any_more_is_attached_to_it_no_more(primary: str) -> None:
    """The record may name no node, this node itself in an earlier life, or another."""
    cluster = declared("q")
    backup, other = backups_of(cluster)
    assert backup.core.state == "ready" and backup.core.record is not None
    named = {"no node": None, "itself": backup.member, "another": other.member}[primary]
    record = backup.core.record
    later = replace(record, version=record.version + 1, primary=named)
    backup.report(lambda: backup.core.on_record(later))
    assert backup.core.state == "joining"
    if primary == "another":
        assert backup.core.following is not None and backup.core.following.backup.primary == other.name
        assert not backup.core.following.backup.attached
    else:
        assert backup.core.following is None


def test_who_is_ready_takes_over_from_its_primary_without_a_loss() -> None:
    cluster = declared("q")
    asked: list[tuple[str, str]] = []

    def look(source: str, target: str, message: object) -> bool:
        if isinstance(message, HandoverRequest):
            asked.append((source, target))
        return False

    cluster.lose = look
    primary, backup = cluster.primary, backups_of(cluster)[0]
    assert backup.core.promote(accept_data_loss=False) is None
    backup.report(lambda: None)
    assert asked == [(backup.name, primary.name)]
    assert "already" in (primary.core.promote(accept_data_loss=False) or "")


@pytest.mark.parametrize("state", ["catchup", "joining"])
def test_who_is_not_ready_does_not(state: str) -> None:
    cluster = declared("q")
    backup = backups_of(cluster)[0]
    backup.core.state = state
    assert "only a ready backup" in (backup.core.promote(accept_data_loss=False) or "")


def confirmed(node: MemoryNode) -> bool:
    return node.host.answer("publish m") == "ok"


def test_a_joiner_past_its_guard_is_waited_for_although_nobody_lists_it() -> None:
    """It takes part in what is closed from then on (``ready_but_not_participant``)."""
    cluster = declared("q", size=1)
    node = cluster.primary
    backups = node.core.leading.backups
    assert backups is not None
    tail = node.core.replica.tail.sequence
    joiner = BackupSession(Member("b", "b1"), 1, node.core.generation, tail, JoinGuard(tail), cluster.now)
    joiner.heard(cluster.now)
    joiner.trackers.track(7, {1}, tail + 1000)  # so it is not granted ready
    backups.sessions["b"] = joiner
    publish(node, "q", "m")
    cluster.pause(0.1)
    assert node.core.replica.durable == tail + 1 and backups.attachments.durable_everywhere() == tail
    assert not confirmed(node)
    joiner.guard = JoinGuard(tail + 1)
    assert backups.attachments.durable_everywhere() == tail + 1, "before its guard it is not"
    joiner.acknowledge(tail + 1, cluster.now)
    cluster.run(lambda: confirmed(node))


def test_who_lags_and_finds_the_log_gone_must_copy() -> None:
    """Its attachment ends at once, and the next one is a copy."""
    cluster = declared("q", size=2)
    node, other = cluster.primary, backups_of(cluster)[0]
    backups = node.core.leading.backups
    assert backups is not None
    number = backups.sessions[other.name].number
    node.report(lambda: node.core.on_log_read(other.name, number - 1, []))
    assert other.name in backups.sessions, "an earlier attachment's answer"
    node.report(lambda: node.core.on_log_read(other.name, number, []))
    assert other.name not in backups.sessions
    cluster.run(lambda: f"backup {other.name} resynchronises queue by queue" in node.lines)
    cluster.settled()


def test_what_is_of_a_lower_generation_is_answered_with_the_higher_one_and_no_such_answer_is() -> None:
    cluster = declared("q", size=2)
    node = cluster.primary
    node.core.generation = 9
    with unchecked():  # a generation that no node began
        for message in (Probe(1, 5), Ack(1, 77, 3)):
            node.core.on_message("b", message)
            assert [each for each in node.core.take_effects() if isinstance(each, Send)] == [Send("b", Outdated(9))]
        for answer in (AttachmentRefused(1, 77, "an earlier one"), Outdated(1), HandoverRefused(1, "an earlier one")):
            node.core.on_message("b", answer)
        assert not [each for each in node.core.take_effects() if isinstance(each, Send)], "or two would refuse for ever"


def test_what_is_settled_counts_as_waiting_before_it_is_written() -> None:
    """A client that only acknowledges fills the backlog, too."""
    cluster = declared("q", size=1)
    primary, number = cluster.primary.core.leading.primary, cluster.primary.host.number("q")
    assert primary is not None
    before = primary.writer.backlog.gathered_bytes
    primary.ledger.settle(number, [(offset << 20, offset) for offset in range(1, 51)], Removal.ACKED)
    assert primary.writer.backlog.gathered_bytes == before + 50 * ENTRY + OVERHEAD + EVENT_OVERHEAD
    primary.ledger.settle(number, [(offset << 20, offset) for offset in range(51, 61)], Removal.ACKED)
    assert primary.writer.backlog.gathered_bytes == before + 60 * ENTRY + OVERHEAD + EVENT_OVERHEAD, "of the same event"


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize("one_phase", [False, True])
def test_a_branch_that_a_former_primary_closes_is_neither_prepared_nor_answered(one_phase: bool, fenced: bool) -> None:
    """Its client loses the connection: the outcome is unknown to it."""
    cluster = declared("q", "r", size=1)
    node = cluster.primary
    observer, primary = work_on(node), node.core.leading.primary
    if fenced:
        decide_globally(node, True)
    cluster.turn()
    assert primary is not None
    primary.abandon()
    tail = node.core.replica.tail
    done = node.host.note("closed")
    if one_phase:
        observer.commit_one_phase(done)
    else:
        observer.prepare(done)
    assert node.core.replica.tail == tail and node.host.answer("closed") is None


def test_the_record_that_a_cluster_is_founded_with_is_the_one_that_is_stored() -> None:
    first = first_record("c", CLUSTER_ID, Member("a", "a1"))
    assert MemoryCoordination().compare_and_set(0, first) == first


def test_only_the_grant_of_the_attachment_that_stands_counts() -> None:
    """One of an earlier attachment says nothing of this one."""
    cluster = declared("q", size=2)
    backup = backups_of(cluster)[0]
    cluster.kill(backup.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 1)  # type: ignore[union-attr]
    cluster.cas_held.add(cluster.primary.name)
    joiner = cluster.start(backup.name)
    cluster.run(lambda: joiner.state == "catchup")
    core = joiner.core
    assert core.following is not None and core.following.backup.attached
    for session, state in ((core.following.backup.session - 1, "catchup"), (core.following.backup.session, "ready")):
        core.on_message(core.following.backup.primary, Granted(core.generation, session))
        assert core.state == state


def test_only_a_refusal_of_what_was_asked_last_ends_it() -> None:
    cluster = declared("q", size=2)
    core = backups_of(cluster)[0].core
    assert core.following is not None
    core.on_message("a", AttachmentRefused(core.generation, core.following.backup.session - 1, "an earlier one"))
    core.on_message("a", HandoverRefused(core.generation, "a request, and no attachment"))
    assert core.following.backup.attached and core.state == "ready"
    core.on_message("a", AttachmentRefused(core.generation, core.following.backup.session, "silent for too long"))
    assert not core.following.backup.attached and core.state == "joining"
    said = [each.event for each in core.take_effects() if isinstance(each, LogLine)]
    told = [each.reason for each in said if isinstance(each, RefusedByPrimary)]
    assert told == ["a request, and no attachment", "silent for too long"]


def test_who_takes_its_primary_for_silent_asks_to_be_attached_at_once() -> None:
    """Not only when it would ask again: commits may be waiting for it."""
    cluster = declared("q", size=2, silence=3.0, rejoin_every=60.0)
    (node,) = backups_of(cluster)
    core, primary = node.core, cluster.primary.name
    core.tick()
    assert core.following is not None and core.following.backup.attached
    core.take_effects()
    core.set_clock(cluster.now + 3.1, 0)
    core.tick()
    asked = [each.message for each in core.take_effects() if isinstance(each, Send) and each.peer == primary]
    assert any(isinstance(message, Join) for message in asked)


def test_attachments_are_numbered_upwards_from_where_the_process_begins() -> None:
    """Also from 0 on: a negative number cannot be sent."""
    cluster = declared("q", size=2)
    name = backups_of(cluster)[0].name
    cluster.kill(name)
    cluster.starts = -1
    joiner = cluster.start(name)
    cluster.settled()
    assert joiner.core.following is not None and 0 < joiner.core.following.backup.session < 1000


def test_a_transaction_that_a_former_primary_commits_is_neither_written_nor_answered() -> None:
    cluster = declared("q", "r", size=1)
    node = cluster.primary
    observer, primary = begin_t(node), node.core.leading.primary
    cluster.turn()
    assert primary is not None
    primary.abandon()
    tail = node.core.replica.tail
    observer.commit(node.host.note("commit"))
    assert node.core.replica.tail == tail and node.host.answer("commit") is None


@pytest.mark.parametrize("accept_data_loss", [False, True])
def test_nobody_is_promoted_before_the_record_was_read_nor_on_one_that_was_refused(accept_data_loss: bool) -> None:
    node = MemoryCluster(1).nodes["a"]
    record = node.cluster.coordination.record
    assert record is not None and node.core.record is None
    assert "has not been read yet" in (node.core.promote(accept_data_loss) or "")
    node.core.on_record(record)
    node.core.on_record(replace(record, version=9, cluster_id="feed" * 8))
    assert node.core.record == record and node.core.waits_for_operator
    assert node.core.promote(accept_data_loss) == node.core.waits_for_operator


@pytest.mark.parametrize("counts", [False, True])
def test_only_the_guard_of_one_that_does_not_count_is_raised(counts: bool) -> None:
    """Who counts holds the commits up already: it is never sent back to catching up."""
    cluster = declared("q", size=2, small_lag=3)
    node, other = cluster.primary, backups_of(cluster)[0]
    for number in range(20):
        publish(node, "q", str(number))
    cluster.pause(0.3)
    backups, tail = node.core.leading.backups, node.core.replica.tail.sequence
    assert backups is not None
    member = other.member if counts else Member(other.name, "another")
    session = BackupSession(member, 9, node.core.generation, tail - 10, JoinGuard(tail - 10), cluster.now)
    session.acknowledged = tail - 11
    backups.sessions[other.name] = session
    backups.acknowledged(other.name, Ack(node.core.generation, 9, tail - 10), cluster.now)
    assert session.acknowledged == tail - 10 and session.past_guard is counts


def test_what_waits_for_a_joiner_is_all_that_came_since_it_was_sent_something() -> None:
    subscription = ReplicatingSubscription(1)
    subscription.cursor = 100
    for offset in (1, 2):
        subscription.gone([(offset, 1), (offset + 10, 2), (101, 3)])
        subscription.enqueued(offset + 20, offset, text("m"))
    assert subscription.waiting == 4 * ENTRY + 2 * message_bytes(text("m"))


def test_settlements_share_an_event_only_where_they_follow_each_other() -> None:
    """What lies between two of them would come behind both."""
    primary = declared("q", "r", size=1).primary.core.leading.primary
    assert primary is not None
    for queue, offset in ((1, 1), (1, 2), (2, 3), (1, 4)):
        primary.ledger.settle(queue, [(offset, offset)], Removal.ACKED)
    told = [(each.queue, each.entries) for each in primary.writer._group if isinstance(each, Settle)]
    assert told == [(1, [(1, 1), (2, 2)]), (2, [(3, 3)]), (1, [(4, 4)])]


def test_a_primary_does_nothing_for_who_follows_a_later_generation() -> None:
    """Its lease will tell it: to read the record would delay its own renewals, and one that joins would count."""
    cluster = declared("q")
    primary, backup = cluster.primary, backups_of(cluster)[0]
    core, generation = primary.core, cluster.primary.core.generation + 1
    assert core.leading is not None
    before = dict(core.leading.backups.sessions)
    tail = core.replica.tail
    core.take_effects()
    for message in (Promoted(generation), Join(generation, 77, backup.member, [tail], tail, tail.sequence, False)):
        core.on_message(backup.name, message)
        assert core.take_effects() == []
    assert core.leading is not None and core.leading.backups.sessions == before
