"""Events of one node as rows of ``schema.ARROW``: column by column, since a row by itself would cost ten times as much.

What an event does not say itself is added to its rows: names of queues, and of each event of a transaction its number
and, on every row of a branch or of a transaction with a token, from there on, its xid.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote_from_bytes

import numpy as np
import pyarrow as pa

from recovery.pipeline.message_ids import message_id
from recovery.pipeline.schema import ARROW
from txobserver.configuration import DECLARE_QUEUE, DELETE_QUEUE
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Forget,
    GenerationStart,
    GlobalDecision,
    GlobalForget,
    Message,
    Publish,
    Purge,
    Removal,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.frames import Frame
from txobserver.ids import place_of
from txobserver.xid import Global

BATCH_ROWS = 10_000
BATCH_BYTES = 16 << 20
"""Of bodies and properties: a batch ends at whichever comes first."""
TOKEN = "token:"
REASONS = {int(reason): reason.name.lower() for reason in Removal}

Names = Callable[[], Mapping[int, str]]
Begun = tuple[int | None, str | None]
"""How many events of a transaction came before, and its xid; None where nobody knows any more."""
UNKNOWN: Begun = (None, None)

Row = tuple[
    int,  # position
    int,  # part
    str,  # kind
    int | None,  # transaction
    str | None,  # xid
    int | None,  # number
    int | None,  # queue_id
    int | None,  # place
    int | None,  # replication_id
    Message | None,
    str | None,  # reason
    bool | None,  # commit
    str | None,  # detail
]


class QueueNames(dict[int, str | None]):
    """Names of queues by their numbers. Each of ``sources`` is asked once, in order, and not before it is needed."""

    def __init__(self, sources: Iterable[Names] = ()) -> None:
        self._sources = list(sources)

    def __missing__(self, number: int) -> str | None:
        while self._sources:
            found = self._sources.pop(0)()
            self.update({each: name for each, name in found.items() if each not in self})
            if number in self:
                return self[number]
        self[number] = None
        return None


class RowBuilder:
    """Takes the frames of ``node`` in order, gives batches of rows.

    ``begun`` is asked for what came before of a transaction that was open already. Memory grows with the transactions
    that are open, and with nothing else.
    """

    def __init__(self, node: str, names: QueueNames, begun: Callable[[int], Begun]) -> None:
        self._node = node
        self._names = names
        self._begun = begun
        self._open: dict[int, Begun] = {}
        self._participants: dict[tuple[str, ...], str] = {}
        self._clear()

    def _clear(self) -> None:
        self._rows: list[Row] = []
        self._bytes = 0
        self._named: dict[int, str] = {}
        self._frames: list[tuple[int, int, int]] = []  # generation, time, rows up to its end

    def add(self, frame: Frame, first: int = 0, last: int = (1 << 63) - 1) -> Iterator[pa.RecordBatch]:
        """Take the events of a frame from sequence ``first`` to ``last``; gives the batches that are full."""
        rows, sequence, makers = self._rows, frame.first, _MAKERS
        for event in frame.events():
            if first <= sequence <= last:
                makers[type(event)](self, sequence, event)
                if self._bytes >= BATCH_BYTES or len(rows) >= BATCH_ROWS:
                    self._frames.append((frame.generation, frame.time_ms, len(rows)))
                    yield from self.take()
                    rows = self._rows
            sequence += 1
        self._frames.append((frame.generation, frame.time_ms, len(rows)))

    def forget(self) -> None:
        """Frames are left out here: what is open is to be asked for again."""
        self._open.clear()

    def take(self) -> Iterator[pa.RecordBatch]:
        """What has been gathered, as one batch; more if one event alone is larger than that; none if it is nothing."""
        if not self._rows:
            self._clear()
            return
        columns = self._columns()
        whole = pa.RecordBatch.from_arrays(columns, schema=ARROW) if self._bytes <= 1 << 30 else None
        if whole is not None:
            self._clear()
            yield whole
            return
        table = pa.Table.from_arrays(columns, schema=ARROW)
        self._clear()
        yield from table.to_batches()

    def _columns(self) -> list[Any]:
        positions, parts, kinds, txs, xids, numbers, queues, places, rids, messages, reasons, commits, details = zip(
            *self._rows, strict=True
        )
        count = len(positions)
        ends = np.array(self._frames, dtype=np.int64)
        each = np.diff(ends[:, 2], prepend=0)
        times = pa.array(np.repeat(ends[:, 1] * 1000, each)).view(pa.timestamp("us")).cast(ARROW.field("time").type)
        names = self._names
        known = [None if queue is None else names[queue] for queue in queues]
        for row, name in self._named.items():
            known[row] = name
        return [
            pa.repeat(pa.scalar(self._node), count),
            pa.array(np.repeat(ends[:, 0], each)),
            pa.array(positions, pa.int64()),
            pa.array(parts, pa.int32()),
            pa.array(kinds, pa.string()),
            pa.array(txs, pa.int64()),
            pa.array(xids, pa.string()),
            pa.array(numbers, pa.int32()),
            pa.array(queues, pa.int64()),
            pa.array(known, pa.string()),
            pa.array(places, pa.int64()),
            pa.array(rids, pa.int64()),
            *self._message_columns(messages, count),
            pa.array(reasons, pa.string()),
            pa.array(commits, pa.bool_()),
            pa.array(details, pa.string()),
            times,
        ]

    @staticmethod
    def _message_columns(messages: tuple[Message | None, ...], count: int) -> list[Any]:
        if not any(messages):
            return [pa.nulls(count, ARROW.field(name).type) for name in _OF_MESSAGES]
        return [
            pa.array([m and message_id(m.properties) for m in messages], pa.string()),
            pa.array([m and m.exchange for m in messages], pa.string()),
            pa.array([m and m.routing_key for m in messages], pa.string()),
            pa.array([m and m.properties for m in messages], pa.binary()),
            pa.array([m and m.body for m in messages], pa.binary()),
        ]

    # -- one method for each kind

    def _generation(self, at: int, event: GenerationStart) -> None:
        detail = json.dumps({"generation": event.generation, "primary": event.primary, "expected": event.expected})
        self._rows.append((at, 0, "generation", None, None, None, None, None, None, None, None, None, detail))

    def _configure(self, at: int, event: Configure) -> None:
        if event.operation == DECLARE_QUEUE:
            self._names[event.config_id] = event.name
        if event.operation in (DECLARE_QUEUE, DELETE_QUEUE):
            self._named[len(self._rows)] = event.name
        detail = json.dumps(
            {
                "id": event.config_id,
                "operation": event.operation,
                "name": event.name,
                "arguments": b64encode(event.arguments).decode(),
            }
        )
        self._rows.append((at, 0, "configure", None, None, None, None, None, None, None, None, None, detail))

    def _publish(self, at: int, event: Publish) -> None:
        message = event.message
        place, rid, size = place_of(at), event.rid, len(message.body) + len(message.properties)
        for part, queue in enumerate(event.queues or (None,)):
            self._rows.append((at, part, "publish", None, None, None, queue, place, rid, message, None, None, None))
            self._bytes += size

    def _settle(self, at: int, event: Settle) -> None:
        queue, reason = event.queue, _reason(event.reason)
        for part, (place, rid) in enumerate(event.entries or _NO_ENTRY):
            self._rows.append((at, part, "settle", None, None, None, queue, place, rid, None, reason, None, None))

    def _delivered(self, at: int, event: Delivered) -> None:
        self._rows.append(
            (at, 0, "delivered", None, None, None, event.queue, event.place, None, None, None, None, None)
        )

    def _purge(self, at: int, event: Purge) -> None:
        detail = json.dumps({"spared": event.spared})
        self._rows.append((at, 0, "purge", None, None, None, event.queue, event.place, None, None, None, None, detail))

    def _tx_open(self, at: int, event: TxOpen) -> None:
        self._open[event.tx] = (1, None)
        self._rows.append((at, 0, "open", event.tx, None, 0, None, None, None, None, None, None, None))

    def _dtx_open(self, at: int, event: DtxOpen) -> None:
        xid = str(event.xid)
        self._open[event.tx] = (1, xid)
        self._rows.append((at, 0, "open", event.tx, xid, 0, None, None, None, None, None, None, None))

    def _token(self, at: int, event: TxToken) -> None:
        xid = token_text(event.token)
        number, _ = self._next(event.tx)
        self._open[event.tx] = (None if number is None else number + 1, xid)
        self._rows.append((at, 0, "token", event.tx, xid, number, None, None, None, None, None, None, None))

    def _enqueue(self, at: int, event: TxEnqueue) -> None:
        tx, rid, message = event.tx, event.rid, event.message
        number, xid = self._next(tx)
        size = len(message.body) + len(message.properties)
        for part, queue in enumerate(event.queues or (None,)):
            self._rows.append((at, part, "enqueue", tx, xid, number, queue, None, rid, message, None, None, None))
            self._bytes += size

    def _dequeue(self, at: int, event: TxDequeue) -> None:
        tx, queue, reason = event.tx, event.queue, _reason(event.reason)
        number, xid = self._next(tx)
        for part, (place, rid) in enumerate(event.entries or _NO_ENTRY):
            self._rows.append((at, part, "dequeue", tx, xid, number, queue, place, rid, None, reason, None, None))

    def _prepare(self, at: int, event: TxPrepare | DtxPrepare) -> None:
        number, xid = self._next(event.tx)
        names = tuple(event.participants)
        shown = self._participants.get(names)
        if shown is None:
            shown = self._participants[names] = json.dumps(names)
        detail = f'{{"count": {event.count}, "participants": {shown}'
        detail += f', "at_ms": {event.at_ms}}}' if isinstance(event, DtxPrepare) else "}"
        self._rows.append((at, 0, "prepare", event.tx, xid, number, None, None, None, None, None, None, detail))

    def _decide(self, at: int, event: TxDecision | DtxDecision) -> None:
        number, xid = self._next(event.tx)
        self._open.pop(event.tx, None)
        detail = None
        if isinstance(event, DtxDecision):
            detail = f'{{"heuristic": {"true" if event.heuristic else "false"}, "at_ms": {event.at_ms}}}'
        self._rows.append((at, 0, "decide", event.tx, xid, number, None, None, None, None, None, event.commit, detail))

    def _global_decision(self, at: int, event: GlobalDecision) -> None:
        xid, detail = str(Global(event.format_id, event.gtrid)), f'{{"at_ms": {event.at_ms}}}'
        self._rows.append((at, 0, "decide-global", None, xid, None, None, None, None, None, None, event.commit, detail))

    def _forget(self, at: int, event: Forget) -> None:
        self._rows.append((at, 0, "forget", None, str(event.xid), None, None, None, None, None, None, None, None))

    def _global_forget(self, at: int, event: GlobalForget) -> None:
        xid = str(Global(event.format_id, event.gtrid))
        self._rows.append((at, 0, "forget-global", None, xid, None, None, None, None, None, None, None, None))

    def _next(self, tx: int) -> Begun:
        """Number and xid of this event of the transaction."""
        found = self._open.get(tx)
        if found is None:
            found = self._begun(tx)
        number, xid = found
        self._open[tx] = found if number is None else (number + 1, xid)
        return found


def token_text(token: bytes) -> str:
    """A transaction's token as the column ``xid`` shows it."""
    return TOKEN + quote_from_bytes(token, safe="")


def _reason(code: int) -> str:
    return REASONS.get(code) or str(code)


_NO_ENTRY = ((None, None),)
_OF_MESSAGES = ("message_id", "exchange", "routing_key", "properties", "body")
_MAKERS: dict[type, Callable[[RowBuilder, int, Any], None]] = {
    GenerationStart: RowBuilder._generation,
    Configure: RowBuilder._configure,
    Publish: RowBuilder._publish,
    Settle: RowBuilder._settle,
    Delivered: RowBuilder._delivered,
    Purge: RowBuilder._purge,
    TxOpen: RowBuilder._tx_open,
    DtxOpen: RowBuilder._dtx_open,
    TxToken: RowBuilder._token,
    TxEnqueue: RowBuilder._enqueue,
    TxDequeue: RowBuilder._dequeue,
    TxPrepare: RowBuilder._prepare,
    DtxPrepare: RowBuilder._prepare,
    TxDecision: RowBuilder._decide,
    DtxDecision: RowBuilder._decide,
    GlobalDecision: RowBuilder._global_decision,
    Forget: RowBuilder._forget,
    GlobalForget: RowBuilder._global_forget,
}
