"""Checkpoints that take long: a joiner gets there all the same, and no node's memory grows without a bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ha.apply.checkpointing import LAYERS
from ha.effects import WriteCheckpoint
from ha.messages.copying import QueueContent
from ha.primary.handover import CHECKPOINT_TIMEOUTS
from tests.support.copying import KIB, LARGE, Scales, joining, put
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import answered, backups_of, declared, publish, survivors_agree

CHECKPOINT = 100 * KIB
BOUND = LAYERS * CHECKPOINT
"""Of what is in memory only; what is on its way when a node says that it is full comes to it"""


def slow(node: MemoryNode, seconds: float) -> None:
    """Each of this node's checkpoints takes so long."""
    begun: list[tuple[WriteCheckpoint, float]] = []

    def held(write: WriteCheckpoint) -> bool:
        if not begun or begun[-1][0] is not write:
            begun.append((write, node.cluster.now))
        return node.cluster.now - begun[-1][1] < seconds

    node.checkpoints_held = held


def resyncs(node: MemoryNode) -> int:
    return sum("resynchronising queue by queue" in line for line in node.lines)


@pytest.mark.parametrize("seconds", [1.0, 3.2, 10.0])
def test_slow_checkpoints_never_ready(seconds: float) -> None:
    """Both the marking of its store and the writing of the snapshot take longer than any timeout; it begins once."""
    cluster, name = joining(*[LARGE] * 20)
    primary = cluster.primary
    joiner = cluster.start(name, wipe=True)
    slow(joiner, seconds)
    for number in range(60):
        publish(primary, "q", f"m{number}")
        cluster.pause(seconds / 25)
    cluster.run(cluster.all_ready)
    assert resyncs(joiner) == 1
    assert not any("silent" in line for node in (primary, joiner) for line in node.lines)
    survivors_agree(cluster)


def test_a_joiner_speaks_within_every_timeout() -> None:
    """``prepare_timeout`` is shorter than the heartbeat: the joiner says that it is alive more often."""
    cluster = declared("q", size=2, prepare_timeout=0.5)
    primary, (b,) = cluster.primary, backups_of(cluster)
    cluster.kill(b.name)
    cluster.run(lambda: len(cluster.nodes) == 1 and len(cluster.coordination.record.ready) == 1)  # type: ignore[union-attr]
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    joiner = cluster.start(b.name, wipe=True)
    slow(joiner, 2.0)
    cluster.run(cluster.all_ready)
    assert resyncs(joiner) == 1


def test_a_full_joiner_is_not_silent() -> None:
    """One that follows the log and has no room for longer than any timeout stays attached, and goes on when it has."""
    cluster, name = late_with_slow_checkpoints()
    joiner = cluster.nodes[name]
    cluster.run(lambda: full(joiner))
    cluster.pause(3 * cluster.settings.prepare_timeout)
    assert not any("silent" in line for node in cluster.nodes.values() for line in node.lines)
    joiner.checkpoints_held = lambda write: False
    survivors_agree(cluster)


def late_with_slow_checkpoints() -> tuple[MemoryCluster, str]:
    """A node that missed much of the log, and whose checkpoints never end."""
    cluster = declared("q", size=2, checkpoint_bytes=CHECKPOINT, portion_bytes=16 * KIB, window_bytes=64 * KIB)
    primary, name = cluster.primary, backups_of(cluster)[0].name
    cluster.kill(name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 1)  # type: ignore[union-attr]
    for _ in range(200):
        put(primary, "q", LARGE)
        cluster.turn()
    cluster.start(name).checkpoints_held = lambda write: True
    return cluster, name


def held_bytes(node: MemoryNode) -> int:
    return node.core.replica.contents.held_bytes


def full(node: MemoryNode) -> bool:
    return held_bytes(node) > BOUND


