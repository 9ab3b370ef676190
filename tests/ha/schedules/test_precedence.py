"""Schedules in which the member with the greatest log is well but for its access to the coordination record (P12)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.memory_cluster import TURN, MemoryCluster, MemoryNode
from tests.support.steps import all_agree, answered, backups_of, declared, publish

SLOW = 1.5
"""Seconds that a change of the record takes there: longer than the lease."""


def written() -> tuple[MemoryCluster, MemoryNode]:
    """a is the primary, and all three hold the same; c's name makes it the first of two equal candidates."""
    cluster = declared("q")
    primary = cluster.primary
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    cluster.pause(1.0)
    return cluster, primary


def taken_over(cluster: MemoryCluster, node: str, leases: float) -> float:
    """Turn until this node serves clients, for so many leases at the most; returns the seconds that it took."""
    began = cluster.now
    limit = leases * cluster.settings.lease_ttl
    cluster.run(lambda: node in cluster.nodes and cluster.nodes[node].state == "active", seconds=limit)
    return cluster.now - began


def hung(cluster: MemoryCluster) -> None:
    cluster.cas_held.add("c")


def storeless(cluster: MemoryCluster) -> None:
    cluster.storeless.add("c")


@pytest.mark.parametrize("breaks", [hung, storeless])
def test_ready_member_without_the_record(breaks: Callable[[MemoryCluster], None]) -> None:
    """The primary dies. c comes first, and its change of the record fails, or never ends; b could go on."""
    cluster, primary = written()
    breaks(cluster)
    cluster.pause(0.5)
    cluster.kill(primary.name)
    taken_over(cluster, "b", 3.0 + cluster.settings.backup_timeout)
    assert cluster.primary.host.bodies("q") == ["m"]


def test_ready_member_that_has_not_read_the_record() -> None:
    """It has lost the store just before, so it has not tried anything: what tells it is that no reading comes."""
    cluster, primary = written()
    cluster.storeless.add("c")
    cluster.pause(1.1)
    cluster.kill(primary.name)
    began = cluster.now
    cluster.run(lambda: cluster.nodes["b"].core.leading is not None)
    assert cluster.now - began < 1.3 * cluster.settings.lease_ttl


def test_ready_member_whose_changes_take_longer_than_its_lease() -> None:
    """c is promoted, its lease is over by then, it steps down, and is the first to be promoted again, for ever."""
    cluster, primary = written()
    cluster.cas_held.add("c")
    cluster.kill(primary.name)
    due: dict[int, float] = {}
    began = cluster.now
    while cluster.nodes["b"].state != "active":
        assert cluster.now - began < 6 * cluster.settings.lease_ttl, cluster.describe()
        for node, effect in [each for each in cluster.cas if each[0].name == "c"]:
            if cluster.now >= due.setdefault(id(effect), cluster.now + SLOW):
                cluster.cas.remove((node, effect))
                cluster.land(node, effect)
        cluster.turn()
    assert cluster.primary.host.bodies("q") == ["m"]


class LateStore:
    """Changes of these members are made, and answered, so many seconds after they were sent; no reading comes there
    meanwhile."""

    def __init__(self, cluster: MemoryCluster, members: str, seconds: float) -> None:
        self.cluster, self.seconds = cluster, seconds
        self.due: dict[int, float] = {}
        self.members = set(members)
        cluster.cas_held |= self.members

    def turn(self) -> None:
        cluster = self.cluster
        for node, effect in [each for each in cluster.cas if each[0].name in self.members]:
            cluster.storeless.add(node.name)
            if cluster.now >= self.due.setdefault(id(effect), cluster.now + self.seconds):
                del self.due[id(effect)]
                cluster.cas.remove((node, effect))
                cluster.storeless.discard(node.name)
                cluster.land(node, effect)
        cluster.turn()


@pytest.mark.parametrize(("size", "members"), [(4, "cd"), (5, "cde")])
@pytest.mark.parametrize("seconds", [0.55, 0.75, 1.03, 1.3, 2.1])
def test_ready_members_whose_changes_land_late_take_turns(size: int, members: str, seconds: float) -> None:
    """Each is promoted, has no lease long enough to renew it, and when it has doubted itself for long enough it is the
    first again, for ever, while b could go on."""
    cluster = declared("q", size=size)
    primary = cluster.primary
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    cluster.pause(1.0)
    late = LateStore(cluster, members, seconds)
    cluster.kill(primary.name)
    began = cluster.now
    while cluster.nodes["b"].state != "active":
        assert cluster.now - began < 30 * cluster.settings.lease_ttl, cluster.describe()
        late.turn()
    assert cluster.primary.host.bodies("q") == ["m"]


