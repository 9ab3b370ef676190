"""Schedules that the simulator found: each one broke a promise once."""

from __future__ import annotations

from ha.apply.replica import Replica
from ha.catchup.resync import Resync
from ha.effects import Effect, LogLine, Send
from ha.membership.candidate import Candidate
from ha.membership.record import Record
from ha.messages.attaching import AttachmentRefused
from ha.messages.copying import SnapshotEnd
from ha.messages.election import HandoverRequest, Probe, ProbeReply
from ha.messages.wire import decode
from ha.settings import Settings
from tests.support.copying import asked_for_a_reset
from tests.support.memory_cluster import MemoryCluster
from tests.support.steps import answered, backups_of, begin_t, commit, declared, publish
from txobserver.configuration import queue_step
from txobserver.events import Configure
from txobserver.ids import Member, Position
from txobserver.ports.store import MemoryBase, Meta


def test_refusal_lost() -> None:
    """P12: the primary lets go of a joiner, and the word of it is lost: the joiner asks again by itself."""
    cluster = declared("q", prepare_timeout=0.3)
    primary, name = cluster.primary, backups_of(cluster)[0].name
    cluster.kill(name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    publish(primary, "q", "what it lacks")
    cluster.lose = lambda source, target, message: target == name and isinstance(message, AttachmentRefused)
    joiner = cluster.start(name)
    joiner.disk_held = True
    cluster.run(lambda: name in primary.core.leading.backups.sessions)
    cluster.run(lambda: name not in primary.core.leading.backups.sessions)
    joiner.disk_held = False
    assert joiner.core.following.backup.attached, "it has not been told"
    cluster.run(cluster.all_ready)


def test_a_joiner_in_the_middle_of_a_snapshot_hears_from_the_primary() -> None:
    """Else it would take a long step of its own for the end of its attachment, and begin anew for ever."""
    cluster = declared("q", prepare_timeout=60.0)
    joiner = backups_of(cluster)[0]
    cluster.kill(joiner.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    joiner = cluster.start(joiner.name, wipe=True)
    frames = cluster.primary.disk.frames
    publish(cluster.primary, "q", "m")
    cluster.primary.core.log_first = frames[-1].last + 1
    cluster.run(lambda: joiner.core.replica.resyncing)
    joiner.disk_held = True
    session = joiner.core.following.backup.session
    cluster.pause(cluster.settings.silence + 1)
    assert joiner.core.following.backup.attached and joiner.core.following.backup.session == session


def test_reset_of_an_earlier_attachment() -> None:
    """P12: a joiner's log is emptied for a snapshot, and it is attached anew meanwhile: that was for the former one."""
    cluster, joiner = asked_for_a_reset()
    first = joiner.core.following.backup.session
    cluster.partition(joiner.name)
    cluster.turn()
    cluster.heal()
    cluster.run(lambda: joiner.core.following.backup.session != first and joiner.core.following.backup.attached)
    joiner.disk_held = False
    cluster.run(cluster.all_ready)
    cluster.check_agreement()


def test_handover_outlives_the_lease() -> None:
    """P10, P12: a primary that cannot give its lease up in time steps down all the same."""
    cluster = declared("q", "r")
    primary, heir = cluster.primary, backups_of(cluster)[0]
    cluster.cas_held.add(primary.name)
    assert heir.core.promote(False) is None
    heir.report(lambda: None)
    cluster.run(lambda: primary.host.ledger is None)
    cluster.run(lambda: primary.state == "joining", seconds=cluster.settings.lease_ttl + 0.1)
    cluster.cas_held.clear()
    cluster.run(cluster.all_ready)


def test_handover_answers_nobody() -> None:
    """The broker has closed its clients: an outcome that becomes known later is told to no one."""
    cluster = declared("q", "r")
    primary, heir = cluster.primary, backups_of(cluster)[0]
    for backup in backups_of(cluster):
        cluster.held.add((backup.name, primary.name))
    commit(primary, begin_t(primary))
    primary.report(lambda: primary.host.declare("s"))
    cluster.pause(0.1)
    assert heir.core.following is not None
    asked = HandoverRequest(primary.core.generation, heir.core.following.backup.session)
    primary.report(lambda: primary.core.on_message(heir.name, asked))
    cluster.held.clear()
    cluster.run(lambda: heir.state == "active")
    assert primary.host.answer("commit") is None and primary.host.answer("declare s") is None


def test_failing_primary_leaves_the_absent() -> None:
    """P12: a primary whose store fails stays in the ready set when no other node is known to have what it has.

    The other member may never come back; this one's disk holds everything that was told.
    """
    cluster = declared("q", size=2, link_down_grace=60.0, prepare_timeout=60.0)
    primary, backup = cluster.primary, backups_of(cluster)[0]
    cluster.kill(backup.name)
    primary.disk_error = "the disk is full"
    publish(primary, "q", "m")
    cluster.run(lambda: primary.stopped is not None and cluster.coordination.record.released)
    assert primary.member in cluster.coordination.record.ready
    cluster.kill(primary.name)
    cluster.start(primary.name)
    cluster.run(lambda: cluster.nodes[primary.name].state == "recovering")


def test_failing_primary_leaves_to_nobody_who_has_not_said_that_it_holds_what_was_told() -> None:
    """It is a member, and attached a moment ago: what its log holds is not known yet."""
    cluster = declared("q", size=2)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    assert primary.core.leading is not None
    primary.core.leading.backups.sessions[backup.name].acknowledged = primary.core.leading.primary.point.sequence - 1
    primary.report(lambda: primary.core.on_store_error("input/output error"))
    cluster.run(lambda: cluster.coordination.record.released)
    assert primary.member in cluster.coordination.record.ready


def test_snapshot_with_later_configuration() -> None:
    """P7: what is applied before the end of a snapshot is encoded stands behind that end, and not in it as well."""
    replica, emitted = Replica(MemoryBase(), Meta(), {}), list[Effect]()
    resync = Resync("b", 1, 1, replica, emitted.append, 1, 1)
    resync.store_marked(0.0)
    step = queue_step("q", False, {})
    replica.append(1, Configure(1, step.operation, step.name, step.arguments))
    replica.apply(1)
    resync.progress(1, False, 0.0)
    (end,) = [e.message for e in emitted if isinstance(e, Send) and isinstance(e.message, SnapshotEnd)]
    assert replica.contents.configuration.last_id == 1
    assert end.position.sequence == 0 and end.last_id == 0


def test_a_clock_that_jumps_is_no_waiting() -> None:
    """P10: a candidate whose clock jumps has not watched the record stand still."""
    member, emitted = Member("a", "1"), list[Effect]()
    settings = Settings()
    candidate = Candidate(member, settings, emitted.append)
    record = Record("c", 7, 2, Member("b", "1"), (member, Member("b", "1")))
    candidate.observe(record, 10.0)
    candidate.tick(Position(2, 5), ["b"], 10.02)
    for jump in range(1, 20):
        candidate.tick(Position(2, 5), ["b"], 10.02 + jump)
    assert [type(each) for each in emitted] == [LogLine], "it was not watching for most of the 19 s, which is said"
    emitted.clear()
    now = 29.02
    while now < 29.02 + settings.lease_ttl:
        now += 0.02
        candidate.tick(Position(2, 5), ["b"], now)
    assert emitted, "a version that stands still for a lease has no primary"


def test_a_lease_ends_early_on_its_holder_s_clock() -> None:
    """P10: clocks run at different speeds; the holder's lease is over before a faster clock has counted it out."""
    cluster = MemoryCluster(2).settled()
    primary = cluster.primary
    keeper, settings = primary.core.leading.keeper, cluster.settings
    cluster.cas_held.add(primary.name)
    sent_at = keeper._sent_at
    assert keeper.holds(sent_at + settings.lease_ttl * (1 - settings.lease_drift) - 0.001)
    assert not keeper.holds(sent_at + settings.lease_ttl * (1 - settings.lease_drift))


def test_participants_taken_too_early() -> None:
    """P9: a joiner passes its guard and a transaction is closed in the same turn: it takes part, or a tracker knows."""
    cluster = declared("q", "r")
    primary, name = cluster.primary, backups_of(cluster)[0].name
    cluster.kill(name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    publish(primary, "q", "what it lacks")
    cluster.start(name)
    cluster.run(lambda: name in primary.core.leading.backups.sessions)
    session = primary.core.leading.backups.sessions[name]
    observer = begin_t(primary)
    assert not session.past_guard

    def passes_and_commits() -> None:
        session._next = session.guard.at + 1  # all of it is sent
        session.acknowledge(session.guard.at, cluster.now)
        observer.commit(primary.host.note("commit"))

    primary.report(passes_and_commits)
    (buffer,) = [each for each in primary.core.replica.buffers.values() if each.prepared is not None]
    assert session.past_guard and (name in buffer.participants or len(session.trackers))


def test_release_lands_late() -> None:
    """P12: the change that gives the lease up is thought lost, lands, and is met by the next one."""
    cluster = declared("q")
    primary, heir = cluster.primary, backups_of(cluster)[0]
    heir.report(lambda: heir.core.promote(False))
    cluster.cas_held.add(primary.name)
    cluster.run(lambda: any(effect.record.released for _, effect in cluster.cas))
    node, release = cluster.cas.pop(0)
    cluster.land(node, release, report=False)
    node.report(lambda: node.core.on_cas_failed(release))
    cluster.cas_held.clear()
    before = cluster.now
    cluster.run(lambda: primary.state == "joining")
    assert cluster.now - before < cluster.settings.lease_ttl / 2, "it steps down when it learns of it"
    cluster.run(cluster.all_ready)


def test_add_waits_and_the_joiner_comes_back_behind() -> None:
    """P9: an add that waits for its turn is for the attachment in which the joiner was in step, and for no other."""
    cluster = declared("q")
    primary, name = cluster.primary, backups_of(cluster)[0].name
    keeper = primary.core.leading.keeper
    cluster.kill(name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    cluster.cas_held.add(primary.name)
    cluster.run(lambda: keeper.in_flight is not None)
    joiner = cluster.start(name)
    cluster.run(lambda: joiner.member in keeper._adds)
    cluster.kill(name)
    publish(primary, "q", "what it lacks")
    answered(cluster, primary, "publish what it lacks")
    joiner = cluster.start(name)
    joiner.disk_held = True
    cluster.run(lambda: name in primary.core.leading.backups.sessions)
    publish(primary, "q", "more")
    answered(cluster, primary, "publish more")
    cluster.cas_held.clear()
    cluster.pause(0.5)
    assert joiner.member not in cluster.coordination.record.ready
    joiner.disk_held = False
    cluster.run(cluster.all_ready)


def test_overslept_and_answers_what_came_meanwhile() -> None:
    """P1, P10: a stopped primary goes on behind its lease; a question that came meanwhile finds it inactive."""
    cluster = declared("q")
    primary = cluster.primary
    publish(primary, "q", "taken by the next primary")
    cluster.run(lambda: primary.core.leading.primary.point.sequence == primary.core.replica.tail.sequence)
    found: list[object] = []
    cluster.now += cluster.settings.lease_ttl
    primary.report(lambda: found.append(primary.host.content))
    assert found == [None]


def test_probed_in_the_turn_of_its_end() -> None:
    """P2: a primary answers a candidate, and in the same turn its lease ends: what it forgets, it has not named."""
    cluster = declared("q")
    primary = cluster.primary
    asker = next(each for each in cluster.nodes if each != primary.name)
    written = primary.core.replica.tail
    cluster.wire.clear()

    def in_one_turn() -> None:
        primary.core.leading.primary.ledger.configure(queue_step("gathered", False, {}), primary.host.note("declare"))
        primary.core.on_message(asker, Probe(primary.core.generation, 3))
        primary.core.look_at_clock(cluster.now + cluster.settings.lease_ttl, 0)

    primary.report(in_one_turn)
    assert primary.core.leading is None
    replies = [decode(data) for source, _, data in cluster.wire if source == primary.name]
    assert [m.tail for m in replies if isinstance(m, ProbeReply)] == [written]


def test_a_primary_is_probed_for_a_later_generation() -> None:
    """``probed_for_a_later_generation``: it answers how far its log goes, serves on, and counts that generation."""
    cluster = declared("q")
    primary, asker = cluster.primary, backups_of(cluster)[0]
    later = primary.core.generation + 1
    primary.report(lambda: primary.core.on_message(asker.name, Probe(later, 7)))
    assert primary.core.state == "active" and primary.core.candidate._heard == later
    for _ in range(5):
        cluster.turn()
    assert cluster.primary is primary
