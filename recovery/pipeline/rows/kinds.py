"""What each kind of event says in its rows."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote_from_bytes

import msgspec
import numpy as np

from recovery.pipeline.rows.sheet import NONE, Sheet, walker
from txobserver import events as e
from txobserver.batch import queues_declared_by
from txobserver.configuration import DECLARE_QUEUE, DELETE_QUEUE
from txobserver.ids import INDEX_BITS
from txobserver.xid import Global

TOKEN = "token:"
REASONS = {int(reason): reason.name.lower() for reason in e.Removal}
_KINDS = {
    e.GenerationStart: "generation",
    e.Configure: "configure",
    e.Publish: "publish",
    e.Settle: "settle",
    e.Delivered: "delivered",
    e.Purge: "purge",
    e.TxOpen: "open",
    e.DtxOpen: "open",
    e.TxEnqueue: "enqueue",
    e.TxDequeue: "dequeue",
    e.TxPrepare: "prepare",
    e.DtxPrepare: "prepare",
    e.TxDecision: "decide",
    e.DtxDecision: "decide",
    e.GlobalDecision: "decide-global",
    e.Forget: "forget",
    e.GlobalForget: "forget-global",
    e.TxToken: "token",
}
KINDS = frozenset(_KINDS.values())
"""What the column ``kind`` of an event can say."""
_TAGS: dict[Any, str] = {kind.__struct_config__.tag: name for kind, name in _KINDS.items()}
_NAMES = [_TAGS.get(tag) for tag in range(max(_TAGS) + 1)]
_decoder = msgspec.msgpack.Decoder(e.Event)
_participants = msgspec.msgpack.Decoder(list[str])


def fill(sheet: Sheet) -> None:
    """Fill in everything but the numbers of transactions' events and their xids."""
    tags, values, numbers = sheet.tags, sheet.values, sheet.numbers
    sheet.texts["kind"].put(slice(None), _NAMES, tags)
    published = tags == walker.PUBLISH
    numbers["place"][published] = sheet.position[published] << INDEX_BITS
    decided = tags == walker.TX_DECISION
    numbers["commit"][decided] = values[decided]
    sheet.openings |= tags == walker.TX_OPEN
    sheet.decisions |= decided
    _reasons(sheet)
    _prepared(sheet)
    for row in np.flatnonzero(~np.isin(tags, walker.WALKED)).tolist():
        begin, end = numbers["place"][row], numbers["replication_id"][row]
        numbers["place"][row] = numbers["replication_id"][row] = NONE
        event = _decoder.decode(sheet.data[begin:end])
        _RARE[type(event)](sheet, row, event)


def token_text(token: bytes) -> str:
    """A transaction's token as the column ``xid`` shows it."""
    return TOKEN + quote_from_bytes(token, safe="")


def _reasons(sheet: Sheet) -> None:
    rows = np.flatnonzero((sheet.tags == walker.SETTLE) | (sheet.tags == walker.TX_DEQUEUE))
    codes, which = np.unique(sheet.values[rows], return_inverse=True)
    sheet.texts["reason"].put(rows, [REASONS.get(code) or str(code) for code in codes.tolist()], which)


def _prepared(sheet: Sheet) -> None:
    rows = np.flatnonzero(sheet.tags == walker.TX_PREPARE)
    begins, ends = (sheet.numbers[name][rows] for name in ("place", "replication_id"))
    said = [sheet.data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
    sheet.numbers["place"][rows] = sheet.numbers["replication_id"][rows] = NONE
    shown = {each: json.dumps(_participants.decode(each)) for each in set(said)}
    details = [
        f'{{"count": {count}, "participants": {shown[each]}}}'
        for count, each in zip(sheet.values[rows].tolist(), said, strict=True)
    ]
    sheet.texts["detail"].put(rows, details, np.arange(len(details)))


# -- the rare ones, one by one


def _detail(sheet: Sheet, row: int, **said: Any) -> None:
    sheet.texts["detail"].put(row, [json.dumps(said)])


def _generation(sheet: Sheet, row: int, event: e.GenerationStart) -> None:
    _detail(sheet, row, generation=event.generation, primary=event.primary, expected=event.expected)


def _configure(sheet: Sheet, row: int, event: e.Configure) -> None:
    sheet.declared.update(queues_declared_by(event))
    if event.operation in (DECLARE_QUEUE, DELETE_QUEUE):
        sheet.names[row] = event.name
    said = {"id": event.config_id, "operation": event.operation, "name": event.name}
    said["arguments"] = b64encode(event.arguments).decode()
    if event.terms is not None:
        said["terms"] = msgspec.to_builtins(event.terms)
    _detail(sheet, row, **said)


def _purge(sheet: Sheet, row: int, event: e.Purge) -> None:
    sheet.numbers["queue_id"][row] = event.queue
    sheet.numbers["place"][row] = event.offset
    _detail(sheet, row, spared=event.spared, **({"rids": event.rids} if event.rids else {}))


def _dtx_open(sheet: Sheet, row: int, event: e.DtxOpen) -> None:
    sheet.numbers["transaction"][row] = event.tx
    sheet.openings[row] = True
    sheet.xids[row] = str(event.xid)


def _token(sheet: Sheet, row: int, event: e.TxToken) -> None:
    sheet.numbers["transaction"][row] = event.tx
    sheet.xids[row] = token_text(event.token)


def _dtx_prepare(sheet: Sheet, row: int, event: e.DtxPrepare) -> None:
    sheet.numbers["transaction"][row] = event.tx
    _detail(sheet, row, count=event.count, participants=event.participants, at_ms=event.at_ms)


def _dtx_decision(sheet: Sheet, row: int, event: e.DtxDecision) -> None:
    sheet.numbers["transaction"][row] = event.tx
    sheet.numbers["commit"][row] = event.commit
    sheet.decisions[row] = True
    _detail(sheet, row, heuristic=event.heuristic, at_ms=event.at_ms)


def _global_decision(sheet: Sheet, row: int, event: e.GlobalDecision) -> None:
    sheet.texts["xid"].put(row, [str(Global(event.format_id, event.gtrid))])
    sheet.numbers["commit"][row] = event.commit
    _detail(sheet, row, at_ms=event.at_ms)


def _forget(sheet: Sheet, row: int, event: e.Forget) -> None:
    sheet.texts["xid"].put(row, [str(event.xid)])


def _global_forget(sheet: Sheet, row: int, event: e.GlobalForget) -> None:
    sheet.texts["xid"].put(row, [str(Global(event.format_id, event.gtrid))])


_RARE: dict[type, Callable[[Sheet, int, Any], None]] = {
    e.GenerationStart: _generation,
    e.Configure: _configure,
    e.Purge: _purge,
    e.DtxOpen: _dtx_open,
    e.TxToken: _token,
    e.DtxPrepare: _dtx_prepare,
    e.DtxDecision: _dtx_decision,
    e.GlobalDecision: _global_decision,
    e.Forget: _forget,
    e.GlobalForget: _global_forget,
}
