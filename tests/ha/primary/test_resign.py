"""A primary that stops gives its lease up: no node waits for the lease to end."""

from __future__ import annotations

from tests.support.steps import begin_t, commit, declared, survivors_agree


def test_a_primary_that_stops_is_followed_at_once() -> None:
    """With a lease of an hour the next primary comes within seconds, and nothing is served meanwhile."""
    cluster = declared("q", "r", lease_ttl=3600.0, renew_every=900.0)
    first = cluster.primary
    first.report(lambda: first.core.resign("the node is stopping"))
    assert first.core.leading is not None and not first.core.leading.primary.point.serving
    cluster.run(lambda: cluster.coordination.record.primary.node != first.name)  # type: ignore[union-attr]
    assert cluster.coordination.record.generation == 2  # type: ignore[union-attr]
    cluster.run(lambda: any(node.state == "active" and node is not first for node in cluster.nodes.values()))
    survivors_agree(cluster)


def test_one_that_is_no_primary_has_nothing_to_give_up() -> None:
    cluster = declared("q", "r")
    (backup, *_) = [node for node in cluster.nodes.values() if node is not cluster.primary]
    version = cluster.coordination.record.version  # type: ignore[union-attr]
    backup.report(lambda: backup.core.resign("the node is stopping"))
    cluster.turn()
    commit(cluster.primary, begin_t(cluster.primary))
    cluster.run(lambda: cluster.primary.host.answer("commit") == "ok")
    record = cluster.coordination.record
    assert record is not None and not record.released and record.version >= version


def test_lone_primary_stands_again_while_it_stops() -> None:
    """Its own record has no primary any more; with a new lease the next one would have to wait for the dead."""
    cluster = declared("q", size=1)
    alone = cluster.primary
    alone.report(lambda: alone.core.resign("the node is stopping"))
    cluster.run(lambda: alone.core.leading is None)
    cluster.pause(3.0)
    record = cluster.coordination.record
    assert record is not None and record.released and record.generation == 1
    cluster.kill("a")
    cluster.start("a")
    survivors_agree(cluster)


def test_a_backup_that_stops_does_not_stand_any_more() -> None:
    cluster = declared("q")
    first, second, third = cluster.nodes.values()
    second.report(lambda: second.core.resign("the node is stopping"))
    cluster.kill(first.name)
    cluster.kill(third.name)
    cluster.pause(3.0)
    assert second.state == "joining"
