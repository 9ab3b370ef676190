"""Faults that overlap: what is usual is back when the last has ended, whichever began first."""

from __future__ import annotations

from itertools import permutations
from random import Random
from types import SimpleNamespace

import pytest

from ha.settings import Settings
from tests.simulation.cluster import Cluster
from tests.simulation.fault_kinds import (
    cut,
    failing_checkpoint,
    full_disk,
    loss,
    slow_checkpoints,
    slow_disk,
    slow_network,
)
from tests.simulation.faults import Kind
from tests.simulation.lasting import Lasting
from tests.simulation.record_faults import repeating_store, slow_store, stalled_store, unreliable_store
from tests.simulation.world import World


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_usual_value_is_back_when_all_changes_have_ended(order: tuple[int, ...]) -> None:
    lasting, thing = Lasting(), SimpleNamespace(speed=1)
    endings = [lasting.change(thing, "speed", value) for value in (2, 3, 4)]
    there = [0, 1, 2]
    for each in order:
        assert thing.speed == 2 + there[-1]
        there.remove(each)
        endings[each]()
        endings[each]()
    assert thing.speed == 1


def test_what_two_hold_is_there_until_both_have_let_go() -> None:
    lasting, members = Lasting(), set[str]()
    first, second = lasting.hold(members, "a"), lasting.hold(members, "a")
    first()
    first()
    assert members == {"a"}
    second()
    assert not members


def _state(cluster: Cluster) -> list[object]:
    disks = [cluster.disks[name] for name in sorted(cluster.disks)]
    network, store = cluster.network, cluster.coordination
    return [
        *((each.slowness, each.checkpoint_seconds, each.base.fails, each.files.full) for each in disks),
        (network.loss, network.slowness, set(network.down), set(network._cut), set(network._stalled)),
        (store.slowness, store.unreliable, store.repeating, store.stalled_until, set(store.cut_off)),
    ]


@pytest.mark.parametrize(
    "kind",
    [
        *(cut, failing_checkpoint, full_disk, loss, slow_checkpoints, slow_disk, slow_network),
        *(repeating_store, slow_store, stalled_store, unreliable_store),
    ],
    ids=lambda kind: kind.__name__,
)
def test_faults_that_overlap_leave_nothing_behind(kind: Kind) -> None:
    """Two slow disks once left one slow for good: each fault put back what it had found."""
    cluster = Cluster(World(1), 2, Settings())
    cluster.world.run(0.01)
    usual = _state(cluster)
    for number in range(20):
        endings = [kind(cluster, Random(f"{number}/{each}")) for each in range(3)]
        assert _state(cluster) != usual
        for ending in endings:
            assert ending is not None
            ending()
        assert _state(cluster) == usual