@pytest.mark.parametrize("linked", ["linked", "cut off when it has stepped down"])
def test_primary_without_the_record(linked: str) -> None:
    """Under load: when it steps down, its log goes further than any other, by what no client has been told of."""
    cluster = declared("q")
    primary = cluster.primary
    cluster.storeless.add(primary.name)
    number = 0
    while primary.core.leading is not None:
        if primary.core.leading.primary.point.serving:
            publish(primary, "q", f"m{number}")
            number += 1
        cluster.turn()
    if linked != "linked":
        cluster.partition(primary.name)
    ahead = [primary.core.replica.tail > each.core.replica.tail for each in cluster.nodes.values() if each != primary]
    assert ahead == [True, True]
    cluster.run(lambda: any(node.core.leading for node in cluster.nodes.values()), 1.5 * cluster.settings.lease_ttl)
    labels = [label for label, error in primary.host.answers if error is None and label.startswith("publish ")]
    told = {label.removeprefix("publish ") for label in labels}
    cluster.storeless.clear()
    cluster.heal()
    all_agree(cluster)
    assert told and told <= set(cluster.primary.host.bodies("q"))


def test_ready_member_without_the_record_after_a_release() -> None:
    """The primary was stopped in good order."""
    cluster, primary = written()
    cluster.storeless.add("c")
    primary.report(lambda: primary.core.resign("stopped"))
    cluster.run(lambda: cluster.coordination.record is not None and cluster.coordination.record.released)
    cluster.kill(primary.name)
    taken_over(cluster, "b", 3.0 + cluster.settings.backup_timeout)


def test_handover_to_one_without_the_record() -> None:
    """It was asked to take over, and cannot: the lease was given up for it."""
    cluster, _ = written()
    chosen = cluster.nodes["c"]
    chosen.report(lambda: chosen.core.promote(False))  # type: ignore[arg-type, return-value]
    cluster.run(lambda: cluster.coordination.record is not None and cluster.coordination.record.released)
    cluster.storeless.add("c")
    cluster.run(
        lambda: any(node.state == "active" and node is not chosen for node in cluster.nodes.values()),
        seconds=3.0 + cluster.settings.backup_timeout,
    )


def test_ready_member_that_is_stopped_and_does_not_end() -> None:
    cluster, primary = written()
    stopping = cluster.nodes["c"]
    stopping.report(lambda: stopping.core.resign("stopped"))
    cluster.kill(primary.name)
    taken_over(cluster, "b", 2.0)


@pytest.mark.plain
def test_ready_member_that_is_too_busy_to_time_a_lease() -> None:
    """Its loop turns, so it answers; but none of its steps counts, so it never stands."""
    cluster, primary = written()
    busy = cluster.nodes["c"]
    turns = round(0.5 / TURN)
    cluster.kill(primary.name)
    began, number = cluster.now, 0
    tick, busy.core.tick = busy.core.tick, lambda: None  # type: ignore[method-assign]
    while cluster.nodes["b"].state != "active":
        assert cluster.now - began < 3 * cluster.settings.lease_ttl, cluster.describe()
        number += 1
        if number % turns == 0:
            busy.report(tick)
        cluster.turn()


def test_backups_keep_the_greatest_log_if_all_can_stand() -> None:
    """What no client has been told of is kept all the same: nothing is in doubt where only the primary has died."""
    cluster, primary = written()
    late, first = backups_of(cluster)[1], backups_of(cluster)[0]
    cluster.held.add((primary.name, late.name))
    publish(primary, "q", "on its way")
    cluster.run(lambda: first.core.replica.tail > late.core.replica.tail)
    cluster.kill(primary.name)
    cluster.held.clear()
    taken_over(cluster, first.name, 2.0)
    assert "on its way" in cluster.primary.host.bodies("q")


@pytest.mark.parametrize(("seconds", "keeps"), [(0.5, True), (2.0, False)])
def test_an_outage_that_all_have_felt_leaves_the_choice_to_the_names(seconds: float, keeps: bool) -> None:
    """Each is in doubt, so c stands, and b discards what was on its way, of which no client has been told."""
    cluster, primary = written()
    ahead, behind = cluster.nodes["b"], cluster.nodes["c"]
    cluster.held.add((primary.name, "c"))
    publish(primary, "q", "on its way")
    cluster.run(lambda: ahead.core.replica.tail > behind.core.replica.tail)
    cluster.storeless |= {"b", "c"}
    cluster.kill(primary.name)
    cluster.held.clear()
    cluster.pause(seconds)
    cluster.storeless.clear()
    taken_over(cluster, "b" if keeps else "c", 8.0)
    assert cluster.primary.host.bodies("q") == ["m"] + ["on its way"] * keeps
