"""Named schedules of PROTOCOL about the ready set, promotion and the coordination store.

Besides its own assertions every schedule runs under the cluster's oracles: what is answered ok is on the disk of every
member of the ready set at that moment, and no ready member's store is undone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ha.core import NodeCore
from ha.effects import Send
from ha.membership.candidate import Candidate
from ha.membership.record import Record
from ha.messages.stream import Entries
from ha.settings import Settings
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import (
    T,
    answered,
    backups_of,
    begin,
    begin_t,
    commit,
    declared,
    publish,
    survivors_agree,
    whole_or_absent,
)
from txobserver.events import Delivered
from txobserver.ids import Member, Position, generation_of


def adding(cluster: MemoryCluster, joiner: MemoryNode) -> bool:
    return any(joiner.member in effect.record.ready for _, effect in cluster.cas)  # type: ignore[attr-defined]


def cut(cluster: MemoryCluster, one: MemoryNode, other: MemoryNode) -> None:
    for source, target in ((one, other), (other, one)):
        cluster.cut.add((source.name, target.name))
        source.report(lambda s=source, t=target: s.core.on_link(t.name, False))  # type: ignore[misc]


def test_add_cas_in_flight() -> None:
    cluster = declared("q", "r")
    primary, other, joiner = cluster.primary, *backups_of(cluster)
    cluster.kill(joiner.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    joiner = cluster.start(joiner.name)
    hold_the_add(cluster, primary, joiner)
    cut(cluster, primary, joiner)
    commit(primary, begin_t(primary))
    cluster.pause(0.5)
    assert primary.host.answer("commit") is None, "the joiner may be ready, and has nothing of T"
    node, add = cluster.cas.pop(0)
    cluster.land(node, add, report=False)
    cluster.kill(primary.name)
    cluster.kill(other.name)
    cluster.cas_held.clear()
    cluster.run(lambda: joiner.state == "active")
    assert not whole_or_absent(cluster, *T)


def hold_the_add(cluster: MemoryCluster, primary: MemoryNode, joiner: MemoryNode) -> None:
    """Let everything happen until the add of the joiner is on its way, and stop it there."""
    hold(cluster, primary, lambda effect: joiner.member in effect.record.ready)


def hold(cluster: MemoryCluster, primary: MemoryNode, wanted: Callable[[Any], bool]) -> None:
    """Let the primary's compare-and-sets land one by one until one is ``wanted``; that one stays on its way."""
    cluster.cas_held.add(primary.name)
    end = cluster.now + 10
    while not any(wanted(effect) for node, effect in cluster.cas if node is primary):
        assert cluster.now < end, "the change that should be held never came"
        for node, effect in [each for each in cluster.cas if each[0] is primary]:
            cluster.cas.remove((node, effect))
            cluster.land(node, effect)
        cluster.turn()


