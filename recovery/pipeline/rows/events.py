"""The events again, exactly, from the rows that ``recovery.pipeline.rows.builder`` made of them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec
import pyarrow as pa

from recovery.pipeline.rows.kinds import REASONS, TOKEN
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Event,
    Forget,
    GenerationStart,
    GlobalDecision,
    GlobalForget,
    Message,
    Publish,
    Purge,
    Settle,
    Terms,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.ids import Position
from txobserver.xid import parse_xid

_CODES = {name: code for code, name in REASONS.items()}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
Row = dict[str, Any]


class Recorded(NamedTuple):
    """An event, where it stands, and when its frame was written, in milliseconds since 1970."""

    position: Position
    time_ms: int
    event: Event


def events_of(batches: pa.Table | Iterable[pa.RecordBatch]) -> Iterator[Recorded]:
    """The events that rows of ``schema.ARROW`` tell of: all rows of one node, by position and part.

    The rows of an event may stand in several batches. Raises ValueError for rows that are not in this order, or of
    which some are missing.
    """
    if isinstance(batches, pa.Table):
        batches = batches.to_batches()
    rows = (row for batch in batches for row in batch.to_pylist())
    before: tuple[str, int] | None = None
    for key, group in groupby(rows, key=lambda row: (row["node"], row["position"])):
        if before is not None and (key[0] != before[0] or key[1] <= before[1]):
            raise ValueError(f"rows of node {key[0]} at {key[1]} came after those of node {before[0]} at {before[1]}")
        before = key
        parts = list(group)
        if [part["part"] for part in parts] != list(range(len(parts))):
            raise ValueError(f"the event at {key[1]} of node {key[0]} lacks rows, or has some twice")
        head = parts[0]
        time_ms = (head["time"] - _EPOCH) // _MILLISECOND
        yield Recorded(Position(head["generation"], key[1]), time_ms, _MAKERS[head["kind"]](head, parts))


def _detail(row: Row) -> dict[str, Any]:
    return json.loads(row["detail"]) if row["detail"] is not None else {}


def _message(row: Row) -> Message:
    return Message(row["exchange"], row["routing_key"], row["properties"], row["body"])


def _queues(parts: list[Row]) -> tuple[int, ...]:
    return tuple(part["queue_id"] for part in parts if part["queue_id"] is not None)


def _entries(parts: list[Row]) -> list[tuple[int, int]]:
    return [(part["place"], part["replication_id"]) for part in parts if part["place"] is not None]


def _reason(row: Row) -> int:
    text = row["reason"]
    return _CODES[text] if text in _CODES else int(text)


def _global(row: Row) -> tuple[int, bytes]:
    number, gtrid = row["xid"].split(":")
    return int(number), unquote_to_bytes(gtrid)


def _generation(row: Row, parts: list[Row]) -> Event:
    return GenerationStart(**_detail(row))


def _configure(row: Row, parts: list[Row]) -> Event:
    detail = _detail(row)
    terms = msgspec.convert(detail["terms"], Terms) if "terms" in detail else None
    return Configure(detail["id"], detail["operation"], detail["name"], b64decode(detail["arguments"]), terms)


def _publish(row: Row, parts: list[Row]) -> Event:
    return Publish(row["replication_id"], _queues(parts), _message(row))


def _settle(row: Row, parts: list[Row]) -> Event:
    return Settle(row["queue_id"], _entries(parts), _reason(row))


def _delivered(row: Row, parts: list[Row]) -> Event:
    return Delivered(row["queue_id"], row["place"])


def _purge(row: Row, parts: list[Row]) -> Event:
    detail = _detail(row)
    return Purge(row["queue_id"], row["place"], detail["spared"], detail.get("rids", []))


def _open(row: Row, parts: list[Row]) -> Event:
    tx, xid = row["transaction"], row["xid"]
    return TxOpen(tx) if xid is None else DtxOpen(tx, parse_xid(xid))


def _token(row: Row, parts: list[Row]) -> Event:
    return TxToken(row["transaction"], unquote_to_bytes(row["xid"].removeprefix(TOKEN)))


def _enqueue(row: Row, parts: list[Row]) -> Event:
    return TxEnqueue(row["transaction"], row["replication_id"], _queues(parts), _message(row))


def _dequeue(row: Row, parts: list[Row]) -> Event:
    return TxDequeue(row["transaction"], row["queue_id"], _entries(parts), _reason(row))


def _prepare(row: Row, parts: list[Row]) -> Event:
    detail = _detail(row)
    return (DtxPrepare if "at_ms" in detail else TxPrepare)(row["transaction"], **detail)


def _decide(row: Row, parts: list[Row]) -> Event:
    tx, commit = row["transaction"], row["commit"]
    return TxDecision(tx, commit) if row["detail"] is None else DtxDecision(tx, commit, **_detail(row))


def _global_decision(row: Row, parts: list[Row]) -> Event:
    return GlobalDecision(*_global(row), row["commit"], _detail(row)["at_ms"])


def _forget(row: Row, parts: list[Row]) -> Event:
    return Forget(parse_xid(row["xid"]))


def _global_forget(row: Row, parts: list[Row]) -> Event:
    return GlobalForget(*_global(row))


_MAKERS: dict[str, Callable[[Row, list[Row]], Event]] = {
    "generation": _generation,
    "configure": _configure,
    "publish": _publish,
    "settle": _settle,
    "delivered": _delivered,
    "purge": _purge,
    "open": _open,
    "enqueue": _enqueue,
    "dequeue": _dequeue,
    "prepare": _prepare,
    "decide": _decide,
    "decide-global": _global_decision,
    "forget": _forget,
    "forget-global": _global_forget,
    "token": _token,
}
