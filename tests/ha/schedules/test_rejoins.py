"""Named schedules: a backup asks to be attached again and again, since no answer comes to it, or none in time."""

from __future__ import annotations

import pytest

from ha.messages.attaching import Follow, Join
from ha.messages.election import Promoted
from ha.messages.stream import Entries
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import answered, backups_of, declared, publish

TIMEOUT = 1.0
"""Seconds, of ``prepare_timeout`` and ``backup_timeout``"""


def cluster_of(size: int = 3) -> tuple[MemoryCluster, MemoryNode, MemoryNode]:
    """A cluster in which all is quiet, its primary, and a backup."""
    cluster = declared("q", size=size, prepare_timeout=TIMEOUT, backup_timeout=TIMEOUT)
    cluster.pause(2.0)
    return cluster, cluster.primary, backups_of(cluster)[0]


def flap(cluster: MemoryCluster, node: MemoryNode, seconds: float) -> None:
    """The links of this node break, and come back."""
    cluster.partition(node.name)
    cluster.pause(seconds)
    cluster.heal()


def committed_in(cluster: MemoryCluster, primary: MemoryNode, body: str) -> float:
    """Seconds."""
    began = cluster.now
    publish(primary, "q", body)
    answered(cluster, primary, f"publish {body}")
    return cluster.now - began


def out(cluster: MemoryCluster, node: MemoryNode) -> bool:
    record = cluster.coordination.record
    assert record is not None
    return node.member not in record.ready


def test_asks_again_and_again_and_never_answers() -> None:
    """``asks_again_and_again_and_never_answers``: nothing of the primary comes to it, and all that it says arrives."""
    cluster, primary, cut = cluster_of()
    cluster.lose = lambda source, target, message: (source, target) == (primary.name, cut.name)
    flap(cluster, cut, 0.1)
    cluster.pause(0.2)
    assert committed_in(cluster, primary, "1") <= TIMEOUT + 0.2
    assert out(cluster, cut) and cut.core.state == "joining"
    cluster.pause(4 * TIMEOUT)
    for body in "234":
        assert committed_in(cluster, primary, body) < 0.2, "to ask is not to be in step"
        cluster.pause(TIMEOUT)
    cluster.lose = lambda source, target, message: False
    cluster.run(cluster.all_ready)
    cluster.check_agreement()


def test_a_quiet_cluster_lets_go_of_it_before_anything_waits() -> None:
    """It owes the word that it knows that it is attached, also where there is nothing else to acknowledge."""
    cluster, primary, cut = cluster_of()
    cluster.lose = lambda source, target, message: (source, target) == (primary.name, cut.name)
    flap(cluster, cut, 0.1)
    cluster.pause(2 * TIMEOUT)
    assert out(cluster, cut) and committed_in(cluster, primary, "1") < 0.2


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seconds", [0.3, 3.0])
def test_a_backup_that_reaches_its_peers_and_not_the_store(seconds: float, size: int) -> None:
    """``a_backup_without_the_store_holds_the_commits``: what it has proposed may land, so it takes no answer."""
    cluster, primary, cut = cluster_of(size)
    cluster.storeless.add(cut.name)
    cluster.pause(5.0)
    flap(cluster, cut, seconds)
    cluster.pause(2.0)
    assert committed_in(cluster, primary, "1") <= TIMEOUT + 0.2
    cluster.pause(2.0)
    assert committed_in(cluster, primary, "2") < 0.2 and out(cluster, cut)
    cluster.storeless.clear()
    cluster.run(cluster.all_ready)
    cluster.check_agreement()


def test_a_takeover_does_not_wait_for_it() -> None:
    """``the_takeover_waits_for_who_never_answers``: no answer of the next primary comes to the other backup."""
    cluster, primary, _ = cluster_of()
    cluster.lose = lambda source, target, message: isinstance(message, Follow)
    cluster.kill(primary.name)
    cluster.run(lambda: any(node.core.state == "active" for node in cluster.nodes.values()), 3 * TIMEOUT + 1.0)
    (active,) = [node for node in cluster.nodes.values() if node.core.state == "active"]
    assert committed_in(cluster, active, "1") < 0.2


def test_answered_later_than_it_is_asked_again() -> None:
    """``answered_later_than_it_is_asked_again``: each answer takes longer than ``rejoin_every``."""
    cluster, primary, slow = cluster_of()
    flap(cluster, slow, 0.5)
    way = primary.name, slow.name
    while not (cluster.nodes[slow.name].core.state == "ready" or cluster.now > 200.0):
        cluster.held.add(way)
        cluster.pause(0.6)
        cluster.held.clear()
        cluster.pause(0.01)
    assert slow.core.state == "ready" and cluster.now < 120.0


def test_attached_again_and_again_and_gets_nothing() -> None:
    """``attached_again_and_again_and_gets_nothing``: a middlebox resets the link at the first frame of the stream."""
    cluster, primary, cut = cluster_of()
    began: list[float] = []

    def lose(source: str, target: str, message: object) -> bool:
        if (source, target) == (primary.name, cut.name) and isinstance(message, Entries):
            began.append(cluster.now)
        return bool(began) and (source, target) == (primary.name, cut.name)

    cluster.lose = lose
    publish(primary, "q", "1")
    asked = cluster.now
    while primary.host.answer("publish 1") is None:
        assert cluster.now - asked <= TIMEOUT + 0.5
        cluster.pause(0.3)
        flap(cluster, cut, 0.06)
        began.clear()
    assert out(cluster, cut)
    cluster.lose = lambda source, target, message: False
    cluster.run(cluster.all_ready)
    cluster.check_agreement()


def test_asked_before_the_primary_had_begun() -> None:
    """``asked_before_the_primary_had_begun``: its record is read before it knows itself; it answers nothing till then,
    and says when it begins."""
    cluster, primary, early = cluster_of()
    lost: list[Join] = []

    def lose(source: str, target: str, message: object) -> bool:
        if source == early.name and isinstance(message, Join):
            lost.append(message)
            return True
        return False

    cluster.lose = lose
    flap(cluster, early, 0.1)
    cluster.pause(8 * early.core.settings.rejoin_every)
    cluster.lose = lambda source, target, message: False
    asked = len(lost)
    early.report(lambda: early.core.on_message(primary.name, Promoted(early.core.generation)))
    cluster.pause(0.1)
    assert asked > 1 and early.core.following is not None and early.core.following.backup.attached
    session = early.core.following.backup.session
    early.report(lambda: early.core.on_message(primary.name, Promoted(early.core.generation)))
    cluster.pause(0.1)
    assert early.core.following.backup.session == session and session, "who is attached has its answer"
