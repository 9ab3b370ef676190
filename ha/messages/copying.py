"""Copying: the queues of a primary, for a joiner whose log does not lead to the stream."""

from __future__ import annotations

import msgspec

from ha.messages.numbers import Number, QueueNumber
from txobserver.access import Access, User
from txobserver.audited import KeptChange
from txobserver.calls import KeptCall, KeptCalls
from txobserver.configuration import BindingSpec, ExchangeSpec, QueueSpec
from txobserver.events import Message, TxEvent
from txobserver.ids import Position
from txobserver.outcomes import OutcomesMeta, Remembered
from txobserver.rules import Rule


class ResyncBegin(msgspec.Struct, array_like=True, tag=12):
    """Catch-up queue by queue begins: drop prepared branches, mark the store durably, acknowledge sequence 0.

    ``history`` and ``tail`` are the primary's: a joiner that knows of something beyond them that has passed the commit
    point does not let itself be overwritten.
    """

    generation: Number
    session: Number
    history: list[Position]
    tail: Position


class QueueSnapshot(msgspec.Struct, array_like=True, tag=14):
    """The messages of a queue, each (offset, replication id), with offsets above ``after`` up to ``through``.

    It is answered with Missing if there are any. Changes of offsets up to ``through`` follow live from here on.
    """

    generation: Number
    session: Number
    queue: QueueNumber
    after: int
    through: Number
    ids: list[tuple[Number, int]]


class Missing(msgspec.Struct, array_like=True, tag=15):
    """The joiner lacks the messages at these offsets of the last QueueSnapshot; none: it has all of them."""

    generation: Number
    session: Number
    queue: QueueNumber
    offsets: list[Number]


class QueueContent(msgspec.Struct, array_like=True, tag=16):
    """Messages that the joiner lacked and that are still there, each (offset, replication id, message).

    Several may follow one Missing: none is larger than a portion, or it holds one message.
    """

    generation: Number
    session: Number
    queue: QueueNumber
    entries: list[tuple[Number, int, Message]]


class QueueChange(msgspec.Struct, array_like=True, tag=17):
    """What happened live to a queue, as the primary's queue saw it. Those that went are (offset, replication id)."""

    generation: Number
    session: Number
    queue: QueueNumber
    added: list[tuple[Number, int, Message]]
    removed: list[tuple[Number, int]]


class ForwardTx(msgspec.Struct, array_like=True, tag=18):
    """A tx-queue from its first event, each (sequence, event), for a joiner whose stream begins behind that.

    A long one comes in several.
    """

    generation: Number
    session: Number
    tx: int
    events: list[tuple[Number, TxEvent]]


class ForwardOutcomes(msgspec.Struct, array_like=True, tag=22):
    """Outcomes that are remembered at the end of the snapshot."""

    generation: Number
    session: Number
    remembered: list[Remembered]


class SnapshotConfiguration(msgspec.Struct, array_like=True, tag=24):
    """A part of the configuration as of the end of the snapshot."""

    generation: Number
    session: Number
    queues: list[QueueSpec]
    exchanges: list[ExchangeSpec]
    bindings: list[BindingSpec]


class SnapshotQueues(msgspec.Struct, array_like=True, tag=25):
    """Queues as of the end of the snapshot, each (number, count, digest, watermark).

    A joiner that holds anything else begins anew; the watermark takes the place of its own.
    """

    generation: Number
    session: Number
    queues: list[tuple[QueueNumber, Number, int, Number]]


class SnapshotCalls(msgspec.Struct, array_like=True, tag=40):
    """Cluster calls as of the end of the snapshot: the ``kept`` in slices, and all else of them with the first.

    ``digest`` is that of all of it: a joiner that finds anything else begins anew.
    """

    generation: Number
    session: Number
    digest: int
    kept: list[KeptCall]
    rest: KeptCalls | None = None


class SnapshotAccess(msgspec.Struct, array_like=True, tag=50):
    """The users of the cluster as of the end of the snapshot, in slices, and all else of ``Access`` with the first;
    but for ``changes`` and ``rules``, which come behind them, in slices of their own.

    ``digest`` is that of all of it: a joiner that finds anything else begins anew. Only a node that names the feature
    ``users`` is sent it.
    """

    generation: Number
    session: Number
    digest: int
    users: list[User]
    rest: Access | None = None
    changes: list[KeptChange] = []
    rules: list[Rule] = []


class SnapshotEnd(msgspec.Struct, array_like=True, tag=19):
    """The snapshot is whole as of ``position``: it overwrites the joiner's position, history and configuration.

    ``last_id`` is the configuration's, ``declared`` counts its (queues, exchanges, bindings); ``transactions`` lists
    (tx, number of events sent), ``outcomes`` counts and sums up what is remembered. A joiner that finds anything else
    begins anew.
    """

    generation: Number
    session: Number
    position: Position
    history: list[Position]
    last_id: Number
    declared: tuple[Number, Number, Number]
    transactions: list[tuple[int, int]]
    outcomes: OutcomesMeta


SnapshotPart = (
    QueueSnapshot
    | QueueContent
    | QueueChange
    | SnapshotConfiguration
    | SnapshotQueues
    | SnapshotCalls
    | SnapshotAccess
    | ForwardTx
    | ForwardOutcomes
    | SnapshotEnd
)
