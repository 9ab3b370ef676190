"""When a cluster in which one node lacks the record does all that it can: ``serves_beside`` is itself checked."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ha.membership.node_state import ACTIVE
from ha.settings import Settings
from tests.simulation.book import Book
from tests.simulation.cluster import Cluster
from tests.simulation.run import Run
from tests.simulation.storeless import serves_beside
from tests.simulation.world import World


def cluster_of_three(min_ready: int) -> Cluster:
    cluster = Cluster(World(1), 3, Settings(min_ready=min_ready))
    turn(cluster, cluster.all_ready)
    return cluster


def turn(cluster: Cluster, until: Callable[[], bool]) -> None:
    end = cluster.world.now + 20.0
    while not until():
        assert cluster.world.now < end, cluster.coordination.record
        cluster.world.run(cluster.world.now + 0.05)


def below(cluster: Cluster, node: str) -> bool:
    leading = cluster.processes[node].core.leading
    return leading is not None and leading.primary.decisions.below_min_ready


def without_primary(cluster: Cluster, broken: set[str]) -> tuple[str, str]:
    """The primary dies, and one of the other two is ``broken``: who has taken over by then, and the broken one."""
    assert cluster.coordination.record is not None and cluster.coordination.record.primary is not None
    primary = cluster.coordination.record.primary.node
    heir, without = sorted(cluster.disks.keys() - {primary})
    broken.add(without)
    cluster.world.run(cluster.world.now + 2.0)
    cluster.kill(primary, power=False)
    assert not serves_beside(cluster, without)
    turn(cluster, lambda: cluster.processes[heir].core.state == ACTIVE)
    cluster.world.run(cluster.world.now + 5.0)
    return heir, without


def test_one_that_serves_below_min_ready_is_not_enough_where_another_one_could_follow() -> None:
    cluster = cluster_of_three(min_ready=2)
    heir, without = without_primary(cluster, cluster.coordination.read_only)
    assert serves_beside(cluster, without)
    pairs = [(heir, without), (without, heir)]
    for pair in pairs:
        cluster.network.cut(*pair, stall=False)
    turn(cluster, lambda: below(cluster, heir))
    assert not serves_beside(cluster, without)
    cluster.network.heal(pairs)
    turn(cluster, lambda: serves_beside(cluster, without))


@pytest.mark.parametrize("min_ready", [1, 2])
def test_one_that_cannot_read_the_record_cannot_follow(min_ready: int) -> None:
    """A node that serves beside it is alone, and does all that it can."""
    cluster = cluster_of_three(min_ready)
    heir, without = without_primary(cluster, cluster.coordination.cut_off)
    assert below(cluster, heir) == (min_ready == 2) and serves_beside(cluster, without)
    assert not serves_beside(cluster, heir)


@pytest.mark.slice
def test_a_cluster_that_serves_and_commits_nothing_beside_such_a_node_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer of *done* is lost from the moment in which a node cannot reach the record."""
    run = Run(0)

    def found(book: Book, outcome: str) -> int:
        return 0 if run.cluster.coordination.cut_off else count(book, outcome)

    count = Book.count
    monkeypatch.setattr(Book, "count", found)
    result = run.run()
    assert result.promise == "P12" and "commits beside" in result.broken
