"""Copies of queues in memory, and scales that weigh what nodes send."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ha.effects import ResetLog
from ha.messages.wire import encode
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import backups_of, declared, publish
from txobserver.events import Message

KIB = 1 << 10
PORTION = 16 * KIB
WINDOW = 64 * KIB
LARGE = Message("", "q", b"", bytes(5 * KIB))
HUGE = Message("", "q", b"", bytes(40 * KIB))
SLACK = 2 * KIB
"""What a message between nodes has beside what it carries"""


class Scales:
    """Weighs what every node sends, each message and all of one moment."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.largest: dict[str, int] = defaultdict(int)
        self.moment: dict[tuple[str, str, float], int] = defaultdict(int)
        self.kinds: dict[str, int] = defaultdict(int)
        self._cluster = cluster
        cluster.lose = self._weigh

    def _weigh(self, source: str, target: str, message: Any) -> bool:
        size, kind = len(encode(message)), type(message).__name__
        self.kinds[kind] += 1
        self.largest[kind] = max(self.largest[kind], size)
        self.moment[source, target, self._cluster.now] += size
        return False

    def heaviest_moment(self, source: str, target: str) -> int:
        return max(size for (s, t, _), size in self.moment.items() if (s, t) == (source, target))


def put(node: MemoryNode, queue: str, message: Message) -> None:
    assert node.core.leading
    core, number = node.core.leading.primary, node.host.number(queue)
    node.report(lambda: core.ledger.publish([number], message, None))


def joining(*messages: Message, queues: tuple[str, ...] = ("q",), **settings: Any) -> tuple[MemoryCluster, str]:
    """Two nodes; one is away, and must copy the queue when it comes back with a new store."""
    settings = {"portion_bytes": PORTION, "window_bytes": WINDOW, "frame_bytes": PORTION} | settings
    cluster = declared(*queues, size=2, **settings)
    away = backups_of(cluster)[0].name
    cluster.kill(away)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 1)  # type: ignore[union-attr]
    for message in messages:
        put(cluster.primary, "q", message)
    primary = cluster.primary
    cluster.run(lambda: primary.core.leading.primary.point.sequence == primary.core.replica.tail.sequence)  # type: ignore[union-attr]
    primary.core.log_first = primary.core.replica.tail.sequence + 1
    return cluster, away


def asked_for_a_reset() -> tuple[MemoryCluster, MemoryNode]:
    """A joiner has its snapshot whole in memory; its disk, which is held, has not begun the log anew yet."""
    cluster = declared("q", prepare_timeout=60.0, silence=60.0)
    name = backups_of(cluster)[0].name
    cluster.kill(name)
    cluster.run(lambda: len(cluster.coordination.record.ready) == 2)  # type: ignore[union-attr]
    publish(cluster.primary, "q", "m")
    cluster.primary.core.log_first = cluster.primary.disk.frames[-1].last + 1
    joiner = cluster.start(name, wipe=True)
    cluster.run(lambda: any(isinstance(write, ResetLog) for write in joiner.writes))
    joiner.disk_held = True
    return cluster, joiner
