"""``a_group_above_the_largest_frame``: what gathers while a disk is slow is cut by bytes, wherever an event has them.

A frame that is larger than any that is read would be written, synced and counted on, and then be damage to a node that
reads it: a backup, and the node itself at its next start.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.memory_host import text
from tests.support.steps import begin, commit, declared, survivors_agree
from txobserver import frames
from txobserver.configuration import queue_step
from txobserver.events import Message, Removal, TxOpen
from txobserver.frames import FrameError, encode_frame

pytestmark = pytest.mark.usefixtures("without_invariants")

KIB = 1 << 10
LARGEST = 64 * KIB
TIMES = 60
HEADERS = Message("", "q", bytes(5 * KIB), b"")


def publishes(node: MemoryNode) -> None:
    """Messages that are all headers."""
    primary, number = node.core.leading.primary, node.host.number("q")
    assert primary is not None
    for _ in range(TIMES):
        node.report(lambda: primary.ledger.publish([number], HEADERS, None))


def transaction(node: MemoryNode) -> None:
    """The same inside a transaction."""
    observer, number = begin(node, {}), node.host.number("q")
    for _ in range(TIMES):
        node.report(lambda: observer.enqueue([number], HEADERS))
    commit(node, observer)


def acknowledgements(node: MemoryNode) -> None:
    """Acknowledgements inside a transaction, many with each call. Nothing of it is there; that is not looked at."""
    observer, number = begin(node, {"q": ["t"]}), node.host.number("q")
    entries = [(1 << 40 | offset, offset) for offset in range(300)]
    for _ in range(TIMES):
        node.report(lambda: observer.dequeue(number, entries))
    node.report(observer.rollback)


def declarations(node: MemoryNode) -> None:
    """Queues with long arguments."""
    primary = node.core.leading.primary
    assert primary is not None
    for name in range(TIMES):
        step = queue_step(f"q{name}", False, {"x-argument": "v" * 5 * KIB})
        node.report(lambda s=step: primary.ledger.configure(s, lambda error: None))  # type: ignore[misc]


def purges(node: MemoryNode) -> None:
    """Purges that spare many messages."""
    primary, number = node.core.leading.primary, node.host.number("q")
    assert primary is not None
    spared = [(each, each) for each in range(1 << 40, (1 << 40) + 500)]
    for _ in range(TIMES):
        node.report(lambda: primary.ledger.purge(number, 1, spared, lambda error: None))


def settlements(node: MemoryNode) -> None:
    """Acknowledgements outside transactions, of two queues in turn, so that each is an event."""
    primary = node.core.leading.primary
    assert primary is not None
    entries = [(1 << 40 | offset, offset) for offset in range(300)]
    for _ in range(TIMES):
        for queue in (node.host.number("q"), node.host.number("r")):
            node.report(lambda q=queue: primary.ledger.settle(q, entries, Removal.ACKED))  # type: ignore[misc]


WAYS = [publishes, transaction, acknowledgements, declarations, purges, settlements]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way.__name__))
def test_a_group_above_the_largest_frame(way: Callable[[MemoryNode], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes several frames; both nodes read them, also when they are started again."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD", LARGEST)
    cluster = declared("q", "r", size=2, frame_bytes=LARGEST // 4)
    primary = cluster.primary
    primary.disk_held = True
    way(primary)
    primary.disk_held = False
    primary.report(lambda: primary.host.publish("q", "last"))
    cluster.run(lambda: primary.host.answer("publish last") == "ok")
    assert all(len(frame.data) <= LARGEST for frame in primary.disk.frames)
    survivors_agree(cluster)
    started_again(cluster)
    assert "last" in cluster.primary.host.bodies("q")


def started_again(cluster: MemoryCluster) -> None:
    names = list(cluster.nodes)
    for name in names:
        cluster.kill(name)
    for name in names:
        cluster.start(name)
    survivors_agree(cluster)


def test_no_frame_is_made_that_could_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it is written, so that no node has counted on it."""
    monkeypatch.setattr(frames, "MAX_PAYLOAD", 40)
    assert encode_frame(1, 1, [TxOpen(1)], 0).count == 1
    with pytest.raises(FrameError, match="a frame holds 40 at most"):
        encode_frame(1, 1, [TxOpen(each) for each in range(40)], 0)


def test_one_large_event_is_a_frame_by_itself() -> None:
    """However little may stand in one frame."""
    cluster = declared("q", size=2, frame_bytes=KIB)
    primary = cluster.primary
    primary.disk_held = True
    core, number = primary.core.leading.primary, primary.host.number("q")
    assert core is not None
    for message in (text("a"), HEADERS, text("b")):
        primary.report(lambda m=message: core.ledger.publish([number], m, None))  # type: ignore[misc]
    primary.disk_held = False
    cluster.run(lambda: len(primary.host.bodies("q")) == 3)
    assert [frame.count for frame in primary.disk.frames if len(frame.data) > 5 * KIB] == [1]
    survivors_agree(cluster)
