"""Schedules in which a primary is stopped, or is busy, for less than its lease: what others did meanwhile counts."""

from __future__ import annotations

import itertools

import pytest

from tests.support.memory_cluster import TURN, MemoryCluster, MemoryNode
from tests.support.steps import answered, backups_of, declared, publish

STOPPED = 4.0
"""Seconds: longer than any patience here, and shorter than the lease."""


def listed(cluster: MemoryCluster) -> list[str]:
    assert cluster.coordination.record is not None
    return sorted(member.node for member in cluster.coordination.record.ready)


def stop(cluster: MemoryCluster, node: MemoryNode, seconds: float = STOPPED) -> None:
    """Nothing runs in this node for so long; it goes on at the next turn."""
    cluster.frozen.add(node.name)
    cluster.pause(seconds)
    cluster.frozen.discard(node.name)


@pytest.mark.parametrize(("patience", "seconds"), [(3.0, STOPPED), (0.5, 2.0)])
def test_stopped_for_less_than_the_lease(patience: float, seconds: float) -> None:
    """P12: its backups have answered meanwhile, and it has not read that when it looks at its clock first."""
    cluster = declared("q", lease_ttl=10.0, prepare_timeout=patience)
    primary = cluster.primary
    publish(primary, "q", "m")
    cluster.turn()
    assert primary.core.leading is not None
    owed = [each.acknowledged < primary.core.replica.durable for each in primary.core.leading.backups.sessions.values()]
    assert owed == [True, True]
    stop(cluster, primary, seconds)
    answered(cluster, primary, "publish m")
    cluster.pause(2 * patience)
    assert listed(cluster) == ["a", "b", "c"] and not any("silent" in line for line in primary.lines)
    assert not any("out of the ready set" in line for line in primary.lines) and primary.state == "active"


def test_who_is_silent_before_and_after_a_stop_is_taken_out_in_the_time_that_counts() -> None:
    cluster = declared("q", lease_ttl=10.0)
    primary, (silent, _) = cluster.primary, backups_of(cluster)
    cluster.frozen.add(silent.name)
    publish(primary, "q", "m")
    cluster.pause(2.0)
    stop(cluster, primary)
    went_on = cluster.now
    cluster.run(lambda: silent.name not in listed(cluster))
    assert 0.0 < cluster.now - went_on < 0.05, "two of the three seconds had passed before, and of the stop one counts"
    answered(cluster, primary, "publish m")


@pytest.mark.parametrize(("lease", "step"), [(10.0, 0.1), (10.0, 1.0), (1.0, 0.3)])
def test_a_primary_that_is_always_busy_takes_out_who_is_silent(lease: float, step: float) -> None:
    """All its steps are long, and it reads between them: it must not wait for ever."""
    cluster = declared("q", lease_ttl=lease)
    primary, (silent, _) = cluster.primary, backups_of(cluster)
    cluster.frozen.add(silent.name)
    publish(primary, "q", "m")
    began = cluster.now
    while silent.name in listed(cluster):
        assert cluster.now - began < 3 * cluster.settings.prepare_timeout, cluster.describe()
        cluster.now += step
        cluster.turn()
    answered(cluster, primary, "publish m")


@pytest.mark.parametrize(
    ("lease", "steps"), [(1.0, (0.3, 0.02)), (1.0, (0.3, *[0.02] * 10)), (10.0, (1.1, 0.02))]
)
def test_long_steps_that_alternate_with_short_ones(lease: float, steps: tuple[float, ...]) -> None:
    """P12: the primary is busy now and then. What it does not hold against others must not add up to many times as
    long as ``prepare_timeout``, for which commits wait meanwhile."""
    cluster = declared("q", lease_ttl=lease)
    primary, (silent, _) = cluster.primary, backups_of(cluster)
    cluster.frozen.add(silent.name)
    publish(primary, "q", "m")
    began, each = cluster.now, itertools.cycle(steps)
    while silent.name in listed(cluster):
        assert cluster.now - began < 1.4 * cluster.settings.prepare_timeout, cluster.describe()
        cluster.now += next(each) - TURN
        cluster.turn()
    answered(cluster, primary, "publish m")
    assert primary.state == "active"


def test_a_disk_that_hangs_is_found_in_long_steps_that_alternate_with_short_ones() -> None:
    """The same of the primary's own disk."""
    cluster = declared("q")
    primary = cluster.primary
    primary.disk_held = True
    publish(primary, "q", "m")
    began, each = cluster.now, itertools.cycle((0.3, 0.02))
    while primary.state == "active":
        assert cluster.now - began < 1.4 * cluster.settings.prepare_timeout, cluster.describe()
        cluster.now += next(each) - TURN
        cluster.turn()
    assert any("has not written" in line for line in primary.lines)


def test_a_lost_connection_came_back_during_a_stop() -> None:
    """P12: it had been lost a moment before; the stop is longer than the grace that it has."""
    cluster = declared("q", lease_ttl=10.0)
    primary, (backup, _) = cluster.primary, backups_of(cluster)
    primary.report(lambda: primary.core.on_link(backup.name, False))
    backup.report(lambda: backup.core.on_link(primary.name, False))
    cluster.turn()
    cluster.frozen.add(primary.name)
    cluster.pause(STOPPED)
    cluster.frozen.clear()
    cluster._go_on()
    primary.report(lambda: primary.core.on_link(backup.name, True))
    backup.report(lambda: backup.core.on_link(primary.name, True))
    cluster.pause(1.0)
    assert listed(cluster) == ["a", "b", "c"] and not any("out of the ready set" in line for line in primary.lines)


@pytest.mark.parametrize("told", ["behind the tick", "before the tick"])
def test_a_connection_that_was_lost_during_a_stop_has_its_grace_from_then_on(told: str) -> None:
    cluster = declared("q", lease_ttl=10.0)
    primary, (backup, _) = cluster.primary, backups_of(cluster)
    cluster.frozen.add(backup.name)
    stop(cluster, primary)
    if told == "behind the tick":
        cluster._go_on()
    primary.report(lambda: primary.core.on_link(backup.name, False))
    went_on, grace = cluster.now, cluster.settings.link_down_grace
    cluster.run(lambda: backup.name not in listed(cluster))
    assert grace <= cluster.now - went_on < grace + 0.05


def test_a_write_that_ended_during_a_stop_did_not_hang() -> None:
    """P12: its end is told behind the tick, and the primary stays."""
    cluster = declared("q", lease_ttl=10.0)
    primary = cluster.primary
    primary.disk_held = True
    publish(primary, "q", "m")
    cluster.pause(0.1)
    assert primary.core.leading is not None and primary.core.leading.primary.writer.writing
    stop(cluster, primary)
    primary.disk_held = False
    answered(cluster, primary, "publish m")
    assert primary.state == "active" and not any("has not written" in line for line in primary.lines)
