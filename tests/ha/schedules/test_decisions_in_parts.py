"""Named schedules about a decision that is applied in parts; they run under the cluster's oracles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ha.catchup.resync import Resync
from ha.messages.copying import Missing, QueueSnapshot
from ha.role import Waiting
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import answered, backups_of, begin, commit, declared, publish
from txobserver.ids import Member, Position

BODIES = [f"t{number}" for number in range(12)]


def in_the_middle(**settings: Any) -> tuple[MemoryCluster, MemoryNode]:
    """The primary has applied some of a decision, no backup any of it; each turn brings a part."""
    cluster = declared("q", "r", apply_steps=1, **settings)
    primary = cluster.primary
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    commit(primary, begin(primary, {"q": BODIES, "r": BODIES}, {"q": ["m"]}))
    cluster.run(lambda: primary.core.replica.in_parts)
    return cluster, primary


def seen(node: MemoryNode) -> tuple[list[str], list[str]]:
    host = node.host
    return host.bodies("q"), host.bodies("r")


def agree(cluster: MemoryCluster) -> None:
    """When all have applied the same, they hold the same."""
    cluster.run(lambda: len({node.core.replica.applied for node in cluster.nodes.values()}) == 1)
    assert not any(node.core.replica.in_parts for node in cluster.nodes.values())
    cluster.check_agreement()


def same_summaries(cluster: MemoryCluster) -> None:
    """P7: nodes at the same position count the same, also in the middle of a decision."""
    found: dict[Position, object] = {}
    for node in cluster.nodes.values():
        contents = node.core.replica.contents
        summaries = contents.queues.summaries()
        assert found.setdefault(contents.applied, summaries) == summaries, f"disagreement at {contents.applied}"


def counts(node: MemoryNode) -> list[int]:
    contents = node.core.replica.contents
    return [contents.queues.summary(contents.configuration.queue_number(name)).count for name in ("q", "r")]


def test_the_parts_are_one_step_at_the_primary_and_at_backups() -> None:
    """``half_a_decision_is_seen``: at each turn every node shows all of it or nothing, and the answer comes last."""
    cluster, primary = in_the_middle()
    turns = 0
    while primary.host.answer("commit") is None or any(node.core.replica.in_parts for node in backups_of(cluster)):
        whole = primary.host.answer("commit") == "ok"
        assert seen(primary) == ((BODIES, BODIES) if whole else (["m"], []))
        assert all(counts(node) in ([1, 0], [12, 12]) for node in cluster.nodes.values())
        same_summaries(cluster)
        cluster.turn()
        turns += 1
    assert turns > 3 and seen(primary) == (BODIES, BODIES)
    agree(cluster)


def test_each_part_asks_for_the_turn_of_the_next_one() -> None:
    """Else it came when the clock is looked at next, and a great decision took seconds."""
    _, primary = in_the_middle()
    assert primary.core.leading is not None
    asked: list[bool] = []
    primary.core.leading.primary.writer.wake = lambda: asked.append(True)
    primary.core.settle()
    assert primary.core.replica.in_parts and asked


@pytest.mark.parametrize("again", [False, True])
def test_a_step_down_in_the_middle_of_a_decision(again: bool) -> None:
    """The former primary finishes it as a backup; nothing of it was told, and the next primary has it whole."""
    cluster, primary = in_the_middle(lease_ttl=0.5, renew_every=0.1)
    if again:
        for other in backups_of(cluster):
            cluster.held |= {(primary.name, other.name), (other.name, primary.name)}
    cluster.frozen.add(primary.name)
    cluster.run(lambda: any(n.state == "active" and n is not primary for n in cluster.nodes.values()))
    cluster.frozen.clear()
    cluster.held.clear()
    cluster.run(lambda: primary.state != "active")
    assert not primary.core.replica.in_parts or counts(primary) == [1, 0]
    cluster.settled()
    cluster.run(lambda: len({node.core.replica.applied for node in cluster.nodes.values()}) == 1)
    assert seen(cluster.primary) == (BODIES, BODIES)
    cluster.check_agreement()


def test_a_crash_between_two_parts() -> None:
    """``a_crash_between_two_parts``: its disk holds nothing of it but the log, and every node comes back with all."""
    cluster, _ = in_the_middle(checkpoint_every=0.01)
    names = sorted(cluster.nodes)
    for name in names:
        cluster.kill(name)
    for name in names:
        cluster.start(name)
    cluster.settled()
    cluster.run(lambda: seen(cluster.primary) == (BODIES, BODIES))
    agree(cluster)


def test_a_primary_serves_in_the_middle_of_no_decision() -> None:
    """``a_primary_serves_in_the_middle_of_a_decision``: what it is shown at the beginning is whole."""
    cluster, primary = in_the_middle()
    shown: list[tuple[list[int], bool]] = []
    for node in backups_of(cluster):
        serve = node.host.on_active

        def on_active(ledger: Any, content: Any, node: MemoryNode = node, serve: Any = serve) -> None:
            serve(ledger, content)
            shown.append(([len(each) for each in seen(node)], node.core.replica.in_parts))

        node.host.on_active = on_active
    cluster.kill(primary.name)
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    assert shown == [([12, 12], False)]
    cluster.start(primary.name)
    agree(cluster.settled())


def test_a_copy_that_is_made_in_the_middle_of_a_decision() -> None:
    """``a_copy_ends_in_the_middle_of_a_decision``: the joiner would be left with half of it, and take it for all."""
    cluster, primary = in_the_middle()
    replica, sent = primary.core.replica, []
    copy = Resync("x", primary.core.generation, 1, replica, sent.append, 1 << 20, 1 << 20)
    replica.contents.layers.readings.clear()
    copy.store_marked(cluster.now)
    for _ in range(8):
        for each in [each.message for each in sent]:
            if isinstance(each, QueueSnapshot) and each.ids:
                copy.missing(Missing(each.generation, 1, each.queue, [offset for offset, _ in each.ids]), cluster.now)
        copy.progress(len(sent) - 1, False, cluster.now)
    assert len(sent) > 3 and replica.in_parts and copy.ended_at is None
    while replica.in_parts:
        replica.apply(0, copy, 1)
    copy.go_on(cluster.now)
    assert copy.ended_at == replica.applied.sequence


@pytest.mark.plain
def test_nobody_is_granted_without_the_decision_that_has_begun() -> None:
    """``granted_without_the_decision_that_has_begun``: were it the only one left, it would lead without what this node
    cannot undo any more."""
    cluster, primary = in_the_middle()
    session = primary.core.leading.backups.sessions[backups_of(cluster)[0].name]
    begun, keeper = primary.core.replica.begun, primary.core.leading.keeper
    asked: list[Member] = []
    keeper.is_ready = lambda member: False
    keeper.add = lambda member, now: asked.append(member)
    session.acknowledged = begun - 1
    primary.core.leading.backups.grant(cluster.now)
    assert session.member not in asked
    session.acknowledged = begun
    primary.core.leading.backups.grant(cluster.now)
    assert session.member in asked


def test_what_has_begun_is_finished_below_min_ready() -> None:
    """Its queues would hand nothing out until enough nodes are back."""
    _, primary = in_the_middle()
    primary.core.settings = replace(primary.core.settings, min_ready=4)
    leading = primary.core.leading.primary
    for _ in range(40):
        primary.report(lambda: None)
        assert leading.decisions.below_min_ready
    assert seen(primary) == (BODIES, BODIES) and primary.host.answer("commit") == "ok"


def test_a_node_that_waits_for_a_primary_finishes_what_has_begun() -> None:
    """It could be asked to cut its log otherwise, and stand before a decision of which it holds half."""
    _, primary = in_the_middle()
    assert not primary.core.leading.primary.may_serve
    woken: list[int] = []
    turns = 0
    primary.core.wake = lambda: woken.append(turns)
    while primary.core.replica.in_parts:
        turns += 1
        Waiting(primary.core).settle()
        assert turns < 40
    assert counts(primary) == [12, 12]
    assert turns > 3 and woken == [*range(1, turns)], "a part in each turn, each of which asks for the next one"
