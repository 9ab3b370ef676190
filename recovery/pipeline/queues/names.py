"""The names under which a sink is known to the broker: of its branches, its record, and its lock."""

from __future__ import annotations

import secrets
from hashlib import sha256
from typing import NamedTuple

from txobserver.xid import Global, Xid

FORMAT = 0x73706B
"""The format id of everything that sinks do ("spk"): no other coordinator may settle it."""

PREFIX = "spark."
JOB = "job-"
"""What the name of a batch job begins with; a streaming query has the id that Spark gave it."""

RECORD = b"record"
"""The branch id under which a query's record is changed."""


class Batch(NamedTuple):
    """One micro-batch of a query: the unit of decision. A batch job is a query with the one batch 0."""

    query: str
    number: int

    @property
    def globally(self) -> Global:
        """The global transaction that its branches belong to: the same when Spark writes the batch once more."""
        return Global(FORMAT, f"{PREFIX}{self.query}.{self.number}".encode())

    def branch(self, name: str) -> Xid:
        """The xid of one of its branches."""
        return Xid(*self.globally, name.encode())


def new_branch(partition: int, attempt: int) -> str:
    """A name that no other attempt of a partition has: numbers of attempts begin anew with each driver."""
    return f"{partition}.{attempt}.{secrets.token_hex(6)}"


def batch_of(xid: Xid) -> Batch | None:
    """The batch that a branch belongs to; None if it is no sink's."""
    if xid.format_id != FORMAT:
        return None
    text = xid.gtrid.decode("ascii", "replace")
    query, dot, number = text.removeprefix(PREFIX).rpartition(".")
    return Batch(query, int(number)) if text.startswith(PREFIX) and dot and number.isdecimal() else None


def record_xid(query: str) -> Xid:
    """The one name of every transaction that changes the record of a query."""
    return Xid(FORMAT, f"{PREFIX}{query}".encode(), RECORD)


def record_queue(query: str) -> str:
    """The durable queue that holds the query's record."""
    return f"txha.spark.{query}"


def lock_queue(query: str) -> str:
    """The exclusive queue that a driver that works with the record holds."""
    return f"txha.spark.{query}.lock"


LONGEST = 255
"""Bytes of a name in AMQP."""
ROOM = 9
"""Bytes that the name of the queue beside a record's has more (``kept.MAKING``)."""


def settled_queue(queue: str) -> str:
    """The durable queue of the record that says what sources have settled of a queue."""
    name = f"txha.spark.settled.{queue}"
    if len(name.encode()) <= LONGEST - ROOM:
        return name
    return f"txha.spark.settled.sha256.{sha256(queue.encode()).hexdigest()}"
