"""Rows and messages: what a row of the sink is published as."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import pika
import pyarrow as pa

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.options import SinkOptions

BODY = "body"
TEXT = ("message_id", "content_type", "correlation_id", "type")
"""Columns that become AMQP's properties of the same names."""

COLUMNS = (BODY, "queue", "routing_key", "exchange", "headers", "properties", *TEXT)


class RowToPublish(NamedTuple):
    """The arguments of basic.publish."""

    exchange: str
    routing_key: str
    body: bytes
    properties: pika.BasicProperties

    @property
    def size(self) -> int:
        """Bytes, as the broker counts them for a transaction: of body and properties."""
        if self.properties is PLAIN:
            return len(self.body) + len(_PLAIN)
        return len(self.body) + sum(map(len, self.properties.encode()))


def check_columns(names: Iterable[str], options: SinkOptions) -> None:
    """Raises PipelineError for columns that no message can be made of."""
    found = list(names)
    if BODY not in found:
        raise PipelineError(f"rows for a queue need a column {BODY} (string or binary); these have {', '.join(found)}")
    if unknown := [name for name in found if name not in COLUMNS]:
        raise PipelineError(f"columns that no message has: {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    if {"queue", "routing_key"} <= set(found):
        raise PipelineError("columns queue and routing_key mean the same: leave one out")
    if not {"queue", "routing_key"} & set(found) and not options.queue:
        raise PipelineError("where shall the rows go? Set the option queue, or give them a column queue or routing_key")


def publishes(batch: pa.RecordBatch, options: SinkOptions) -> Iterator[RowToPublish]:
    """A message for each row. Raises PipelineError for a row without a body."""
    columns = {name: batch.column(index).to_pylist() for index, name in enumerate(batch.schema.names)}
    keys = columns.get("routing_key") or columns.get("queue")
    exchanges = columns.get("exchange")
    rare = [(name, columns[name]) for name in ("properties", "headers", *TEXT) if name in columns]
    for index, body in enumerate(columns[BODY]):
        if body is None:
            raise PipelineError("a row has no body: null cannot be published")
        key = keys[index] if keys is not None else None
        exchange = exchanges[index] if exchanges is not None else None
        yield RowToPublish(
            options.exchange if exchange is None else exchange,
            options.queue if key is None else key,
            body.encode() if isinstance(body, str) else body,
            _properties({name: values[index] for name, values in rare}) if rare else PLAIN,
        )


PLAIN = pika.BasicProperties(delivery_mode=2)
_PLAIN = b"".join(PLAIN.encode())


def _properties(given: Mapping[str, object]) -> pika.BasicProperties:
    """``properties``, as they were published somewhere, and what other columns say instead."""
    found = pika.BasicProperties()
    raw = given.get("properties")
    if isinstance(raw, bytes | bytearray):
        found.decode(bytes(raw))
    found.delivery_mode = 2
    headers = given.get("headers")
    if headers is not None:
        found.headers = dict(headers)  # type: ignore[call-overload]
    for name in TEXT:
        if given.get(name) is not None:
            setattr(found, name, given[name])
    return found
