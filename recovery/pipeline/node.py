"""A node's log as rows, without Spark: whose it is, how far it counts, and its rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Literal, Protocol

import msgspec
import pyarrow as pa

from recovery.pipeline.rows.builder import QueueNames, RowBuilder
from recovery.pipeline.rows.kinds import token_text
from recovery.pipeline.rows.numbering import UNKNOWN, Begun
from recovery.pipeline.schema import ARROW
from recovery.pipeline.selection import Selection
from recovery.reader.marks import END, Mark
from recovery.reader.node_admin import AdminError, ask
from recovery.reader.node_log import NodeLog
from recovery.store.identity import Identity, read_identity
from recovery.store.lmdb_state import read_meta
from recovery.store.log import LogReclaimed
from recovery.store.segment import read_header, segment_firsts, segment_path
from txobserver.events import DtxOpen, TxOpen, TxToken
from txobserver.frames import Frame, TornFrame
from txobserver.ids import generation_of
from txobserver.ports.store import StoreError

Until = Literal["commit", "log"]
EVERYTHING = Selection()
KEPT_BEHIND = 16 << 20
"""Bytes of frames that a reader keeps of what stands before its part of a log"""


class ReadableLog(Protocol):
    """What rows are made from: a directory's log, or that of a running node elsewhere."""

    def frames(self, first: int, last: int, start: Mark | None = None) -> Iterator[Frame]:
        """Frames with events from ``first`` to ``last``, in order. Raises LogReclaimed, StoreDamaged."""
        ...

    def backwards(self, before: int) -> Iterator[Frame]:
        """Frames with events before a sequence, the latest first."""
        ...

    def names(self) -> dict[int, str]:
        """The queues that there are."""
        ...

    def declared(self, before: int) -> dict[int, str]:
        """Queues declared before a sequence, as far back as the log goes, also those that have been deleted since."""
        ...


def node_name(directory: Path) -> str:
    """The node that this directory belongs to. Raises StoreError if it belongs to none."""
    identity = read_identity(directory)
    if identity is not None:
        _check_log_is_its_own(directory, identity)
        return identity.node
    info = NodeLog(directory).identity()  # a store that has lost its identity.json still says in its log whose it is
    if info is None:
        raise StoreError(f"{directory} is no node's directory: it holds neither identity.json nor a log")
    return info.node


def _check_log_is_its_own(directory: Path, identity: Identity) -> None:
    """The segments of a log say whose they are. Raises StoreError; a damaged one is left for its reader to find."""
    for first in segment_firsts(directory / "log"):
        try:
            segment, _ = read_header(segment_path(directory / "log", first))
        except (FileNotFoundError, TornFrame, StoreError):
            continue
        if (segment.cluster, segment.node) != (identity.cluster, identity.node):
            raise StoreError(
                f"{directory / 'log'} holds the log of node {segment.node} of cluster {segment.cluster}, and "
                f"identity.json beside it is of node {identity.node} of cluster {identity.cluster}: put each log back "
                "into the directory of its node"
            )


def commit_point(directory: Path) -> int:
    """The sequence up to which the log of this node will never be cut again.

    A running node is asked. Of one that is down, or does not answer, it is what its last checkpoint had applied: a sure
    lower bound, since nothing behind the commit point is applied. Raises StoreDamaged, StoreError.
    """
    try:
        return int(ask(directory, "status")["commit"])
    except (AdminError, KeyError, TypeError, ValueError):
        return read_meta(directory).applied.sequence


def node_table(directory: Path, until: Until = "log") -> pa.Table:
    """All rows of a node's log, from its beginning up to its end (``log``) or to the commit point (``commit``)."""
    log = NodeLog(directory)
    first = next(iter(log.segments.firsts()), 1)
    last = commit_point(directory) if until == "commit" else END
    return pa.Table.from_batches(rows_of(log, node_name(directory), first, last), schema=ARROW)


def rows_of(
    log: ReadableLog,
    node: str,
    first: int,
    last: int,
    start: Mark | None = None,
    selection: Selection = EVERYTHING,
) -> Iterator[pa.RecordBatch]:
    """What is selected of the events from sequence ``first`` to ``last``, in order, in batches.

    ``start``: where the frame with ``first`` stands, if that is known. Raises LogReclaimed when the log begins later,
    StoreDamaged where it cannot be read.
    """
    names = QueueNames([log.names, partial(log.declared, last + 1)])
    wanted = selection.values("transaction")
    if wanted is not None and None in wanted:
        wanted = None
    patterns = None if wanted is None else [msgspec.msgpack.encode(tx) for tx in wanted]
    after, before = selection.times()
    behind = Behind(log, first)

    def begun_before(tx: int) -> Begun:
        # of transactions that are not wanted nothing is told, so nothing is looked up
        return begun(behind, tx) if wanted is None or tx in wanted else UNKNOWN

    builder = RowBuilder(node, names, begun_before, selection.needed)
    try:
        for frame in log.frames(first, last, start):
            if not after <= frame.time_ms <= before:
                builder.forget()
                behind = Behind(log, frame.last + 1)
            elif patterns is None or any(pattern in frame.data for pattern in patterns):
                yield from _chosen(selection, builder.add(frame, first, last))
    except LogReclaimed:
        yield from _chosen(selection, builder.take())  # what was read counts
        raise
    yield from _chosen(selection, builder.take())


def _chosen(selection: Selection, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if (chosen := selection.apply(batch)).num_rows:
            yield chosen


class Behind:
    """The frames with events before sequence ``before``, the latest first, as often as one likes.

    What is nearest is kept: a log of many clients has many transactions open wherever one begins to read, and each of
    them is looked for.
    """

    def __init__(self, log: ReadableLog, before: int) -> None:
        self.before = before
        self._log = log
        self._kept: list[Frame] = []
        self._room = KEPT_BEHIND
        self._more = log.backwards(before)

    def __iter__(self) -> Iterator[Frame]:
        """Raises as the log's ``backwards``."""
        for at in count():
            if at == len(self._kept):
                if self._room <= 0:
                    break
                frame = next(self._more, None)
                if frame is None:
                    return
                self._kept.append(frame)
                self._room -= len(frame.data)
            yield self._kept[at]
        yield from self._log.backwards(self._kept[-1].first)


def begun(behind: Behind, tx: int) -> Begun:
    """How many events of a transaction stand behind, and its xid or token.

    Nones if the log no longer holds its opening. Only frames that hold the number's bytes are decoded, and none
    before its generation, which alone can have opened it.
    """
    pattern = msgspec.msgpack.encode(tx)
    events, xid = 0, None
    for frame in behind:
        if frame.generation < generation_of(tx):
            break
        if pattern not in frame.data:
            continue
        for event in reversed(frame.events()[: behind.before - frame.first]):
            if getattr(event, "tx", None) != tx:
                continue
            events += 1
            if isinstance(event, TxToken):
                xid = token_text(event.token)
            elif isinstance(event, TxOpen | DtxOpen):
                return events, str(event.xid) if isinstance(event, DtxOpen) else xid
    return UNKNOWN
