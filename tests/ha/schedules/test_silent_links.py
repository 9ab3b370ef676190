"""Named schedules: packets between two nodes are dropped, one way or both, and no connection is closed by it."""

from __future__ import annotations

import pytest

from ha.messages.beats import BEATS_FEATURE, Beat
from ha.messages.wire import decode
from ha.node import LOOKING_SECONDS, NO_FEATURES
from tests.support.memory_cluster import TURN, MemoryCluster, MemoryNode
from tests.support.steps import answered, backups_of, declared, publish

NEVER = 3600.0
"""Seconds: what comes about all the same does not wait for these timeouts"""
RESUMED = 1.0
"""Seconds from the cut to the answer that waited for a backup"""


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryCluster, "features", frozenset({BEATS_FEATURE}))


def listed(cluster: MemoryCluster) -> list[str]:
    record = cluster.coordination.record
    assert record is not None
    return sorted(member.node for member in record.ready)


@pytest.mark.usefixtures("beating")
@pytest.mark.parametrize("ways", ["both", "to the backup", "from the backup"])
def test_packets_to_a_backup_are_dropped(ways: str) -> None:
    """``packets_to_a_backup_are_dropped``: it is out of the record before anything is acknowledged without it
    (``MemoryCluster.check_durable``), and neither ``prepare_timeout`` nor ``link_down_grace`` is waited for behind."""
    cluster = declared("q", prepare_timeout=NEVER, silence=NEVER, link_down_grace=0.7)
    primary, (cut, _) = cluster.primary, backups_of(cluster)
    cluster.pause(2.0)
    there, back = (primary.name, cut.name), (cut.name, primary.name)
    cluster.held |= {there, back} if ways == "both" else {there} if ways == "to the backup" else {back}
    began = cluster.now
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    assert cut.name not in listed(cluster) and cluster.now - began < RESUMED
    told = [
        f"nothing has come from {other}" in line
        for node, other in ((primary, cut.name), (cut, primary.name))
        for line in node.lines
    ]
    assert any(told) and not any(line.endswith("is silent") for line in primary.lines)
    cluster.held.clear()
    cluster.run(cluster.all_ready)
    cluster.check_agreement()


@pytest.mark.usefixtures("beating")
def test_a_backup_that_is_frozen_falls_under_the_deadline_of_its_link() -> None:
    cluster = declared("q", prepare_timeout=NEVER, silence=NEVER)
    primary, (frozen, _) = cluster.primary, backups_of(cluster)
    cluster.pause(2.0)
    cluster.frozen.add(frozen.name)
    began = cluster.now
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    assert frozen.name not in listed(cluster) and cluster.now - began < RESUMED
    cluster.frozen.clear()
    cluster.run(cluster.all_ready)


@pytest.mark.usefixtures("beating")
def test_frozen_before_its_first_beat() -> None:
    """A backup that is reached again may be ready before its next beat is due, and hang from that turn on."""
    for rest in range(20):
        cluster = declared("q", prepare_timeout=NEVER, silence=NEVER)
        primary, (frozen, _) = cluster.primary, backups_of(cluster)
        cluster.held |= {(primary.name, frozen.name), (frozen.name, primary.name)}
        cluster.run(lambda cluster=cluster, frozen=frozen: frozen.name not in listed(cluster))  # type: ignore[misc]
        cluster.pause(rest / 100)
        cluster.held.clear()
        cluster.run(lambda cluster=cluster, frozen=frozen: frozen.name in listed(cluster))  # type: ignore[misc]
        cluster.frozen.add(frozen.name)
        began = cluster.now
        publish(primary, "q", "m")
        answered(cluster, primary, "publish m")
        assert frozen.name not in listed(cluster) and cluster.now - began < RESUMED


@pytest.mark.usefixtures("beating")
def test_frozen_behind_one_end_of_a_link() -> None:
    """The primary's own connection is reset and dialled anew; that of the backup stands, which says nothing for it."""
    for rest in range(4):
        cluster = declared("q", prepare_timeout=NEVER, silence=NEVER)
        primary, (frozen, _) = cluster.primary, backups_of(cluster)
        cluster.pause(2.0 + rest / 20)
        primary.report(lambda primary=primary, frozen=frozen: primary.core.on_link(frozen.name, False))  # type: ignore[misc]
        primary.link(frozen.name)
        cluster.wire = [each for each in cluster.wire if each[0] != frozen.name]
        cluster.frozen.add(frozen.name)
        began = cluster.now
        publish(primary, "q", "m")
        answered(cluster, primary, "publish m")
        assert frozen.name not in listed(cluster) and cluster.now - began < RESUMED


@pytest.mark.usefixtures("beating")
def test_the_first_that_is_said_on_a_link_is_a_beat() -> None:
    cluster = MemoryCluster().settled()
    primary, backup = cluster.primary, backups_of(cluster)[0]
    primary.report(lambda: primary.core.on_link(backup.name, False))
    cluster.wire.clear()
    primary.link(backup.name)
    first = next(
        decode(data) for source, target, data in cluster.wire if (source, target) == (primary.name, backup.name)
    )
    assert isinstance(first, Beat) and first.every == 200


