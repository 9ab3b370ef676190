"""Named schedules: a node of an earlier version waits for a shorter lease than the primary has.

In each the primary can be reached by every node, and the coordination store by every node but the primary.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ha.membership.node_state import ACTIVE
from ha.messages.greeting import LEASE_FEATURE
from ha.node import NO_FEATURES
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import answered, publish

LONG, BEFORE = 4.0, 1.0
NEVER = 3600.0


class Mixed(MemoryCluster):
    """``earlier``: nodes of the earlier version; their lease is as long as its default was."""

    features = frozenset({LEASE_FEATURE})

    def __init__(self, *earlier: str, size: int = 3, min_ready: int = 1) -> None:
        self.earlier = set(earlier)
        times = {"lease_ttl": LONG, "renew_every": 0.5, "lease_before": BEFORE, "silence": NEVER}
        super().__init__(size, min_ready=min_ready, **times)

    def features_of(self, one: str, other: str) -> frozenset[str]:
        return NO_FEATURES if self.earlier & {one, other} else self.features

    def start(self, name: str, wipe: bool = False) -> MemoryNode:
        ours = self.settings
        if name in self.earlier:
            self.settings = replace(ours, lease_ttl=BEFORE, renew_every=0.2, lease_before=0.0)
        try:
            return super().start(name, wipe)
        finally:
            self.settings = ours

    def leading(self) -> list[str]:
        return [node.name for node in self.nodes.values() if node.state == ACTIVE]

    def succeed(self) -> float:
        """The primary loses the coordination store. How long it goes on, in seconds; at no time two nodes serve."""
        (primary,) = self.leading()
        self.storeless.add(primary)
        began, gone_on = self.now, 0.0
        while not set(self.leading()) - {primary}:
            self.turn()
            assert len(self.leading()) <= 1, f"{self.leading()} serve"
            gone_on = self.now - began if primary in self.leading() else gone_on
            assert self.now < began + 60, self.describe()
        return gone_on


def listed(cluster: Mixed) -> list[str]:
    record = cluster.coordination.record
    assert record is not None
    return sorted(member.node for member in record.ready)


def version_of(cluster: Mixed) -> int:
    record = cluster.coordination.record
    assert record is not None
    return record.version


def serves_until(cluster: Mixed, name: str) -> float:
    leading = cluster.nodes[name].core.leading
    assert leading is not None
    return leading.keeper.serves_until


def serving(*earlier: str, size: int = 3) -> Mixed:
    cluster = Mixed(*earlier, size=size)
    cluster.settled()
    cluster.primary.report(lambda: cluster.primary.host.declare("q"))
    answered(cluster, cluster.primary, "declare q")
    publish(cluster.primary, "q", "m")
    answered(cluster, cluster.primary, "publish m")
    return cluster


@pytest.mark.parametrize("earlier", ["b", "c"])
def test_lease_beside_an_earlier_version(earlier: str) -> None:
    """``lease_beside_an_earlier_version``: it would stand while the primary still counts on its own, longer time."""
    assert serving(earlier).succeed() < BEFORE


def test_where_every_other_member_waits_for_the_whole_lease_the_primary_counts_on_it() -> None:
    cluster = serving()
    cluster.pause(5.0)
    assert LONG - 0.7 < cluster.succeed() < LONG


def test_an_earlier_version_that_comes_back_while_it_is_listed() -> None:
    """It was of this version before, so the primary knew that it would wait; it is set back, and started again."""
    cluster = serving()
    cluster.pause(1.0)
    primary = cluster.primary
    cluster.cas_held.add(primary.name)  # so it stays listed
    cluster.kill("b")
    cluster.earlier.add("b")
    cluster.pause(0.2)
    cluster.cas_held.clear()
    cluster.start("b")
    cluster.pause(1.0)
    assert cluster.leading() == [primary.name]
    assert cluster.succeed() < BEFORE


def test_a_member_that_is_gone_is_waited_for_no_shorter_than_before() -> None:
    """The host of a backup and of the leader of etcd has gone: that costs the primary nothing, as long as its lease."""
    cluster = serving()
    cluster.pause(1.0)
    cluster.storeless.add(cluster.primary.name)
    cluster.kill("b")
    cluster.pause(2.0)
    assert cluster.leading() == ["a"]
    cluster.storeless.clear()
    cluster.pause(5.0)
    assert cluster.leading() == ["a"]


def test_a_new_primary_knows_of_an_earlier_version_that_has_gone() -> None:
    cluster = serving("c")
    cluster.kill("a")
    cluster.kill("c")
    cluster.run(lambda: cluster.leading() == ["b"], 30.0)
    cluster.pause(20.0)
    assert serves_until(cluster, "b") <= cluster.now + BEFORE, "it may come back, and be forced to stand"
    cluster.earlier.clear()
    cluster.start("c")
    cluster.pause(2.0)
    assert serves_until(cluster, "b") > cluster.now + LONG - 0.7


def test_new_primary_knows_who_waits() -> None:
    """``new_primary_knows_who_waits``: none is old, the primary's host is gone, and the answer to the change that makes
    another one primary takes longer than the shorter lease."""
    cluster = serving()
    cluster.pause(2.0)
    cluster.kill("a")
    cluster.cas_held |= {"b", "c"}
    cluster.run(lambda: bool(cluster.cas), 30.0)
    cluster.pause(1.3)
    cluster.cas_held.clear()
    cluster.run(lambda: bool(cluster.leading()), 1.0)


def test_earlier_version_is_forced_to_stand() -> None:
    """``earlier_version_is_forced_to_stand``: it is not ready, an operator accepts the loss, and it waits for its own
    lease only."""
    cluster = Mixed("c", min_ready=2)
    cluster.settled()
    for one, other in (("a", "c"), ("c", "a")):
        cluster.cut.add((one, other))
        cluster.nodes[one].report(lambda o=one, p=other: cluster.nodes[o].core.on_link(p, False))  # type: ignore[misc]
    cluster.run(lambda: "c" not in listed(cluster), 30.0)
    cluster.pause(1.0)
    cluster.storeless.add("a")
    began, forced, served = cluster.now, cluster.nodes["c"], False
    answers: list[str | None] = []
    while cluster.now < began + 8:
        cluster.turn()
        if None not in answers:
            forced.report(lambda: answers.append(forced.core.promote(True)))
        served = served or forced.state == ACTIVE
        assert len(cluster.leading()) <= 1, f"{cluster.leading()} serve"
    assert served


def test_an_earlier_version_whose_addition_is_on_its_way() -> None:
    cluster = serving("c")
    cluster.kill("c")
    cluster.run(lambda: "c" not in listed(cluster), 30.0)
    cluster.pause(1.0)
    cluster.cas_held.add("a")
    cluster.start("c")
    leading = cluster.primary.core.leading
    assert leading is not None
    cluster.run(lambda: any(each.node == "c" for each in leading.keeper.counted()), 10.0)
    assert "c" not in listed(cluster) and serves_until(cluster, cluster.primary.name) <= cluster.now + BEFORE


def test_a_primary_that_gives_its_lease_up_has_it_no_longer_than_an_earlier_version_waits() -> None:
    cluster = serving("c")
    cluster.pause(1.0)
    primary = cluster.primary
    cluster.cas_held.add("a")
    leading = primary.core.leading
    assert leading is not None
    primary.report(lambda: leading.keeper.release("", cluster.now))
    assert primary.core.overslept(cluster.now + BEFORE)


@pytest.mark.parametrize("seconds", [0.5, 0.7])
def test_an_answer_that_is_late_costs_a_mixed_cluster_no_more_than_an_earlier_one(seconds: float) -> None:
    """``shorter_lease_renewed_as_seldom``: of the coordination store, to a renewal."""
    for earlier in ("abc", "c"):
        cluster = serving(*earlier)
        cluster.pause(2.0)
        primary, version = cluster.primary, version_of(cluster)
        cluster.run(lambda cluster=cluster, version=version: version_of(cluster) > version, 5.0)  # type: ignore[misc]
        cluster.cas_held.add(primary.name)
        cluster.run(lambda cluster=cluster: bool(cluster.cas), 5.0)  # type: ignore[misc]
        cluster.pause(seconds)
        cluster.cas_held.clear()
        cluster.pause(0.1)
        assert cluster.leading() == [primary.name]
