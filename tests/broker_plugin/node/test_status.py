"""What a node says of itself: who is ready, what is short, and what its coordination store complains of."""

from __future__ import annotations

from functools import partial

from broker_plugin.node.readiness import Readiness
from broker_plugin.node.status import status
from tests.support.steps import backups_of, declared
from txobserver.configuration import queue_step


def test_a_primary_says_what_is_short_and_a_backup_leaves_that_to_it() -> None:
    cluster = declared("q", size=2)
    node, (backup,) = cluster.primary, backups_of(cluster)
    readiness = Readiness(2, 1)
    assert status(node.core, node.member, readiness)["shortage"] is None
    cluster.kill(backup.name)
    cluster.run(lambda: len(node.core.record.ready) == 1)  # type: ignore[union-attr]
    said = status(node.core, node.member, readiness)
    assert "ON ONE DISK" in said["shortage"] and (said["ready"], said["ready_set"]) == (True, [node.name])
    backup = cluster.start(backup.name)
    cluster.run(lambda: backup.core.record is not None)
    said = status(backup.core, backup.member, Readiness(3, 2))
    assert said["shortage"] is None and not said["ready"]


def test_a_node_that_is_not_in_step_is_not_ready_whatever_the_record_says() -> None:
    cluster = declared("q", size=2)
    (backup,) = backups_of(cluster)
    assert status(backup.core, backup.member, Readiness(2, 1))["ready"]
    cluster.partition(backup.name)
    cluster.run(lambda: backup.state == "joining")
    said = status(backup.core, backup.member, Readiness(2, 1))
    assert not said["ready"] and backup.name in said["ready_set"]


def test_a_primary_that_waits_for_its_backups_is_short_of_nothing_yet() -> None:
    cluster = declared("q", size=2)
    (backup,) = backups_of(cluster)
    cluster.kill(cluster.primary.name)
    cluster.run(lambda: backup.state == "recovering")
    assert status(backup.core, backup.member, Readiness(3, 1))["shortage"] is None


def test_what_the_coordination_store_complains_of_is_said() -> None:
    node = declared("q", size=1).primary
    said = status(node.core, node.member, Readiness(1, 1), "it gives no answer")
    assert said["record_error"] == "it gives no answer"
    assert status(node.core, node.member, Readiness(1, 1))["record_error"] is None


def test_a_node_with_a_new_store_says_that_the_ready_set_has_its_former_one() -> None:
    """By their names the two cannot be told apart."""
    cluster = declared("q", size=2)
    (backup,) = backups_of(cluster)
    assert not status(backup.core, backup.member, Readiness(2, 1))["former_store_ready"]
    for name in (cluster.primary.name, backup.name):
        cluster.kill(name)
    new = cluster.start(backup.name, wipe=True)
    cluster.run(lambda: new.core.record is not None)
    said = status(new.core, new.member, Readiness(2, 1))
    assert said["former_store_ready"] and new.name in said["ready_set"] and not said["ready"]
    cluster.kill(new.name)
    primary = cluster.start("a")
    cluster.run(lambda: primary.state == "active" and primary.core.record.ready == (primary.member,))  # type: ignore[union-attr]
    new = cluster.start(new.name)
    cluster.run(lambda: new.core.record is not None)
    assert not status(new.core, new.member, Readiness(2, 1))["former_store_ready"], "nor is anything else of its name"


def test_stored_queues_whose_arguments_have_no_effect_are_named() -> None:
    cluster = declared("q", size=1)
    node, answered = cluster.primary, list[str | None]()
    arguments = {"x-message-ttl": 5, "x-max-priority": 9, "x-queue-mode": "lazy"}
    for step in (queue_step("old", False, arguments), queue_step("lazy", False, {"x-queue-mode": "lazy"})):
        node.report(partial(node.host.ledger.configure, step, answered.append))
    cluster.run(lambda: answered == [None, None])
    said = status(node.core, node.member, Readiness(1, 1))
    assert said["unsupported"] == {"old": ["x-max-priority", "x-message-ttl"]}
