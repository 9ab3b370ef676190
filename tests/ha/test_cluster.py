"""Whole clusters in memory: founding, transactions, failovers in a row, a former primary with a suffix of its own."""

from __future__ import annotations

from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import begin, commit, declared


def test_founding_and_joining() -> None:
    cluster = declared("q")
    primary = cluster.primary
    primary.report(lambda: primary.host.publish("q", "m1"))
    cluster.run(lambda: primary.host.answer("publish m1") == "ok")
    assert primary.host.bodies("q") == ["m1"]
    cluster.pause(0.2)
    cluster.check_agreement()
    assert len({node.core.replica.applied for node in cluster.nodes.values()}) == 1


def test_a_transaction_is_invisible_until_it_is_decided_everywhere() -> None:
    cluster = declared("q", "r")
    primary = cluster.primary
    observer = begin(primary, {"q": ["a", "b"], "r": ["c"]})
    cluster.pause(0.5)
    assert primary.host.bodies("q") == [] and primary.host.bodies("r") == []
    commit(primary, observer)
    cluster.run(lambda: primary.host.answer("commit") == "ok")
    assert primary.host.bodies("q") == ["a", "b"] and primary.host.bodies("r") == ["c"]
    cluster.pause(0.2)
    cluster.check_agreement()
    assert all(not node.core.replica.buffers for node in cluster.nodes.values())


def test_dequeues_are_part_of_the_transaction() -> None:
    cluster = declared("q", "r")
    primary = cluster.primary
    primary.report(lambda: primary.host.publish("q", "in"))
    cluster.run(lambda: primary.host.answer("publish in") == "ok")
    first = begin(primary, {"r": ["x"]}, {"q": ["in"]})
    primary.report(first.rollback)
    cluster.pause(0.2)
    assert primary.host.bodies("q") == ["in"] and primary.host.bodies("r") == []
    commit(primary, begin(primary, {"r": ["out"]}, {"q": ["in"]}))
    cluster.run(lambda: primary.host.answer("commit") == "ok")
    assert primary.host.bodies("q") == [] and primary.host.bodies("r") == ["out"]


def test_three_failovers_in_a_row() -> None:
    cluster = declared("q", "r")
    for round_number in range(3):
        primary = cluster.primary
        done = begin(primary, {"q": [f"q{round_number}"], "r": [f"r{round_number}"]})
        commit(primary, done)
        cluster.run(lambda p=primary: p.host.answer("commit") == "ok")  # type: ignore[misc]
        undecided = begin(primary, {"q": ["lost"], "r": ["lost"]})
        assert undecided
        cluster.turn()
        cluster.kill(primary.name)
        cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
        expected = [str(n) for n in range(round_number + 1)]
        assert cluster.primary.host.bodies("q") == [f"q{n}" for n in expected]
        assert cluster.primary.host.bodies("r") == [f"r{n}" for n in expected]
        cluster.start(primary.name)
        cluster.settled()
    cluster.pause(0.2)
    cluster.check_agreement()


def test_a_former_primary_discards_decisions_that_nobody_else_has() -> None:
    cluster = declared("q")
    old = cluster.primary
    cluster.cas_held.add(old.name)
    cluster.partition(old.name)
    commit(old, begin(old, {"q": ["alone"]}))
    cluster.turn()
    cluster.run(
        lambda: any(n.state == "active" for n in cluster.nodes.values() if n is not old) and old.state == "joining"
    )
    assert old.host.answer("commit") is None
    new = cluster.primary
    assert new is not old and new.host.bodies("q") == []
    cluster.cas_held.clear()
    cluster.heal()
    cluster.settled()
    cluster.pause(0.2)
    cluster.check_agreement()
    assert new.host.bodies("q") == []


def test_killing_all_at_once_loses_nothing_acknowledged() -> None:
    cluster = declared("q", "r")
    primary = cluster.primary
    commit(primary, begin(primary, {"q": ["a"], "r": ["b"]}))
    cluster.run(lambda: primary.host.answer("commit") == "ok")
    for name in list(cluster.nodes):
        cluster.kill(name)
    for name in cluster.disks:
        cluster.start(name)
    cluster.settled()
    assert cluster.primary.host.bodies("q") == ["a"] and cluster.primary.host.bodies("r") == ["b"]
    cluster.check_agreement()


def test_a_node_with_a_new_store_resynchronises_under_load() -> None:
    cluster = declared("q", "r")
    primary = cluster.primary
    for number in range(1200):
        primary.report(lambda n=number: primary.host.publish("q", f"m{n}"))  # type: ignore[misc]
    cluster.run(lambda: primary.host.answer("publish m1199") == "ok")
    away = next(name for name in cluster.nodes if name != primary.name)
    cluster.kill(away)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)
    reclaim(cluster, primary)
    cluster.start(away, wipe=True)
    long_open = begin(primary, {"q": ["from the first event"], "r": ["too"]})
    for number in range(40):
        commit(
            primary, begin(primary, {"q": [f"live{number}"], "r": [f"r{number}"]}, {"q": [f"m{number}"]}), f"c{number}"
        )
        cluster.turn()
    cluster.settled()
    assert any("resynchronis" in line for line in cluster.nodes[away].lines)
    commit(primary, long_open, "long")
    cluster.run(lambda: primary.host.answer("long") == "ok")
    cluster.pause(0.3)
    cluster.check_agreement()
    for name in [name for name in cluster.nodes if name != away]:
        cluster.kill(name)
    cluster.run(lambda: cluster.nodes[away].state == "active")
    host = cluster.nodes[away].host
    assert host.bodies("q") == [f"m{n}" for n in range(40, 1200)] + [f"live{n}" for n in range(40)] + [
        "from the first event"
    ]
    assert host.bodies("r") == [f"r{n}" for n in range(40)] + ["too"]


def reclaim(cluster: MemoryCluster, node: MemoryNode) -> None:
    """The retention of everything in this node's log has passed."""
    cluster.pause(cluster.settings.checkpoint_every + 1)
    applied = node.disk.base.meta.applied.sequence
    node.disk.frames = [frame for frame in node.disk.frames if frame.last > applied]
    node.core.log_first = node.disk.log_first
    assert node.core.log_first > 1
