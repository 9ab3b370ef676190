"""Which stores may be overwritten after a loss was accepted, and which keep what was acknowledged (P2)."""

from __future__ import annotations

import pytest

from ha.messages.stream import Entries
from tests.ha.schedules.test_record import behind, promote, published, ready
from tests.support.steps import backups_of, declared, publish, survivors_agree


def test_an_accepted_loss_covers_nothing_of_its_own_generation() -> None:
    """The loss was accepted for what was before generation 3; what generation 3 acknowledged is not given up by it."""
    cluster = declared("q", size=3)
    b = behind(cluster)
    cluster.run(lambda: cluster.nodes["c"].state == "active")
    cluster.kill("c")
    cluster.run(lambda: promote(b) is None)
    cluster.run(lambda: b.state == "active")
    cluster.lose = lambda source, target, message: False
    cluster.start("a")
    cluster.start("c")
    survivors_agree(cluster)
    old = cluster.coordination.record
    assert old is not None and old.loss_accepted == old.generation == 3
    for name in ("a", "c"):
        cluster.kill(name)
    cluster.run(lambda: ready(cluster) == ["b"])
    published(cluster, b, "alone")
    cluster.pause(6)  # a checkpoint: what b knows to have passed the commit point
    cluster.kill("b")
    cluster.coordination.record = old
    a = cluster.start("a")
    cluster.start("c")
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    published(cluster, cluster.primary, "other")
    b = cluster.start("b")
    cluster.pause(10)
    assert b.state == "joining" and "discard this store" in (b.core.waits_for_operator or ""), a.lines[-3:]
    assert "alone" in [entry.message.body.decode() for entry in b.disk.base.queues[1].values()]


def test_what_was_never_acknowledged_keeps_no_node_from_being_overwritten() -> None:
    """b holds an event that the primary has not and that never passed the commit point; the log is reclaimed."""
    cluster = declared("q", size=3)
    a, (b, c) = cluster.primary, sorted(backups_of(cluster), key=lambda node: node.name)
    cluster.lose = lambda source, target, message: target == c.name and isinstance(message, Entries)
    held = b.core.replica.tail.sequence
    publish(a, "q", "of b alone")
    cluster.run(lambda: b.core.replica.durable > held)
    cluster.kill(a.name)
    cluster.kill(b.name)
    cluster.lose = lambda source, target, message: False
    cluster.run(lambda: c.state == "active")
    published(cluster, c, "after")
    c.core.log_first = c.core.replica.tail.sequence + 1
    b = cluster.start(b.name)
    assert b.core.replica.applied.sequence <= held < b.core.replica.tail.sequence
    cluster.run(cluster.all_ready)
    survivors_agree(cluster)
    assert c.host.bodies("q") == ["after"]


@pytest.mark.parametrize("late", [False, True])
def test_operator_s_word_behind_a_promotion(late: bool) -> None:
    """It came while the node's proposal was on its way, which was made: the word has no object any more.

    If the lease was over by then, the operator is told that nothing is forced.
    """
    cluster = declared("q", size=3)
    c = cluster.nodes["c"]
    cluster.cas_held.add("c")
    cluster.kill(cluster.primary.name)
    cluster.run(lambda: any(node is c for node, _ in cluster.cas))
    refused: list[str | None] = []
    c.report(lambda: refused.append(c.core.promote(True)))
    assert refused == [None]
    if late:
        cluster.pause(1.0)
    cluster.cas_held.clear()
    if not late:
        cluster.run(lambda: c.state == "active")
        cluster.pause(10.0)
        cluster.storeless.add("c")
    cluster.run(lambda: any("stepping down" in line for line in c.lines))
    cluster.pause(0.5)
    assert any("nothing is forced" in line for line in c.lines) == late
    record = cluster.coordination.record
    assert record is not None and record.loss_accepted == 0