def test_a_joiner_that_hangs_is_let_go() -> None:
    """While its store is being marked nothing is owed but a word now and then; without that it is let go."""
    cluster, name = joining(*[LARGE] * 20)
    primary = cluster.primary
    joiner = cluster.start(name, wipe=True)
    joiner.checkpoints_held = lambda write: True
    cluster.pause(2 * cluster.settings.prepare_timeout)
    core = primary.core
    assert core.leading is not None and name in core.leading.backups.sessions, "it speaks"
    cluster.frozen.add(name)
    cluster.run(lambda: name not in core.leading.backups.sessions, cluster.settings.prepare_timeout + 1)  # type: ignore[union-attr]
    cluster.frozen.clear()
    joiner.checkpoints_held = lambda write: False
    survivors_agree(cluster)


def test_a_member_that_speaks_and_acknowledges_nothing_is_taken_out() -> None:
    """Its word that it is alive does not keep it in the ready set: the commits wait for its acknowledgement."""
    cluster = declared("q", size=2)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    scales = Scales(cluster)
    backup.disk_held = True
    publish(primary, "q", "m")
    cluster.run(lambda: primary.host.answer("publish m") == "ok", cluster.settings.prepare_timeout + 0.5)
    assert scales.kinds["Progress"] >= 2 and backup.member not in cluster.coordination.record.ready  # type: ignore[union-attr]
    backup.disk_held = False
    survivors_agree(cluster)


def test_a_full_member_is_taken_out() -> None:
    """Nor does that it is full: nothing more is sent to it, and the commits wait no longer than for any other."""
    cluster = declared("q", size=2, checkpoint_bytes=CHECKPOINT)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    backup.checkpoints_held = lambda write: True
    while not full(backup):
        put(primary, "q", LARGE)
        cluster.turn()
    cluster.pause(0.05)
    assert primary.core.leading is not None and primary.core.leading.primary.congested
    publish(primary, "q", "m")
    cluster.run(lambda: primary.host.answer("publish m") == "ok", cluster.settings.prepare_timeout + 0.5)
    assert backup.member not in cluster.coordination.record.ready  # type: ignore[union-attr]
    cluster.pause(0.05)
    assert not primary.core.leading.primary.congested, "no client waits for it any more"
    for number in range(20):
        publish(primary, "q", f"m{number}")
        answered(cluster, primary, f"publish m{number}")
    assert backup.member not in cluster.coordination.record.ready  # type: ignore[union-attr]
    backup.checkpoints_held = lambda write: False
    survivors_agree(cluster)


def test_full_member_owes_nothing() -> None:
    """P12: it has acknowledged everything, and nothing more comes, since no clients are read meanwhile."""
    cluster = declared("q", size=3, checkpoint_bytes=CHECKPOINT)
    primary, backup = cluster.primary, backups_of(cluster)[0]
    core = primary.core.leading.primary
    assert core is not None
    backup.checkpoints_held = lambda write: True
    while not core.congested:
        put(primary, "q", LARGE)
        cluster.pause(0.05)
    cluster.run(lambda: not core.congested, cluster.settings.prepare_timeout + 1)
    assert [member.node for member in cluster.coordination.record.ready] == ["a", "c"]  # type: ignore[union-attr]
    publish(primary, "q", "m")
    answered(cluster, primary, "publish m")
    backup.checkpoints_held = lambda write: False
    survivors_agree(cluster)


@pytest.mark.plain
@pytest.mark.parametrize("others", ["have room", "are full"])
def test_primary_with_a_hung_checkpoint(others: str) -> None:
    """P12: it reads no clients, so that its log has nothing to write; it leaves it to a ready backup that has room."""
    cluster = declared("q", size=3, checkpoint_bytes=CHECKPOINT)
    primary = cluster.primary
    assert primary.core.leading is not None
    primary.checkpoints_held = lambda write: True
    while not primary.core.leading.primary.congested:
        put(primary, "q", LARGE)
        cluster.pause(0.05)
    patience = CHECKPOINT_TIMEOUTS * cluster.settings.prepare_timeout
    if others == "are full":
        for session in primary.core.leading.backups.sessions.values():
            session.progress = lambda *told: None  # type: ignore[method-assign]
            session.owes_since = lambda *asked: False  # type: ignore[method-assign]
            session.full = True
        cluster.pause(2 * patience)
        assert primary.state == "active"
        return
    cluster.pause(0.9 * patience)
    assert primary.state == "active", "a checkpoint that is slow, and ends, is no reason"
    cluster.run(lambda: any(n.state == "active" for n in cluster.nodes.values() if n is not primary), 0.2 * patience)
    assert primary.member not in cluster.coordination.record.ready  # type: ignore[union-attr]
    publish(cluster.primary, "q", "m")
    answered(cluster, cluster.primary, "publish m")
    primary.checkpoints_held = lambda write: False
    survivors_agree(cluster)


