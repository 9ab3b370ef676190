"""Everything durable that a primary does, as events of one ordered stream (PROTOCOL, "One stream").

Events are msgspec structs, encoded as tagged msgpack arrays; their fields are part of the stored format, so a
change to them is a change of ``frames.FORMAT_VERSION``. Queues are named by number: the ``config_id`` of the
event that declared them.

What is decoded is known in all its parts: another kind, a field more, or a reason that is none of ``Removal`` is a
ValueError, so nothing that a later version says is taken for less than it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Annotated, Final

import msgspec

from txobserver.xid import FormatId, Gtrid, Token, Xid


class Removal(IntEnum):
    """Why messages left a queue."""

    ACKED = 1
    REJECTED = 2
    EXPIRED = 3
    DROPPED = 4


Reason = Annotated[int, msgspec.Meta(ge=int(min(Removal)), le=int(max(Removal)))]
"""The number of a ``Removal``."""


class Message(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """A message as it was published. ``properties`` is the raw AMQP 0-9-1 content header: flags and property list."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes


class GenerationStart(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=1):
    """First event of a generation: its primary and the members that it expects."""

    generation: int
    primary: str
    expected: list[str]


class Terms(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True):
    """What a removal from the configuration depends on. It is judged where the step is applied, on every node alike.

    ``empty``: a queue goes only if every message in it is in a client's hands: ``spared`` are the offsets of those, and
    all up to ``through`` are, too. ``unused``: an exchange goes only if nothing is bound to it as a source.
    """

    empty: bool = False
    spared: list[int] = []
    unused: bool = False
    through: int | None = None


DECLARE_QUEUE: Final = "queue.declare"
"""The step whose number names a queue from then on."""


class Configure(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=2):
    """One step of configuration. Ids rise by one without a gap. ``operation`` names the step.

    ``terms``: of every removal. Auto-delete exchanges whose last binding it takes go with it. Earlier versions wrote
    none: their removals have no condition, and take such an exchange with a step of its own.
    """

    config_id: int
    operation: str
    name: str
    arguments: bytes
    terms: Terms | None = None


class Publish(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=3):
    """A message outside any transaction, to one or more queues."""

    rid: int
    queues: tuple[int, ...]
    message: Message


class Settle(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=4):
    """Messages that leave a queue outside any transaction, each as (offset, replication id)."""

    queue: int
    entries: list[tuple[int, int]]
    reason: Reason


class Delivered(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=5):
    """Messages of ``queue`` up to and including ``offset`` may have been handed to a consumer."""

    queue: int
    offset: int


class Purge(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=6):
    """Everything in ``queue`` with an offset not above ``offset`` leaves it, but for the offsets in ``spared``.

    The spared ones are in the hands of a consumer. ``rids`` are their replication ids, so that no node reads them; a
    primary of an earlier version gave none.
    """

    queue: int
    offset: int
    spared: list[int]
    rids: list[int] = []


def purge_of(queue: int, offset: int, spared: Sequence[tuple[int, int]]) -> Purge:
    """A purge that spares these (offset, replication id)."""
    return Purge(queue, offset, [each for each, _ in spared], [rid for _, rid in spared])


class TxOpen(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=7):
    """A tx-queue begins."""

    tx: int


class TxEnqueue(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=8):
    """A publish inside a transaction."""

    tx: int
    rid: int
    queues: tuple[int, ...]
    message: Message


class TxDequeue(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=9):
    """Messages acknowledged inside a transaction, each as (offset, replication id)."""

    tx: int
    queue: int
    entries: list[tuple[int, int]]
    reason: Reason


class TxPrepare(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=10):
    """The tx-queue is closed: ``count`` events stand between its TxOpen and this, and ``participants`` must vote."""

    tx: int
    count: int
    participants: list[str]


class TxDecision(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=11):
    """The outcome of a transaction. Its position gives the transaction's messages their offsets."""

    tx: int
    commit: bool


class DtxOpen(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=12):
    """The tx-queue of a branch begins: as TxOpen, and its outcome is remembered by its xid."""

    tx: int
    xid: Xid


class DtxPrepare(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=13):
    """As TxPrepare, for a prepare that stays: no failover and no timeout aborts it.

    ``at_ms``: when, in milliseconds since 1970, by the primary's clock.
    """

    tx: int
    count: int
    participants: list[str]
    at_ms: int


class DtxDecision(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=14):
    """As TxDecision, for a transaction whose outcome is remembered: a branch, or one with a token.

    ``heuristic``: decided by an operator, not by its coordinator. ``at_ms`` as in DtxPrepare: outcomes age by it.
    """

    tx: int
    commit: bool
    heuristic: bool
    at_ms: int


class GlobalDecision(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=15):
    """The outcome of a global transaction. Its prepared branches get their decisions behind it, from this primary or
    the next; a branch that would prepare behind it is refused."""

    format_id: FormatId
    gtrid: Gtrid
    commit: bool
    at_ms: int


class Forget(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=16):
    """The outcome of a branch need not be remembered any more."""

    xid: Xid


class GlobalForget(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=17):
    """A global decision need not be remembered any more."""

    format_id: FormatId
    gtrid: Gtrid


class TxToken(msgspec.Struct, array_like=True, gc=False, forbid_unknown_fields=True, tag=18):
    """A transaction that is no branch is given a name by its client, under which its outcome is remembered."""

    tx: int
    token: Token


TxEvent = TxOpen | TxEnqueue | TxDequeue | TxPrepare | TxDecision | DtxOpen | DtxPrepare | DtxDecision | TxToken
DtxRecord = GlobalDecision | Forget | GlobalForget
Event = GenerationStart | Configure | Publish | Settle | Delivered | Purge | TxEvent | DtxRecord