@pytest.mark.usefixtures("beating")
def test_beat_of_an_earlier_generation() -> None:
    """``beat_of_an_earlier_generation``: a node that has not read the record yet says how seldom it beats."""
    cluster = MemoryCluster().settled()
    primary, backup = cluster.primary, backups_of(cluster)[0]
    cluster.frozen.add(backup.name)
    cluster.wire = [each for each in cluster.wire if each[0] != backup.name]
    primary.report(lambda: primary.core.on_message(backup.name, Beat(primary.core.generation - 1, 5000)))
    cluster.pause(2.0)
    assert not any("nothing has come from" in line for line in primary.lines)


@pytest.mark.usefixtures("beating")
def test_a_backup_whose_disk_hangs_has_the_time_of_before() -> None:
    """Its loop lives, and says so."""
    cluster = declared("q", prepare_timeout=2.0)
    primary, (hangs, _) = cluster.primary, backups_of(cluster)
    hangs.disk_held = True
    publish(primary, "q", "m")
    cluster.pause(1.5)
    assert hangs.name in listed(cluster) and primary.host.answer("publish m") is None
    answered(cluster, primary, "publish m")
    assert any(line.endswith("is silent") for line in primary.lines)


@pytest.mark.parametrize("features", [NO_FEATURES, frozenset({"calls"})])
def test_old_peer_judged_by_the_new_deadline(features: frozenset[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryCluster, "features", features)
    cluster = declared("q", prepare_timeout=2.0)
    primary, (cut, _) = cluster.primary, backups_of(cluster)
    cluster.pause(2.0)
    cluster.held |= {(primary.name, cut.name), (cut.name, primary.name)}
    publish(primary, "q", "m")
    cluster.pause(1.5)
    assert cut.name in listed(cluster) and primary.host.answer("publish m") is None
    answered(cluster, primary, "publish m")
    assert not any("nothing has come" in line for node in cluster.nodes.values() for line in node.lines)


@pytest.mark.usefixtures("beating")
def test_link_judged_by_a_node_that_was_stopped() -> None:
    """Its backups have said a word in that time, and it runs its timer before it reads that."""
    cluster = declared("q", lease_ttl=10.0, link_deadline=0.75)
    primary = cluster.primary
    for rest in range(12):
        cluster.pause(1.0 + rest / 50)
        cluster.frozen.add(primary.name)
        cluster.pause(0.5)
        cluster.frozen.clear()
        cluster.pause(0.5)
    assert listed(cluster) == ["a", "b", "c"] and not any("nothing has come" in line for line in primary.lines)


@pytest.mark.usefixtures("beating")
def test_a_primary_whose_host_is_gone_is_waited_for_no_longer_than_its_lease() -> None:
    """``new_primary_waits_for_the_silent_one``: no connection to it was closed, and it counts in the ready set."""
    cluster = declared("q", backup_timeout=NEVER, silence=NEVER)
    gone, others = cluster.primary, backups_of(cluster)
    cluster.pause(2.0)
    cluster.frozen.add(gone.name)
    for other in others:
        cluster.held |= {(gone.name, other.name), (other.name, gone.name)}
    began = cluster.now
    cluster.run(lambda: any(node.state == "active" for node in others))
    assert cluster.now - began < cluster.settings.lease_ttl + 0.4
    assert gone.name not in listed(cluster)


def test_a_new_primary_counts_from_the_loss_of_a_link_and_not_from_its_promotion() -> None:
    """What it knew as a backup: the one that was killed has been out of reach for the whole lease."""
    cluster = declared("q", link_down_grace=0.9, backup_timeout=NEVER)
    killed, others = cluster.primary, backups_of(cluster)
    cluster.kill(killed.name)
    began = cluster.now
    cluster.run(lambda: any(node.state == "active" for node in others))
    assert cluster.now - began < cluster.settings.lease_ttl + 0.4


def test_a_backup_looks_for_the_end_of_the_lease_when_its_primary_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every tick for a while, and not for ever; of another backup's end nothing is to be read."""
    reads: list[str] = []
    monkeypatch.setattr(MemoryNode, "read_record", lambda node: reads.append(node.name))
    cluster = declared("q", lease_ttl=10.0)
    primary, (gone, other) = cluster.primary, backups_of(cluster)
    cluster.kill(gone.name)
    cluster.pause(1.0)
    assert not reads
    cluster.kill(primary.name)
    cluster.pause(LOOKING_SECONDS)
    assert len(reads) >= LOOKING_SECONDS / TURN - 2 and set(reads) == {other.name}
    cluster.pause(0.1)
    read = len(reads)
    cluster.pause(2.0)
    assert len(reads) == read


@pytest.mark.usefixtures("beating")
def test_a_message_takes_longer_than_the_silence() -> None:
    """``a_message_takes_longer_than_the_silence``: bytes of it come all the time, and the beats wait behind it."""
    cluster = declared("q", prepare_timeout=10.0, silence=3.0)
    primary, (slow, _) = cluster.primary, backups_of(cluster)
    cluster.pause(2.0)
    publish(primary, "q", "large")
    cluster.held.add((primary.name, slow.name))
    for _ in range(500):
        cluster.turn()
        slow.report(lambda: slow.core.on_heard({primary.name}))
    assert primary.host.answer("publish large") is None and slow.core.state == "ready"
    cluster.held.clear()
    answered(cluster, primary, "publish large")
    assert slow.name in listed(cluster) and not [line for line in slow.lines if "silent" in line or "nothing" in line]
