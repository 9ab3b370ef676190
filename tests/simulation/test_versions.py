"""A node of an earlier version among others: the real shell, links and store, with and without the check of events."""

from __future__ import annotations

import pytest

from ha.apply import replica as replica_module
from tests.simulation.cluster import Cluster
from tests.simulation.releases import TODAY, Release
from tests.simulation.test_serves_beside import cluster_of_three, turn
from tests.simulation.truth import Broken
from txobserver.configuration import OPERATIONS, USE_QUEUE, use_queue_step

EARLIER = Release("an earlier", OPERATIONS - {USE_QUEUE})
"""It neither receives nor applies USE_QUEUE."""

pytestmark = pytest.mark.plain


def mixed() -> tuple[Cluster, str]:
    """Three nodes that are ready, of which a backup is of the earlier version; the primary uses a queue."""
    cluster = cluster_of_three(min_ready=2)
    assert cluster.coordination.record is not None and cluster.coordination.record.primary is not None
    primary = cluster.coordination.record.primary.node
    name = max(cluster.disks.keys() - {primary})
    cluster.releases[name] = EARLIER
    cluster.kill(name, power=False)
    cluster.start(name)
    turn(cluster, cluster.all_ready)
    leading = cluster.processes[primary].core.leading
    assert leading is not None
    ledger = leading.primary.ledger
    cluster.processes[primary].operate(lambda: ledger.configure(use_queue_step("q"), lambda outcome: None))
    return cluster, name


def test_a_node_that_does_not_know_a_step_stays_out_until_it_is_upgraded() -> None:
    cluster, name = mixed()
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
    cluster.releases[name] = TODAY
    cluster.kill(name, power=False)
    cluster.start(name)
    turn(cluster, cluster.all_ready)


def test_without_the_check_it_keeps_what_it_cannot_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """P12: the fault that the check is for, and it is seen."""
    monkeypatch.setattr(replica_module, "check_step", lambda step, operations, actions: None)
    cluster, name = mixed()
    with pytest.raises(Broken, match=rf"P12: {name} keeps queue\.use at"):
        turn(cluster, lambda: not cluster.processes[name].alive)
