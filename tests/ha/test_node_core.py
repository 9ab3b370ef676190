"""What one node does with what its shell and its operator tell it, one rule a test (``ha.node_core``)."""

from __future__ import annotations

import pytest

from ha.node_core import NO_RECORD
from ha.queue_guard import QueueGuard
from ha.session import Session
from ha.wire import Handover
from tests.ha.memory_cluster import MemoryCluster, MemoryNode
from tests.ha.steps import backups_of, declared, publish
from txobserver.ids import Member


def test_a_node_without_a_record_stops_and_says_what_to_do() -> None:
    """It founds nothing by itself (``empty_node_founds_anew``)."""
    cluster = MemoryCluster(2)
    cluster.coordination.record = None
    cluster.turn()
    assert {node.stopped for node in cluster.nodes.values()} == {NO_RECORD}


def test_a_primary_whose_store_failed_only_gives_its_lease_up() -> None:
    """Its clients are told once, the store's reason; and a lease that ends meanwhile is no second one."""
    cluster = declared("q", size=1)
    node = cluster.primary
    cluster.cas_held.add(node.name)
    node.report(lambda: node.core.on_store_error("input/output error"))
    assert node.host.closed == ["input/output error"]
    keeper, now = node.core.keeper, cluster.now + 3600
    assert keeper is not None and keeper.expired(now) and not node.core.overslept(now)
    node.core.look_at_clock(now, 0)
    assert node.host.closed == ["input/output error"] and node.core.keeper is keeper
    node.core.on_store_error("once more")
    assert node.host.closed == ["input/output error"] and node.core.failed == "input/output error"


def test_who_is_ready_takes_over_from_its_primary_without_a_loss() -> None:
    cluster = declared("q")
    asked: list[tuple[str, str]] = []

    def look(source: str, target: str, message: object) -> bool:
        if isinstance(message, Handover):
            asked.append((source, target))
        return False

    cluster.lose = look
    primary, backup = cluster.primary, backups_of(cluster)[0]
    assert backup.core.promote(accept_data_loss=False) is None
    backup.report(lambda: None)
    assert asked == [(backup.name, primary.name)]
    assert "already" in (primary.core.promote(accept_data_loss=False) or "")


@pytest.mark.parametrize("state", ["catchup", "joining"])
def test_who_is_not_ready_does_not(state: str) -> None:
    cluster = declared("q")
    backup = backups_of(cluster)[0]
    backup.core.state = state
    assert "only a ready backup" in (backup.core.promote(accept_data_loss=False) or "")


def confirmed(node: MemoryNode) -> bool:
    return node.host.answer("publish m") == "ok"


def test_a_joiner_past_its_guard_is_waited_for_although_nobody_lists_it() -> None:
    """It takes part in what is closed from then on (``ready_but_not_participant``)."""
    cluster = declared("q", size=1)
    node = cluster.primary
    backups = node.core.backups
    assert backups is not None
    tail = node.core.replica.tail.sequence
    joiner = Session(Member("b", "b1"), 1, node.core.generation, tail, QueueGuard(tail), cluster.now)
    joiner.trackers.track(7, {1}, tail + 1000)  # so it is not granted ready
    backups.sessions["b"] = joiner
    publish(node, "q", "m")
    cluster.pause(0.1)
    assert node.core.replica.durable == tail + 1 and backups.durable_everywhere() == tail
    assert not confirmed(node)
    joiner.guard = QueueGuard(tail + 1)
    assert backups.durable_everywhere() == tail + 1, "before its guard it is not"
    joiner.acknowledge(tail + 1, tail + 1, cluster.now)
    cluster.run(lambda: confirmed(node))