def most_held(cluster: MemoryCluster, node: MemoryNode, load: Callable[[], None], turns: int) -> int:
    most = 0
    for _ in range(turns):
        load()
        cluster.turn()
        most = max(most, held_bytes(node))
    return most


@pytest.mark.parametrize("honours", [True, False], ids=["clients wait", "clients do not"])
def test_backup_memory_is_bounded(honours: bool) -> None:
    """A ready backup whose checkpoints never end, whether or not what is congested is still written to."""
    cluster = declared("q", size=2, checkpoint_bytes=CHECKPOINT, checkpoint_every=0.2, portion_bytes=16 * KIB)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    core = primary.core.leading.primary
    assert core is not None
    backup.checkpoints_held = lambda write: True

    def load() -> None:
        if not (honours and core.congested):
            put(primary, "q", LARGE)

    most = most_held(cluster, backup, load, 600)
    assert BOUND < most <= BOUND + 10 * len(LARGE.body), most
    assert held_bytes(primary) <= BOUND
    backup.checkpoints_held = lambda write: False
    survivors_agree(cluster)


def test_a_backup_that_is_slow_for_a_while_stays_ready() -> None:
    """Clients are not read while it has no room, and it is never taken out: what it can write is what all get."""
    cluster = declared("q", size=2, checkpoint_bytes=CHECKPOINT, checkpoint_every=0.2)
    primary, (backup,) = cluster.primary, backups_of(cluster)
    core = primary.core.leading.primary
    assert core is not None
    slow(backup, 0.5)
    congested = []

    def load() -> None:
        congested.append(core.congested)
        if not core.congested:
            put(primary, "q", LARGE)

    most = most_held(cluster, backup, load, 1000)
    assert any(congested) and not all(congested[-200:])
    assert most <= BOUND + 10 * len(LARGE.body)
    assert not any("out of the ready set" in line for line in primary.lines)
    survivors_agree(cluster)


def test_the_memory_of_a_joiner_that_follows_the_log_is_bounded() -> None:
    cluster, name = late_with_slow_checkpoints()
    joiner, primary = cluster.nodes[name], cluster.primary
    most = most_held(cluster, joiner, lambda: put(primary, "q", LARGE), 600)
    assert BOUND < most <= BOUND + 64 * KIB, most
    joiner.checkpoints_held = lambda write: False
    survivors_agree(cluster)


def test_the_memory_of_a_joiner_that_copies_is_bounded() -> None:
    """The walk waits while a checkpoint is written, and so do live changes; both go on when it has room."""
    cluster, name = joining(*[LARGE] * 200, checkpoint_bytes=CHECKPOINT)
    primary, scales = cluster.primary, Scales(cluster)
    joiner = cluster.start(name, wipe=True)
    cluster.run(lambda: scales.kinds[QueueContent.__name__] > 0)
    joiner.checkpoints_held = lambda write: True
    most = most_held(cluster, joiner, lambda: put(primary, "q", LARGE), 600)
    assert BOUND < most <= BOUND + 2 * 64 * KIB, most
    session = primary.core.leading.backups.sessions[name]  # type: ignore[union-attr]
    assert session.resync is not None and session.resync.held <= 2 * 64 * KIB
    joiner.checkpoints_held = lambda write: False
    cluster.run(cluster.all_ready, 60)
    assert resyncs(joiner) == 1
    survivors_agree(cluster)
