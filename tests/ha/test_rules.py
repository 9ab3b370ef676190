"""Small rules, each by itself: comparing logs, walking a queue, refusing lower generations, who may stand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.catchup.history import common_sequence
from ha.catchup.replicating_subscription import PAGE, ReplicatingSubscription
from ha.feed.recent_frames import RecentFrames
from ha.membership.node_state import ACTIVE, RECOVERING
from ha.messages.election import HandoverRequest, Outdated
from ha.messages.stream import Ack, Commit
from ha.messages.wire import decode, encode
from ha.primary.attachments import Attachments
from ha.primary.fanout import Fanout
from ha.primary.primary import Primary
from tests.support.memory_cluster import MemoryCluster
from tests.support.memory_host import text
from tests.support.steps import answered, backups_of, begin_t, commit, decided, declared, publish, whole_or_absent
from txobserver.events import TxOpen
from txobserver.frames import encode_frame
from txobserver.ids import Position
from txobserver.ports.store import MemoryBase, Meta
from txobserver.state.contents import Contents

P = Position


@pytest.mark.parametrize(
    ("ours", "our_tail", "theirs", "their_tail", "common"),
    [
        ([], 0, [], 0, 0),
        ([P(1, 1)], 9, [], 0, 0),
        ([P(1, 1)], 9, [P(1, 1)], 5, 5),
        ([P(1, 1)], 9, [P(1, 1)], 12, 9),
        ([P(1, 1), P(2, 8)], 20, [P(1, 1)], 12, 7),
        ([P(1, 1), P(2, 8)], 20, [P(1, 1)], 5, 5),
        ([P(1, 1), P(3, 8)], 20, [P(1, 1), P(2, 8)], 30, 7),
        ([P(1, 1), P(2, 8), P(3, 15)], 20, [P(1, 1), P(2, 8)], 30, 14),
        ([P(5, 1)], 9, [P(4, 1)], 9, 0),
        ([P(1, 1), P(2, 8), P(3, 10)], 20, [P(1, 1), P(2, 9), P(3, 10)], 20, 7),
    ],
)
def test_where_two_logs_part(
    ours: list[Position], our_tail: int, theirs: list[Position], their_tail: int, common: int
) -> None:
    assert common_sequence(ours, our_tail, theirs, their_tail) == common
    assert common_sequence(theirs, their_tail, ours, our_tail) == common


@given(st.lists(st.integers(0, 5), max_size=60), st.integers(0, 3 * PAGE), st.randoms())
def test_a_walked_queue_is_copied_exactly_whatever_happens_meanwhile(
    script: list[int], count: int, rng: object
) -> None:
    """0 walks, 1 enqueues, 2 removes, 3 sends the live changes, 4 forgets them and turns back, 5 does so to the end."""
    contents = Contents(MemoryBase(), Meta())
    contents.queues.add(1)
    for offset in range(count):
        contents.queues.insert(1, offset, offset, text("m"))
    subscription, copy, last = ReplicatingSubscription(1), {}, count

    def send() -> None:
        for added, removed in subscription.take_changes(250):
            assert 1 <= len(added) + len(removed) <= 12
            for offset, rid, _ in added:
                assert offset not in copy, "sent twice"
                copy[offset] = rid
            for offset, rid in removed:
                assert copy.pop(offset) == rid

    def walk() -> None:
        after, through, ids = subscription.next_page(contents)
        assert all(after < offset <= through for offset, _ in ids)
        for offset in [offset for offset in copy if after < offset <= through]:
            del copy[offset]
        copy.update(ids)

    for step in [*script, 0, 0, 0, 0, 3]:
        if step == 0 and not subscription.live:
            send()
            walk()
        elif step == 1:
            contents.queues.insert(1, last, last, text("m"))
            subscription.enqueued(last, last, text("m"))
            last += 1
        elif step == 2 and contents.messages.ids(1):
            offset, rid = rng.choice(contents.messages.ids(1))  # type: ignore[attr-defined]
            contents.queues.remove(1, offset, rid)
            subscription.gone([(offset, rid)])
        elif step == 3:
            send()
        elif step >= 4:
            waited = subscription.waiting
            subscription.turn_back(None if step == 4 else -1)
            assert not subscription.waiting
            assert not waited or not subscription.live
    while not subscription.live:
        send()
        walk()
    send()
    assert copy == dict(contents.messages.ids(1))


def test_a_message_of_a_lower_generation_is_refused_and_has_no_effect() -> None:
    cluster = declared("q", "r")
    cluster.kill(cluster.primary.name)
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
    cluster.run(cluster.all_ready)
    primary, backup = cluster.primary, backups_of(cluster)[0]
    sent: list[object] = []
    cluster.lose = lambda source, target, message: bool(sent.append(message))
    before = backup.core.replica.applied
    assert backup.core.following is not None
    stale = Commit(primary.core.generation - 1, backup.core.following.backup.session, 10**6)
    backup.report(lambda: backup.core.on_message(primary.name, stale))
    assert backup.core.replica.applied == before
    assert any(message == Outdated(primary.core.generation) for message in sent)
    acknowledged = primary.core.leading.backups.sessions[backup.name].acknowledged  # type: ignore[union-attr]
    late = Ack(primary.core.generation - 1, backup.core.following.backup.session, 10**6)
    primary.report(lambda: primary.core.on_message(backup.name, late))
    assert primary.core.leading.backups.sessions[backup.name].acknowledged == acknowledged  # type: ignore[union-attr]


def test_a_backup_applies_nothing_that_its_own_disk_lacks() -> None:
    cluster = declared("q")
    primary, _, slow = cluster.primary, *backups_of(cluster)
    slow.disk_held = True
    publish(primary, "q", "m")
    cluster.pause(0.1)
    backup = slow.core.following.backup
    assert backup is not None and slow.core.replica.tail.sequence > slow.disk.durable
    told = Commit(primary.core.generation, backup.session, slow.core.replica.tail.sequence)
    slow.report(lambda: slow.core.on_message(primary.name, told))
    assert slow.core.replica.applied.sequence <= slow.disk.durable


@pytest.mark.parametrize("better", [0, 1])
def test_the_greatest_position_wins(better: int) -> None:
    """Whichever backup has the decision becomes primary when both can be asked; no name decides against it.

    Its change of the record takes a while, and less than a lease: longer, it would give its precedence up.
    """
    cluster = declared("q", "r")
    primary, *backups = cluster.primary, *backups_of(cluster)
    with_it, without = backups[better], backups[1 - better]
    commit(primary, begin_t(primary))
    cluster.run(lambda: decided(primary))
    cluster.held.add((primary.name, without.name))
    cluster.run(lambda: decided(with_it))
    cluster.pause(0.05)
    cluster.kill(primary.name)
    cluster.held.clear()
    cluster.cas_held.add(with_it.name)
    cluster.run(lambda: any(node is with_it for node, _ in cluster.cas))
    cluster.pause(0.9)
    assert without.state != "recovering" and without.state != "active"
    cluster.cas_held.clear()
    cluster.run(lambda: with_it.state == "active")
    assert whole_or_absent(cluster, ("q", "t"), ("r", "t"))


def test_an_old_incarnation_is_taken_out_as_soon_as_the_new_one_comes() -> None:
    cluster = declared("q")
    primary, _, wiped = cluster.primary, *backups_of(cluster)
    cluster.cas_held.add(primary.name)
    cluster.kill(wiped.name)
    cluster.start(wiped.name, wipe=True)
    cluster.pause(0.1)
    publish(primary, "q", "m")
    cluster.cas_held.clear()
    began = cluster.now
    answered(cluster, primary, "publish m")
    assert cluster.now - began < 1.0
    assert wiped.member not in cluster.coordination.record.ready  # type: ignore[union-attr]


def test_recent_frames_drop_the_oldest_and_find_by_first_sequence() -> None:
    frames = [encode_frame(1, 1 + 2 * n, [TxOpen(1), TxOpen(2)], 0) for n in range(10)]
    recent = RecentFrames(5 * len(frames[0].data))
    for frame in frames:
        recent.add(frame)
    assert recent.starting_at(1) is None and recent.starting_at(12) is None and recent.starting_at(21) is None
    assert all(recent.starting_at(frame.first) is frame for frame in frames[5:])


@given(st.binary(max_size=200))
def test_no_bytes_crash_the_decoder(data: bytes) -> None:
    try:
        message = decode(data)
    except ValueError:
        return
    assert decode(encode(message)) == message


def test_the_cluster_s_own_oracle_bites() -> None:
    """An answer that some ready member's disk does not cover is noticed, or every green run above proves nothing."""
    cluster: MemoryCluster = declared("q")
    backup = backups_of(cluster)[0]
    backup.disk.frames = backup.disk.frames[:-1]
    with pytest.raises(AssertionError, match="has it not on disk"):
        cluster.check_durable(cluster.primary, "anything")


