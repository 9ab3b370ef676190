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

    def __init__(self, *earlier: str, size: int = 3) -> None:
        self.earlier = set(earlier)
        super().__init__(size, lease_ttl=LONG, renew_every=0.5, lease_before=BEFORE, silence=NEVER)

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


def test_a_new_primary_knows_nothing_of_a_member_that_it_has_not_reached() -> None:
    cluster = serving("c")
    cluster.kill("a")
    cluster.kill("c")
    cluster.run(lambda: cluster.nodes["b"].core.leading is not None)
    leading = cluster.nodes["b"].core.leading
    assert leading is not None
    assert leading.keeper.serves_until <= cluster.now + BEFORE
    cluster.run(lambda: cluster.leading() == ["b"], 30.0)
    cluster.pause(1.0)
    assert leading.keeper.serves_until > cluster.now + LONG - 0.7