def test_add_cas_times_out_then_lands() -> None:
    cluster = declared("q", "r")
    primary, _, joiner = cluster.primary, *backups_of(cluster)
    cluster.kill(joiner.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    joiner = cluster.start(joiner.name)
    hold_the_add(cluster, primary, joiner)
    cut(cluster, primary, joiner)
    node, add = cluster.cas.pop(0)
    primary.report(lambda: primary.core.on_cas_failed(add))
    commit(primary, begin_t(primary))
    cluster.pause(0.3)
    assert primary.host.answer("commit") is None, "the add that timed out may still land"
    cluster.land(node, add, report=False)
    assert joiner.member in cluster.coordination.record.ready
    cluster.cas_held.clear()
    answered(cluster, primary)
    assert joiner.member not in cluster.coordination.record.ready, "T was answered without a ready member"
    cluster.heal()
    survivors_agree(cluster)


def test_ready_but_not_participant() -> None:
    cluster = declared("q", "r")
    primary, other, joiner = cluster.primary, *backups_of(cluster)
    cluster.kill(joiner.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    cluster.held.add((other.name, primary.name))
    commit(primary, begin_t(primary))
    cluster.pause(0.1)
    joiner = cluster.start(joiner.name)
    cluster.run(lambda: joiner.member in cluster.coordination.record.ready)
    assert primary.host.answer("commit") is None
    cluster.held = {(primary.name, joiner.name)}
    cluster.pause(0.5)
    assert primary.host.answer("commit") is None, "ready was granted in the middle of T: its decision must be there too"
    cluster.held = set()
    answered(cluster, primary)
    survivors_agree(cluster)


def test_resync_while_in_ready_set() -> None:
    """A former primary with a suffix of its own is listed as ready: it is taken out before its log is cut."""
    cluster = declared("q", "r")
    old = cluster.primary
    cluster.cas_held.add(old.name)
    cluster.partition(old.name)
    publish(old, "q", "alone")
    cluster.run(lambda: old.state != "active" and any(n.state == "active" for n in cluster.nodes.values()))
    # it comes back so soon that the new primary has not taken it out yet
    new = cluster.primary
    cluster.coordination.record = record_with(cluster, old)
    adopt(new, cluster)
    cluster.cas_held.clear()
    cluster.heal()
    survivors_agree(cluster)
    assert any("discarding" in line for line in old.lines)
    assert cluster.primary.host.bodies("q") == []


def record_with(cluster: MemoryCluster, node: MemoryNode):  # type: ignore[no-untyped-def]
    import msgspec

    record = cluster.coordination.record
    assert record is not None
    return msgspec.structs.replace(record, version=record.version + 1, ready=(*record.ready, node.member))


def adopt(node: MemoryNode, cluster: MemoryCluster) -> None:
    assert node.core.leading is not None
    node.core.leading.keeper.record = cluster.coordination.record  # type: ignore[assignment]


def test_wiped_disk_is_ready_member() -> None:
    cluster = declared("q", "r")
    primary, other, wiped = cluster.primary, *backups_of(cluster)
    commit(primary, begin_t(primary))
    answered(cluster, primary)
    cluster.cas_held.add(primary.name)
    cluster.kill(wiped.name)
    wiped = cluster.start(wiped.name, wipe=True)
    cluster.kill(primary.name)
    cluster.kill(other.name)
    cluster.pause(10)
    assert wiped.state != "active", "a new store under an old name is another member"
    cluster.start(other.name)
    survivors_agree(cluster)
    assert whole_or_absent(cluster, *T)


def test_promote_on_stale_ready_read() -> None:
    cluster = declared("q", "r")
    primary, stale, other = cluster.primary, *backups_of(cluster)
    cut(cluster, primary, stale)
    cut(cluster, other, stale)
    hold(cluster, primary, lambda effect: removes(effect, stale))
    cluster.cas_held |= {stale.name, other.name}
    cluster.run(lambda: any(node is stale for node, _ in cluster.cas))
    removal = next((node, effect) for node, effect in cluster.cas if removes(effect, stale) and node is primary)
    cluster.land(*removal, report=False)
    cluster.cas.remove(removal)
    cluster.cas_held.discard(stale.name)
    cluster.pause(1.5)
    assert stale.state not in ("recovering", "active"), "its promotion demanded a ready set that was gone"
    cluster.cas_held.clear()
    cluster.heal()
    survivors_agree(cluster)


def removes(effect, node: MemoryNode) -> bool:  # type: ignore[no-untyped-def]
    return node.member not in effect.record.ready


def test_id_reused() -> None:
    cluster = declared("q", "r")
    rids: set[int] = set()
    generations = set()
    for round_number in range(3):
        primary = cluster.primary
        for number in range(3):
            publish(primary, "q", f"{round_number}-{number}")
        answered(cluster, primary, f"publish {round_number}-2")
        publish(primary, "q", "never answered")
        found = [rid for rid, _ in primary.host.visible[primary.host.number("q")].values()]
        assert len(found) == len(set(found))
        rids |= set(found)
        generations.add(max(generation_of(rid) for rid in found))
        cluster.kill(primary.name)
        cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
        cluster.start(primary.name)
        cluster.settled()
    assert len(generations) == 3 and len(rids) >= 9


def test_in_step_by_decision_number() -> None:
    """Both logs hold as many decisions, but one an extra publish: only positions tell."""
    cluster = declared("q", "r")
    old = cluster.primary
    cluster.cas_held.add(old.name)
    cluster.partition(old.name)
    publish(old, "q", "extra")
    commit(old, begin(old, {"q": ["old"], "r": ["old"]}))
    cluster.run(lambda: old.state == "joining" and any(n.state == "active" for n in cluster.nodes.values()))
    new = cluster.primary
    commit(new, begin(new, {"q": ["new"], "r": ["new"]}))
    cluster.cas_held.clear()
    answered(cluster, new)
    assert old.core.replica.tail.sequence > new.core.replica.history[-1].sequence, "the logs overlap"
    cluster.heal()
    survivors_agree(cluster)
    assert new.host.bodies("q") == ["new"] and new.host.bodies("r") == ["new"]


def test_recovering_primary_delivers() -> None:
    cluster = declared("q", "r")
    old, new, slow = cluster.primary, *reversed(backups_of(cluster))
    publish(old, "q", "m")
    answered(cluster, old, "publish m")
    cluster.held.add((slow.name, new.name))
    cluster.kill(old.name)
    cluster.cas_held.add(slow.name)
    cluster.run(lambda: new.state == "recovering")
    cluster.pause(2.0)
    assert new.state == "recovering" and new.host.ledger is None, "an expected backup is not in step yet"
    cluster.held.clear()
    cluster.run(lambda: new.state == "active")
    assert new.host.bodies("q") == ["m"]


def test_recovering_ends_at_backup_timeout() -> None:
    cluster = declared("q", "r")
    old, new, silent = cluster.primary, *reversed(backups_of(cluster))
    cluster.frozen.add(silent.name)
    cluster.kill(old.name)
    cluster.run(lambda: new.state == "active", seconds=cluster.settings.backup_timeout + 4)
    assert silent.member not in cluster.coordination.record.ready
    cluster.frozen.clear()
    survivors_agree(cluster)


def test_redelivered_is_told_by_the_mark_after_a_failover() -> None:
    """P3: what may have been handed out lies up to the watermark on every node, what cannot have been lies behind
    it."""
    cluster = declared("q")
    primary = cluster.primary
    primary.host.room = 1
    publish(primary, "q", "handed out")
    answered(cluster, primary, "publish handed out")
    primary.host.room = 0
    publish(primary, "q", "never handed out")
    answered(cluster, primary, "publish never handed out")
    cluster.pause(0.2)
    cluster.kill(primary.name)
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values()))
    host = cluster.primary.host
    first, second = sorted(host.visible[host.number("q")])
    assert first <= host.watermarks[host.number("q")] < second