def test_clients_are_not_read_while_too_much_waits_for_a_backup() -> None:
    """Publishes and events of open transactions alike; and they are read again when it has caught up."""
    cluster = declared("q", backlog_bytes=20_000)
    primary, slow, _ = cluster.primary, *backups_of(cluster)
    core = primary.core.leading.primary
    assert core is not None and not core.congested
    for inside in (False, True):
        slow.disk_held = True
        observer = core.ledger.begin()
        for number in range(200):
            if inside:
                primary.report(lambda: observer.enqueue([primary.host.number("q")], text("t")))  # noqa: B023
            else:
                publish(primary, "q", f"m{number}")
        cluster.pause(0.1)
        assert core.congested
        slow.disk_held = False
        cluster.run(lambda: not core.congested)
    assert primary.core.leading.primary is core


def test_clients_of_a_new_primary_are_read_at_once() -> None:
    """Also before it has looked at its backups for the first time."""
    cluster = declared("q")
    at = cluster.primary.core
    attachments = Attachments("a", 1, at.replica, at.leading.keeper, lambda effect: None, at.now)
    fresh = Primary(attachments, Fanout(), at.replica, at.host, cluster.settings, lambda effect: None)
    assert not fresh.congested


def test_a_handover_is_not_begun_before_the_primary_serves() -> None:
    """A backup asks for one while its primary is still recovering: it would close clients that it has not let in."""
    cluster = declared("q")
    primary, heir = cluster.primary, backups_of(cluster)[0]
    assert heir.core.following is not None
    asked = HandoverRequest(primary.core.generation, heir.core.following.backup.session)
    primary.core.state = RECOVERING
    primary.core.on_message(heir.name, asked)
    assert primary.host.closed == []
    primary.core.state = ACTIVE
    primary.core.on_message(heir.name, asked)
    cluster.run(lambda: primary.host.closed == [f"handing over to {heir.name}"])


def test_clients_are_not_read_while_checkpoints_are_behind() -> None:
    cluster = declared("q", checkpoint_bytes=1000)
    primary = cluster.primary
    core = primary.core.leading.primary
    assert core is not None
    held, primary.do_writes = primary.do_writes, lambda: None  # type: ignore[method-assign]
    contents = primary.core.replica.contents
    queue = primary.host.number("q")
    for offset in range(1, 16):
        assert not core.congested
        contents.queues.insert(queue, offset, offset, text("m"))
    assert core.congested
    primary.do_writes = held  # type: ignore[method-assign]
    cluster.run(lambda: not core.congested)
