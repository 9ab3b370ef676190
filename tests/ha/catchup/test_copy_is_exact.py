"""A copy leaves the joiner with what the primary holds, watermarks and outcomes too, and what is wrong in it is
found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ha.messages.copying import (
    ForwardOutcomes,
    ForwardTx,
    QueueChange,
    QueueContent,
    SnapshotConfiguration,
    SnapshotQueues,
)
from tests.support.copying import joining
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import (
    all_agree,
    answered,
    backups_of,
    begin,
    begin_t,
    commit,
    declared,
    publish,
    survivors_agree,
)
from txobserver.configuration import BindingSpec, ExchangeSpec, binding_step, exchange_step
from txobserver.xid import Xid


def watermarks_of(node: MemoryNode) -> dict[int, int]:
    contents = node.core.replica.contents
    return {number: contents.queues.summary(number).watermark for number in contents.configuration.numbers()}


def mark_all(node: MemoryNode, queue: int) -> None:
    ledger = node.host.ledger
    node.report(lambda: ledger.raise_watermark(queue, node.core.replica.contents.messages.ids(queue)[-1][0]))


def test_marks_survive_resync() -> None:
    """P3, P7: a node whose watermarks are higher than those of the primary that overwrites it keeps none of them."""
    cluster = declared("q", size=2)
    a, (b,) = cluster.primary, backups_of(cluster)
    cluster.pause(0.2)
    cluster.partition(b.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 1)  # type: ignore[union-attr]
    for number in range(30):
        publish(a, "q", f"m{number}")
    answered(cluster, a, "publish m29")
    mark_all(a, 1)
    cluster.pause(7)
    assert a.disk.base.meta.summaries[1].watermark > 0
    cluster.kill(a.name)
    cluster.heal()

    def force() -> bool:
        said: list[str | None] = []
        b.report(lambda: said.append(b.core.promote(True)))
        return said == [None]

    cluster.run(force)
    cluster.run(lambda: b.state == "active")
    returned = cluster.start(a.name)
    all_agree(cluster)
    assert watermarks_of(returned) == watermarks_of(b) == {1: 0}
    publish(b, "q", "fresh")
    answered(cluster, b, "publish fresh")
    cluster.kill(b.name)
    cluster.run(lambda: returned.state == "active")
    fresh, _ = returned.host.entry("q", "fresh")
    assert fresh > returned.host.watermarks[1], "it was never handed out"


def test_marks_come_with_a_copy() -> None:
    """P3: what may have been delivered before is redelivered as such by a primary that has copied its queues."""
    cluster, name = joining(*[text("m")] * 10, queues=("q", "r"))
    primary = cluster.primary
    mark_all(primary, 1)
    cluster.pause(0.1)
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    cluster.start(name, wipe=True)
    survivors_agree(cluster)
    joiner = cluster.nodes[name]
    assert (
        watermarks_of(joiner)
        == watermarks_of(primary)
        == {1: primary.core.replica.contents.messages.ids(1)[-1][0], 2: 0}
    )
    cluster.pause(cluster.settings.checkpoint_every)
    assert joiner.disk.base.meta.summaries[1].watermark == watermarks_of(joiner)[1]
    cluster.kill(primary.name)
    cluster.run(lambda: joiner.state == "active")
    assert joiner.host.watermarks[1] == watermarks_of(joiner)[1] > 0


def full_of_everything() -> tuple[MemoryCluster, str]:
    """A queue, an exchange and a binding, messages, an open transaction, a prepared branch, and outcomes."""
    cluster, name = joining(*[text("m")] * 10, queues=("q", "r"))
    primary = cluster.primary
    ledger = primary.host.ledger
    binding = binding_step(BindingSpec("x", "q", True, "key", {}))
    for step in (exchange_step(ExchangeSpec("x", "direct", False, False, {})), binding):
        primary.report(lambda s=step: ledger.configure(s, primary.host.note(s.operation)))  # type: ignore[misc]
    for number in range(5):
        observer = ledger.begin(b"token %d" % number)
        primary.report(lambda o=observer: o.enqueue([1], text("t")))  # type: ignore[misc]
        commit(primary, observer, f"token {number}")
    answered(cluster, primary, "token 4")
    publish(primary, "r", "in the queue that is walked last")
    answered(cluster, primary, "publish in the queue that is walked last")
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    return cluster, name


def without_last(message: Any, field: str) -> Any:
    return msgspec.structs.replace(message, **{field: getattr(message, field)[:-1]})


def other_count(message: SnapshotQueues) -> SnapshotQueues:
    (number, count, digest, watermark), *rest = message.queues
    return msgspec.structs.replace(message, queues=[(number, count, digest ^ 1, watermark), *rest])


DAMAGES: dict[str, tuple[Any, Any]] = {
    "a message lacks": (QueueContent, lambda m: without_last(m, "entries")),
    "a live message lacks": (QueueChange, lambda m: without_last(m, "added") if m.added else m),
    "another digest": (SnapshotQueues, other_count),
    "a queue lacks in the digests": (SnapshotQueues, lambda m: without_last(m, "queues")),
    "a queue lacks": (SnapshotConfiguration, lambda m: without_last(m, "queues")),
    "an exchange lacks": (SnapshotConfiguration, lambda m: without_last(m, "exchanges")),
    "a binding lacks": (SnapshotConfiguration, lambda m: without_last(m, "bindings")),
    "an event of a transaction lacks": (ForwardTx, lambda m: without_last(m, "events")),
    "an outcome lacks": (ForwardOutcomes, lambda m: without_last(m, "remembered")),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_a_copy_that_lacks_something_begins_anew(what: str) -> None:
    """Whatever is wrong on the way, the joiner finds it before its former log is thrown away, and is not ready."""
    kind, damage = DAMAGES[what]
    cluster, name = full_of_everything()
    primary = cluster.primary
    observer = begin(primary, {"q": ["u"], "r": ["u"]})
    joiner = cluster.start(name, wipe=True)
    damaged: list[Any] = []

    def on_the_way(source: str, target: str, message: Any) -> bool:
        if not damaged and target == name and isinstance(message, kind):
            changed = damage(message)
            if changed != message:
                damaged.append(changed)
                for field in kind.__struct_fields__:
                    setattr(message, field, getattr(changed, field))
        return False

    cluster.lose = on_the_way
    for number in range(400):
        if number < 20:
            publish(primary, "q", f"live {number}")
        cluster.turn()
    assert damaged
    assert any("does not match" in line for line in joiner.lines)
    assert sum("resynchronising queue by queue" in line for line in joiner.lines) == 2
    joiner.lines.clear()
    primary.lines.clear()
    commit(primary, observer)
    answered(cluster, primary)
    survivors_agree(cluster)


def test_everything_is_there_after_a_copy() -> None:
    """A promotion finds the outcomes, a heuristic one among them, the declarations and the messages."""
    cluster, name = full_of_everything()
    primary = cluster.primary
    ledger = primary.host.ledger
    branch = ledger.begin_branch(Xid(1, b"g", b"b"))
    primary.report(lambda: branch.enqueue([1], text("branch")))
    primary.report(lambda: branch.prepare(primary.host.note("prepare")))
    answered(cluster, primary, "prepare")
    primary.report(lambda: ledger.decide_branch(Xid(1, b"g", b"b"), True, True, primary.host.note("heuristic")))
    answered(cluster, primary, "heuristic")
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    joiner = cluster.start(name, wipe=True)
    survivors_agree(cluster)
    cluster.kill(primary.name)
    cluster.run(lambda: joiner.state == "active")
    contents = joiner.core.replica.contents
    assert list(contents.table.outcomes.heuristics) == [Xid(1, b"g", b"b")]
    assert [contents.table.outcome(b"token %d" % number).name for number in range(5)] == ["COMMITTED"] * 5
    assert list(contents.configuration.exchanges) == ["x"] and len(contents.configuration.bindings) == 1
    assert len(joiner.host.bodies("q")) == 16


def test_what_was_closed_before_a_joiner_came_holds_it_back() -> None:
    """P9: T is decided, and the joiner that comes then has no part in it: it is ready only with T on its disk."""
    cluster = declared("q", "r")
    primary, other, away = cluster.primary, *backups_of(cluster)
    cluster.kill(away.name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    cluster.held.add((other.name, primary.name))
    commit(primary, begin_t(primary))
    cluster.pause(0.1)
    cluster.start(away.name)
    cluster.run(lambda: away.name in primary.core.leading.backups.sessions)  # type: ignore[union-attr]
    session = primary.core.leading.backups.sessions[away.name]  # type: ignore[union-attr]
    assert len(session.trackers) == 2 and not session.trackers.clear
    cluster.held.clear()
    answered(cluster, primary)
    survivors_agree(cluster)
    assert session.trackers.clear
