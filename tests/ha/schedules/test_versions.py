"""Nodes of two versions in one cluster: the older one does not know a step of configuration that the others know."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from ha.apply import replica as replica_module
from ha.apply.replica import UnknownEvents
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import all_agree, answered, declared, publish
from txobserver import configuration
from txobserver.configuration import DECLARE_QUEUE, OPERATIONS, USE_QUEUE, use_queue_step
from txobserver.events import Configure

OLDER = OPERATIONS - {USE_QUEUE}


@pytest.fixture
def mixed() -> Iterator[tuple[MemoryCluster, MemoryNode, MemoryNode]]:
    """A cluster with a primary and one ready backup of an earlier version."""
    cluster = declared("q", "r")
    older = cluster.nodes[max(name for name in cluster.nodes if name != cluster.primary.name)]
    older.core.replica._operations = OLDER
    assert older.state == "ready"
    yield cluster, cluster.primary, older


def use(node: MemoryNode) -> None:
    node.report(lambda: node.host.ledger.configure(use_queue_step("q"), node.host.note("use")))


def steps_on_disk(node: MemoryNode) -> set[str]:
    events = [event for frame in node.disk.frames for event in frame.events()]
    return {event.operation for event in events if isinstance(event, Configure)}


@pytest.mark.plain
def test_what_a_backup_does_not_know_is_persisted(mixed: tuple[MemoryCluster, MemoryNode, MemoryNode]) -> None:
    """It was, and acknowledged: the step counted, and the node ended wherever it applied it, at each start."""
    cluster, primary, older = mixed
    use(primary)
    cluster.run(lambda: primary.host.answer("use") == "ok")
    cluster.run(lambda: older.state == "joining")
    cluster.pause(3.0)
    assert older.stopped is None and older.state == "joining", "it neither ends nor comes back"
    assert USE_QUEUE not in steps_on_disk(older) and USE_QUEUE in steps_on_disk(primary)
    assert "upgrade this node" in (older.core.waits_for_operator or "")
    record = cluster.coordination.record
    assert record is not None and older.member not in record.ready
    said = [line for line in older.lines if "detaching" in line]
    assert len(said) == 1 and "'queue.use'" in said[0], "it says why, once"
    leading = primary.core.leading
    assert leading is not None
    assert list(leading.backups.attachments.left) == [older.name], "the primary tells which backup cannot follow"
    primary.report(lambda: primary.host.publish("q", "on"))
    cluster.run(lambda: primary.host.answer("publish on") == "ok")

    cluster.kill(older.name)
    upgraded = cluster.start(older.name)
    cluster.run(lambda: upgraded.state == "ready")
    assert leading.backups.attachments.left == {} and USE_QUEUE in steps_on_disk(upgraded)
    all_agree(cluster)


@pytest.mark.plain
def test_without_the_check_the_step_is_acknowledged_and_the_node_ends_at_each_start(
    mixed: tuple[MemoryCluster, MemoryNode, MemoryNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the check is for. The older version's log then holds what no start of it can apply."""
    cluster, primary, older = mixed
    with monkeypatch.context() as patched:
        patched.setattr(replica_module, "check_step", lambda step, operations, actions: None)
        use(primary)
        cluster.run(lambda: USE_QUEUE in steps_on_disk(older))
    cluster.kill(older.name)
    frames = [frame for frame in older.disk.frames if frame.last > older.disk.base.meta.applied.sequence]
    for _ in range(2):
        replica = replica_module.Replica(older.disk.base, *older.disk.base.load(), operations=OLDER)
        with pytest.raises(UnknownEvents, match=r"'queue\.use'"):
            for frame in frames:
                replica.restore(frame)


@pytest.mark.plain
def test_a_new_operation_is_not_written_before_every_follower_knows_it(
    mixed: tuple[MemoryCluster, MemoryNode, MemoryNode], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, primary, older = mixed
    monkeypatch.setitem(configuration.FEATURE_OF, USE_QUEUE, "used queues")
    (other,) = cluster.nodes.keys() - {primary.name, older.name}
    primary.core.features[other] = frozenset({"used queues"})
    use(primary)
    refused = primary.host.answer("use")
    assert refused == f"queue.use needs used queues on every node: upgrade {older.name} first"
    cluster.pause(1.0)
    assert older.state == "ready" and USE_QUEUE not in steps_on_disk(primary)
    primary.host.answers.clear()
    primary.report(lambda: primary.core.on_link(older.name, True, frozenset({"used queues"})))
    older.core.replica._operations = OPERATIONS
    use(primary)
    cluster.run(lambda: primary.host.answer("use") == "ok")
    assert older.state == "ready"


@pytest.mark.plain
def test_a_ready_backup_that_cannot_be_reached_is_not_known_to_know_anything(
    mixed: tuple[MemoryCluster, MemoryNode, MemoryNode],
) -> None:
    cluster, primary, older = mixed
    leading = primary.core.leading
    assert leading is not None
    attachments = leading.backups.attachments
    others = sorted(cluster.nodes.keys() - {primary.name})
    assert attachments.lacking("x") == others
    for node in others:
        primary.core.features[node] = frozenset({"x", "y"})
    assert attachments.lacking("x") == [] and attachments.has(older.name, "y") and not attachments.has(older.name, "z")
    primary.core.on_link(older.name, False)
    assert attachments.lacking("x") == [older.name]


@pytest.mark.plain
@pytest.mark.parametrize(
    "step",
    [Configure(0, "queue.later", "q", b""), Configure(0, DECLARE_QUEUE, "q", msgspec.msgpack.encode((False, {}, 1)))],
    ids=["operation", "arguments"],
)
def test_host_asks_for_an_unknown_step(step: Configure) -> None:
    """The step got a position and a number before it was looked at: the primary ended at its next write, which left a
    gap in the stream. A host that is a program of its own may be of a later version."""
    cluster = declared("q")
    primary = cluster.primary
    before = primary.core.replica.tail
    primary.report(lambda: primary.host.ledger.configure(step, primary.host.note("step")))
    assert f"configuration step {step.operation!r}" in str(primary.host.answer("step"))
    assert primary.core.replica.tail == before
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    primary.report(lambda: primary.host.declare("r"))
    answered(cluster, primary, "declare r")
    all_agree(cluster)
