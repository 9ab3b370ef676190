"""The one schema of the pipeline: a row for each message that an event of the stream touches, else one for the event.

The source yields it, the archive keeps it, the audit and every query read it. ``docs/pipeline.md`` has the same table
for people.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

ARROW = pa.schema(
    [
        ("node", pa.string()),
        ("generation", pa.int64()),
        ("position", pa.int64()),
        ("part", pa.int32()),
        ("kind", pa.string()),
        ("transaction", pa.int64()),
        ("xid", pa.string()),
        ("number", pa.int32()),
        ("queue_id", pa.int64()),
        ("queue", pa.string()),
        ("place", pa.int64()),
        ("replication_id", pa.int64()),
        ("message_id", pa.string()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("properties", pa.binary()),
        ("body", pa.binary()),
        ("reason", pa.string()),
        ("commit", pa.bool_()),
        ("detail", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
    ]
)
"""
node            whose log it is
generation      of the event's position
position        of the event: its sequence in the stream, gap-free
part            0, 1, … for the rows of one event
kind            one of KINDS
transaction     the transaction's number (``tx`` of the events); null outside one
xid             of a branch ``format:gtrid:bqual``, of a decision on a global transaction ``format:gtrid``, with
                anything but letters, digits and ``._-`` percent-encoded; a token as ``token:…``. On the rows that
                carry it, see ``recovery.pipeline.rows.builder``
number          of the event within its transaction, 0 for the one that opens it; null if the log no longer says
queue_id        the number that events name the queue by
queue           its name; null if neither the log nor the node's state says it any more
place           of a message in its queue: of a publish outside a transaction, and of everything that takes one out;
                for ``purge`` and ``delivered`` the place up to which; null for a transaction's enqueue, whose
                decision gives it
replication_id  of the message
message_id      AMQP's property of that name
exchange        and
routing_key     as published
properties      the AMQP 0-9-1 content header, flags and property list, as published
body            of the message
reason          why messages left: acked, rejected, expired, dropped
commit          of a decision, true or false
detail          what else the event says, as JSON: operation, name and arguments of a configuration step, count and
                participants of a prepare, whether a decision was heuristic, primary and expected members of a
                generation
time            when the frame was written, by the primary's clock; nothing decides by it
"""


KINDS = (
    "generation",
    "configure",
    "publish",
    "settle",
    "delivered",
    "purge",
    "open",
    "enqueue",
    "dequeue",
    "prepare",
    "decide",
    "decide-global",
    "forget",
    "forget-global",
    "token",
)
"""Of GenerationStart, Configure, Publish, Settle, Delivered, Purge, TxOpen and DtxOpen, TxEnqueue, TxDequeue, TxPrepare
and DtxPrepare, TxDecision and DtxDecision, GlobalDecision, Forget, GlobalForget, TxToken."""


def columns_of(names: Iterable[str]) -> pa.Schema:
    """These columns, in this order. Raises KeyError for one that is none."""
    return pa.schema([ARROW.field(name) for name in names])
