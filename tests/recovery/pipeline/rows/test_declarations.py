"""Names of queues out of the log, also of those deleted since; each segment is searched once by a process."""

from __future__ import annotations

from pathlib import Path

from recovery.pipeline.node import rows_of
from recovery.reader import declarations
from recovery.reader.node_log import NodeLog
from recovery.store.segment import segment_path
from tests.recovery.pipeline.events import message, write_node
from txobserver.configuration import delete_queue_step, queue_step
from txobserver.events import Configure, Event, Publish

QUEUES = range(2, 14, 2)


def story() -> list[list[Event]]:
    """Queues that are declared one by one, used and deleted again, and used once more by what came late."""
    groups: list[list[Event]] = []
    for queue in QUEUES:
        begin, end = queue_step(f"queue-{queue}", False, {}), delete_queue_step(f"queue-{queue}")
        groups.append([Configure(queue, begin.operation, begin.name, begin.arguments)])
        groups.append([Publish(queue, (queue,), message("queue.declare is only a word in this body"))])
        groups.append([Configure(queue + 1, end.operation, end.name, end.arguments)])
    return [*groups, [Publish(100 + queue, (queue,), message("m")) for queue in QUEUES]]


def test_each_segment_is_searched_once_however_many_ranges_are_read(tmp_path: Path) -> None:
    write_node(tmp_path, story(), segment_bytes=380)
    log = NodeLog(tmp_path)
    segments, end = log.segments.firsts(), log.tail()
    assert len(segments) > 3 and end is not None
    declarations._declared_in.cache_clear()
    for first in range(1, end.last + 1):
        rows = [row for batch in rows_of(log, "n1", first, end.last) for row in batch.to_pylist()]
        named = {row["queue_id"]: row["queue"] for row in rows if row["queue_id"] is not None}
        assert named == {queue: f"queue-{queue}" for queue in named}
        assert max(QUEUES) in named
    assert declarations._declared_in.cache_info().misses <= len(segments)


def test_a_segment_that_has_changed_is_searched_again(tmp_path: Path) -> None:
    write_node(tmp_path, story()[:1])
    (segment,) = NodeLog(tmp_path).segments.firsts()
    path = segment_path(tmp_path / "log", segment)
    assert declarations.declared_in(path) == {2: "queue-2"}
    write_node(tmp_path, story()[3:4])
    assert declarations.declared_in(path) == {2: "queue-2", 4: "queue-4"}
