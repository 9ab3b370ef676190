"""One node's directory as a table: whose it is, how far its log counts, and its rows, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa

from recovery.identity import read_identity
from recovery.lmdb_state import read_meta
from recovery.node_admin import AdminError, ask
from recovery.pipeline.node_log import Mark, NodeLog
from recovery.pipeline.rows import QueueNames, RowBuilder
from recovery.pipeline.schema import ARROW
from txobserver.configuration import DECLARE_QUEUE
from txobserver.events import Configure
from txobserver.store import StoreError

Until = Literal["commit", "log"]
END = (1 << 63) - 1


def node_name(directory: Path) -> str:
    """The node that this directory belongs to. Raises StoreError if it belongs to none."""
    identity = read_identity(directory)
    if identity is not None:
        return identity.node
    info = NodeLog(directory).identity()  # a store that has lost its identity.json still says in its log whose it is
    if info is None:
        raise StoreError(f"{directory} is no node's directory: it holds neither identity.json nor a log")
    return info.node


def commit_point(directory: Path) -> int:
    """The sequence up to which the log of this node will never be cut again.

    A running node is asked. Of one that is down, or does not answer, it is what its last checkpoint had applied: a sure
    lower bound, since nothing behind the commit point is applied. Raises StoreDamaged, StoreError.
    """
    try:
        return int(ask(directory, "status")["commit"])
    except (AdminError, KeyError, TypeError, ValueError):
        return read_meta(directory).applied.sequence


def node_rows(
    directory: Path, first: int = 1, last: int = END, start: Mark | None = None, node: str | None = None
) -> Iterator[pa.RecordBatch]:
    """Rows of the events from sequence ``first`` to ``last``, in order, in batches of ``schema.ARROW``.

    ``start``: where the frame with ``first`` stands, if that is known. Raises LogReclaimed when the log begins later,
    StoreDamaged where it cannot be read.
    """
    log = NodeLog(directory)
    names = QueueNames([lambda: _names_of_state(directory), lambda: _names_of_log(log, first)])
    builder = RowBuilder(node or node_name(directory), names, lambda tx: log.begun(tx, first))
    for frame in log.frames(first, last, start):
        yield from builder.add(frame, first, last)
    yield from builder.take()


def node_table(directory: Path, until: Until = "log") -> pa.Table:
    """All rows of a node's log, from its beginning up to its end (``log``) or to the commit point (``commit``)."""
    first = next(iter(NodeLog(directory).firsts()), 1)
    last = commit_point(directory) if until == "commit" else END
    return pa.Table.from_batches(node_rows(directory, first, last), schema=ARROW)


def _names_of_state(directory: Path) -> dict[int, str]:
    """Queues that are there, as of the last checkpoint; none where the state cannot be read: the log may know."""
    try:
        return {spec.number: spec.name for spec in read_meta(directory).configuration.queues.values()}
    except StoreError:
        return {}


def _names_of_log(log: NodeLog, before: int) -> dict[int, str]:
    """Queues declared before sequence ``before``, also those that have been deleted since."""
    step = DECLARE_QUEUE.encode()
    found: dict[int, str] = {}
    for frame in log.backwards(before):
        if step in frame.data:
            for event in frame.events():
                if isinstance(event, Configure) and event.operation == DECLARE_QUEUE:
                    found[event.config_id] = event.name
    return found
