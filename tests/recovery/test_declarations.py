"""Names of queues out of the log: also those deleted since, and each segment is searched once."""

from __future__ import annotations

from pathlib import Path

from recovery import declarations
from recovery.node_log import NodeLog
from recovery.pipeline.node import rows_of
from recovery.segment import segment_firsts, segment_path
from tests.spark.events import message, write_node
from txobserver.configuration import delete_step, queue_step
from txobserver.events import Configure, Event, Publish

QUEUES = 6


def story() -> list[list[Event]]:
    """Queues that are declared one by one, used and deleted again."""
    groups: list[list[Event]] = []
    for queue in range(1, QUEUES + 1):
        step, end = queue_step(f"queue-{queue}", False, {}), delete_step(f"queue-{queue}")
        groups.append([Configure(2 * queue, step.operation, step.name, step.arguments)])
        groups.append([Publish(queue, (2 * queue,), message("queue.declare is the body of this one"))])
        groups.append([Configure(2 * queue + 1, end.operation, end.name, end.arguments)])
    groups.append([Publish(100 + queue, (2 * queue,), message("m")) for queue in range(1, QUEUES + 1)])
    return groups
