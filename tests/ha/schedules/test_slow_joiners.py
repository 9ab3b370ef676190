"""Named schedules: a joiner, or a member, that gets on slowly; no commit waits for it for long."""

from __future__ import annotations

import pytest

from ha.messages.stream import Entries
from tests.support.slow_ways import Load, SlowCluster, slow_cluster
from tests.support.steps import backups_of


def listed(cluster: SlowCluster, name: str) -> bool:
    record = cluster.coordination.record
    assert record is not None
    return name in {member.node for member in record.ready}


def away(cluster: SlowCluster, load: Load, seconds: float) -> str:
    """A backup that is down for so long."""
    name = backups_of(cluster)[0].name
    cluster.kill(name)
    load.run(seconds)
    assert not listed(cluster, name)
    load.longest = 0.0
    return name


@pytest.mark.parametrize(("every", "seconds"), [(0.06, 10.0), (0.03, 4.0)], ids=["faster", "slower"])
def test_counts_with_any_lag(every: float, seconds: float) -> None:
    """``counts_with_any_lag``: the joiner is little faster than the load, or slower. It slows the clients,
    and counts when it has nearly all; else all commits would wait until it had."""
    cluster = slow_cluster()
    load = Load(cluster, 1000, every)
    name = away(cluster, load, seconds)
    cluster.rates[cluster.primary.name, name] = 20_000.0
    cluster.start(name)
    until = cluster.now + 300.0
    while not listed(cluster, name):
        load.turn()
        assert cluster.now < until, cluster.describe()
    assert load.longest < 3.0 and max(load.waited) < 3.0
    assert any("clients are slowed" in line for line in cluster.primary.lines)
    load.run(5.0)
    cluster.run(cluster.all_ready)
    cluster.check_agreement()


def test_counts_with_few_large_messages() -> None:
    """``small_lag`` counts events; a few of them may be all that a link carries in half a minute."""
    cluster = slow_cluster()
    load = Load(cluster, 50_000, 0.5)
    name = away(cluster, load, 30.0)
    cluster.rates[cluster.primary.name, name] = 200_000.0
    cluster.start(name)
    while not listed(cluster, name):
        load.turn()
    assert load.longest < 2.0


@pytest.mark.parametrize("size", [300, 30_000])
def test_a_joiner_whose_disk_is_sick(size: int) -> None:
    """``a_joiner_whose_disk_is_sick``: each sync takes longer than a member has. It is taken out once, and not taken in
    again while its disk is so: it was, and held the commits up each time."""
    cluster = slow_cluster()
    load, name = Load(cluster, size, 0.05), backups_of(cluster)[0].name
    load.run(1.0)
    cluster.sync_seconds[name] = 3.5
    load.run(25.0)
    assert not listed(cluster, name) and sum(seconds > 1.0 for seconds in load.waited) < 100
    assert sum("is out of the ready set" in line for line in cluster.primary.lines) == 1
    cluster.sync_seconds.clear()
    until = cluster.now + 60.0
    while not listed(cluster, name) and cluster.now < until:
        load.turn()
    assert listed(cluster, name), "its disk is well again"


@pytest.mark.parametrize(("flap", "every"), [(0.6, 0.05), (0.6, 0.5), (2.5, 0.5)])
def test_one_frame_for_each_attachment(flap: float, every: float) -> None:
    """``one_frame_for_each_attachment``: each is progress, and what is behind it waits longer and longer."""
    cluster = slow_cluster()
    load, primary, name = Load(cluster, 10, every), cluster.primary, backups_of(cluster)[0].name
    load.run(1.0)
    let_through: list[object] = []

    def lose(source: str, target: str, message: object) -> bool:
        if (source, target) != (primary.name, name) or not isinstance(message, Entries):
            return False
        let_through.append(message)
        return len(let_through) > 1

    cluster.lose = lose
    began = cluster.now
    while listed(cluster, name) and cluster.now < began + 120.0:
        let_through.clear()
        cluster.partition(name)
        load.run(0.1)
        cluster.heal()
        load.run(flap - 0.1)
    assert not listed(cluster, name)
    load.run(1.0)
    assert max(load.waited) < 3 * cluster.settings.prepare_timeout + 3.0
