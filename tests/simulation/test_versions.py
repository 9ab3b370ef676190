"""A node of an earlier version among others: the real shell, links and store, with and without the check of events."""

from __future__ import annotations

from typing import Any

import pytest

from ha.apply import replica as replica_module
from tests.simulation.cluster import Cluster
from tests.simulation.process import WatchedReplica
from tests.simulation.test_serves_beside import cluster_of_three, turn
from txobserver.configuration import OPERATIONS, USE_QUEUE, UnknownStep, check_step, use_queue_step

OLDER = OPERATIONS - {USE_QUEUE}

pytestmark = pytest.mark.plain


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The nodes whose next process is of a version that does not know USE_QUEUE: neither received nor applied."""
    names: set[str] = set()
    made = WatchedReplica.__init__

    def make(self: WatchedReplica, process: Any, *state: Any) -> None:
        made(self, process, *state)
        if process.name in names:
            configuration = self.contents.configuration
            apply = configuration.apply

            def applied(step: Any, holds: Any) -> Any:
                check_step(step, OLDER)
                return apply(step, holds)

            self._operations = OLDER
            configuration.apply = applied  # type: ignore[method-assign]

    monkeypatch.setattr(WatchedReplica, "__init__", make)
    return names


def mixed(older: set[str]) -> tuple[Cluster, str]:
    """Three nodes that are ready, of which a backup is of the earlier version; the primary uses a queue."""
    cluster = cluster_of_three(min_ready=2)
    assert cluster.coordination.record is not None and cluster.coordination.record.primary is not None
    primary = cluster.coordination.record.primary.node
    name = max(cluster.disks.keys() - {primary})
    older.add(name)
    cluster.kill(name, power=False)
    cluster.start(name)
    turn(cluster, cluster.all_ready)
    leading = cluster.processes[primary].core.leading
    assert leading is not None
    ledger = leading.primary.ledger
    cluster.processes[primary].operate(lambda: ledger.configure(use_queue_step("q"), lambda outcome: None))
    return cluster, name


def test_a_node_that_does_not_know_a_step_stays_out_until_it_is_upgraded(older: set[str]) -> None:
    cluster, name = mixed(older)
    for _ in range(2):
        turn(cluster, lambda: bool(cluster.processes[name].core.waits_for_operator))
        cluster.world.run(cluster.world.now + 5.0)
        process = cluster.processes[name]
        assert process.alive and process.failed is None and process.core.state == "joining"
        assert "'queue.use'" in str(process.core.waits_for_operator)
        assert cluster.coordination.record is not None
        assert name not in [member.node for member in cluster.coordination.record.ready]
        cluster.kill(name, power=False)
        cluster.start(name)
    older.clear()
    cluster.kill(name, power=False)
    cluster.start(name)
    turn(cluster, cluster.all_ready)


def test_without_the_check_it_ends_where_it_applies_the_step(older: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that the check is for, and it is seen: an error that nothing expects."""
    monkeypatch.setattr(replica_module, "check_step", lambda step, operations: None)
    cluster, name = mixed(older)
    with pytest.raises(UnknownStep, match=r"queue\.use"):
        turn(cluster, lambda: not cluster.processes[name].alive)
