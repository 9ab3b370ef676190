"""A lease runs from before its renewal or promotion was sent (PROTOCOL, "Who is primary"), however late one hears."""

from __future__ import annotations

import pytest

from ha.effects import CompareAndSet
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import backups_of, declared

LATE = 0.4
"""Seconds between the sending and the answer, less than a lease."""


def answered_late(cluster: MemoryCluster, node: MemoryNode) -> float:
    """The next change that this node asks for is made at once, and answered late; returns when it was sent."""
    cluster.cas_held.add(node.name)
    cluster.run(lambda: any(asking is node for asking, _ in cluster.cas))
    sent_at = cluster.now
    ((_, effect),) = [each for each in cluster.cas if each[0] is node]
    cluster.cas.remove((node, effect))
    assert isinstance(effect, CompareAndSet)
    cluster.now += LATE
    cluster.land(node, effect)
    return sent_at


def check_lease(cluster: MemoryCluster, node: MemoryNode, sent_at: float) -> None:
    """It holds up to the last moment that it may, and not a moment longer."""
    keeper, settings = node.core.leading.keeper, cluster.settings
    assert keeper is not None and node.core.leading is not None
    until = sent_at + settings.lease_ttl * (1 - settings.lease_drift)
    assert cluster.now < until
    assert keeper.holds(until - 0.01) and not keeper.expired(until - 0.01)
    assert keeper.expired(until + 0.01) and not keeper.holds(until + 0.01)


@pytest.mark.parametrize("renewals", [1, 3])
def test_a_renewal(renewals: int) -> None:
    cluster = declared("q")
    primary = cluster.primary
    for _ in range(renewals):
        sent_at = answered_late(cluster, primary)
        check_lease(cluster, primary, sent_at)
        cluster.cas_held.clear()
        cluster.pause(cluster.settings.renew_every)


def test_a_promotion() -> None:
    cluster = declared("q")
    candidate = max(backups_of(cluster), key=lambda node: node.name)  # both hold the same, so the name decides
    cluster.kill(cluster.primary.name)
    sent_at = answered_late(cluster, candidate)
    check_lease(cluster, candidate, sent_at)