def test_a_mark_precedes_every_delivery() -> None:
    """A message whose watermark has not passed the commit point is not marked at the primary's broker either."""
    cluster = declared("q")
    primary, _, slow = cluster.primary, *backups_of(cluster)
    primary.host.room = 1
    cluster.held.add((slow.name, primary.name))
    publish(primary, "q", "m")
    cluster.pause(0.5)
    assert primary.host.watermarks.get(primary.host.number("q"), 0) == 0
    cluster.held.clear()
    answered(cluster, primary, "publish m")
    cluster.pause(0.1)
    assert primary.host.watermarks[primary.host.number("q")] > 0
    assert Delivered in {type(event) for frame in primary.disk.frames for event in frame.events()}


def test_accept_data_loss_makes_the_last_node_primary() -> None:
    cluster = declared("q")
    primary, other, late = cluster.primary, *backups_of(cluster)
    cluster.kill(late.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    publish(primary, "q", "lost")
    answered(cluster, primary, "publish lost")
    cluster.kill(primary.name)
    cluster.kill(other.name)
    late = cluster.start(late.name)
    cluster.pause(5)
    assert late.state == "joining"
    core: NodeCore = late.core
    assert "accept-data-loss" in (core.promote(False) or "")
    late.report(lambda: core.promote(True))
    cluster.run(lambda: late.state == "active")
    assert late.host.bodies("q") == []
    cluster.start(primary.name)
    cluster.start(other.name)
    survivors_agree(cluster)
    assert cluster.primary.host.bodies("q") == []


def test_accept_data_loss_is_refused_while_a_primary_is_alive() -> None:
    cluster = declared("q")
    backup = backups_of(cluster)[0]
    assert "alive" in (backup.core.promote(True) or "")


def test_accept_data_loss_takes_a_generation_above_every_reachable_one() -> None:
    """The record was restored from an old copy; a node that can be reached knows a later generation."""
    emitted: list[Any] = []
    candidate = Candidate(Member("a", "1"), Settings(), emitted.append)
    candidate.observe(Record("c", 5, 2, None, ()), 0.0)
    candidate.force(["b"], 10.0)
    assert [type(effect) for effect in emitted] == [Send], "it asks first"
    candidate.heard(7)
    candidate.tick(Position(2, 9), ["b"], 10.5)
    assert emitted[-1].record.generation == 8 and emitted[-1].record.ready == (Member("a", "1"),)


def test_handover() -> None:
    cluster = declared("q")
    old, _, chosen = cluster.primary, *backups_of(cluster)
    publish(old, "q", "m")
    answered(cluster, old, "publish m")
    before = cluster.now
    chosen.report(lambda: chosen.core.promote(False))
    cluster.run(lambda: chosen.state == "active")
    assert cluster.now - before < cluster.settings.lease_ttl, "a handover does not wait for the lease to run out"
    assert old.host.closed and chosen.host.bodies("q") == ["m"]
    survivors_agree(cluster)


def test_listed_member_whose_disk_was_set_back() -> None:
    """Its log is a prefix that ends before the primary's begins: it is copied, so it leaves the ready set first.

    The oracle of the cluster looks when its log is thrown away.
    """
    cluster = declared("q", link_down_grace=3600.0)
    primary, backup, _ = cluster.primary, *backups_of(cluster)
    frames = list(backup.disk.frames)
    for body in ("one", "two"):
        publish(primary, "q", body)
        answered(cluster, primary, f"publish {body}")
    cluster.kill(backup.name)
    cluster.disks[backup.name].frames = frames
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    backup = cluster.start(backup.name)
    cluster.run(lambda: backup.core.replica.resyncing)
    survivors_agree(cluster)
    assert cluster.primary is primary and primary.host.bodies("q") == ["one", "two"]


def test_listed_member_that_lacks_what_was_answered() -> None:
    """The same, and the primary's log leads on from there: it leaves the ready set, or the message would be gone with
    the primary that dies now."""
    cluster = declared("q", size=2, link_down_grace=3600.0)
    primary, backup = cluster.primary, backups_of(cluster)[0]
    frames = list(backup.disk.frames)
    publish(primary, "q", "one")
    answered(cluster, primary, "publish one")
    cluster.kill(backup.name)
    cluster.disks[backup.name].frames = frames
    cluster.lose = lambda source, target, message: isinstance(message, Entries)
    backup = cluster.start(backup.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 1)
    cluster.kill(primary.name)
    cluster.pause(5.0)
    assert backup.state == "joining", "it does not lead without the message"
    cluster.lose = lambda source, target, message: False
    cluster.start(primary.name)
    cluster.run(cluster.all_ready)
    assert cluster.primary.host.bodies("q") == ["one"]
    cluster.check_agreement()
