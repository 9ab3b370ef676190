"""Messages between nodes. Every one carries the generation; a receiver refuses a lower one (PROTOCOL).

``session`` numbers the attachments of one backup: what belongs to an earlier attachment is ignored.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from txobserver.configuration import BindingSpec, ExchangeSpec, QueueSpec
from txobserver.events import Message, TxEvent
from txobserver.ids import Member, Position
from txobserver.outcomes import OutcomesMeta, Remembered

WIRE_VERSION = 4
NO_ATTACHMENT = 0
"""The number of none: attachments are numbered from 1."""

Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A generation, session, sequence or place. Anything else is refused when it is decoded."""

QueueNumber = Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]
"""As much as the key of an entry in the store can hold."""


class Hello(msgspec.Struct, array_like=True, tag=0):
    """First message of every connection, both ways: who this is, and where its clients connect.

    Another version or cluster is refused with a sentence, and so is a cluster of the same name that was founded apart
    (``cluster_id``, see ``ha.membership.record.Record``).
    """

    version: int
    cluster: str
    node: str
    amqp_host: str
    amqp_port: int
    cluster_id: str = ""


class Probe(msgspec.Struct, array_like=True, tag=1):
    """A candidate asks a ready member how far its log goes."""

    generation: Number
    round: Number


class ProbeReply(msgspec.Struct, array_like=True, tag=2):
    """The position of the last event in the log of ``member``, synced or about to be."""

    generation: Number
    round: Number
    member: Member
    tail: Position


class Join(msgspec.Struct, array_like=True, tag=3):
    """A backup asks the primary to be attached, and says truthfully what its log holds."""

    generation: Number
    session: Number
    member: Member
    history: list[Position]
    tail: Position
    applied: Number
    resyncing: bool


class Refused(msgspec.Struct, array_like=True, tag=4):
    """The message that came is of a lower generation, or its sender is no primary's business now.

    ``session``: the attachment that ends by it; ``NO_ATTACHMENT`` if a request is refused and nothing ends.
    """

    generation: Number
    session: Number
    reason: str


class Follow(msgspec.Struct, array_like=True, tag=5):
    """Attached: cut your log after ``keep``; entries follow from there."""

    generation: Number
    session: Number
    keep: Number
    commit: Number


class Entries(msgspec.Struct, array_like=True, tag=6):
    """One frame of the stream, and the commit point."""

    generation: Number
    session: Number
    commit: Number
    frame: bytes


class Commit(msgspec.Struct, array_like=True, tag=7):
    """The commit point, when nothing else carries it."""

    generation: Number
    session: Number
    commit: Number


class Ack(msgspec.Struct, array_like=True, tag=8):
    """The backup's log is durable up to ``sequence``. Made from an Acknowledge only."""

    generation: Number
    session: Number
    sequence: Number


class Cancel(msgspec.Struct, array_like=True, tag=9):
    """The backup cannot prepare this transaction (prepare: fail)."""

    generation: Number
    session: Number
    tx: int
    reason: str


class Leave(msgspec.Struct, array_like=True, tag=10):
    """The backup's own store is the reason: take it out of the ready set."""

    generation: Number
    session: Number
    reason: str


class Granted(msgspec.Struct, array_like=True, tag=11):
    """The backup is a member of the ready set."""

    generation: Number
    session: Number


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
    """The messages of a queue, each (place, replication id), with places above ``after`` up to ``through``.

    It is answered with Missing if there are any. Changes of places up to ``through`` follow live from here on.
    """

    generation: Number
    session: Number
    queue: QueueNumber
    after: int
    through: Number
    ids: list[tuple[Number, int]]


class Missing(msgspec.Struct, array_like=True, tag=15):
    """The joiner lacks the messages at these places of the last QueueSnapshot; none: it has all of them."""

    generation: Number
    session: Number
    queue: QueueNumber
    places: list[Number]


class QueueContent(msgspec.Struct, array_like=True, tag=16):
    """Messages that the joiner lacked and that are still there, each (place, replication id, message).

    Several may follow one Missing: none is larger than a portion, or it holds one message.
    """

    generation: Number
    session: Number
    queue: QueueNumber
    entries: list[tuple[Number, int, Message]]


class QueueChange(msgspec.Struct, array_like=True, tag=17):
    """What happened live to a queue, as the primary's queue saw it. Those that went are (place, replication id)."""

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
    """Queues as of the end of the snapshot, each (number, count, digest, mark).

    A joiner that holds anything else begins anew; the mark takes the place of its own.
    """

    generation: Number
    session: Number
    queues: list[tuple[QueueNumber, Number, int, Number]]


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
    | ForwardTx
    | ForwardOutcomes
    | SnapshotEnd
)


class Progress(msgspec.Struct, array_like=True, tag=23):
    """A backup's word that it is alive: it has taken so many parts of a snapshot in this session.

    ``full``: its checkpoints are so far behind that it must be sent nothing more for now.
    """

    generation: Number
    session: Number
    taken: Number
    full: bool


class Promoted(msgspec.Struct, array_like=True, tag=21):
    """The sender is primary of this generation: whoever knows a lower one reads the record."""

    generation: Number


class Handover(msgspec.Struct, array_like=True, tag=20):
    """An operator wants the sender to be primary: hand the lease over to it."""

    generation: Number
    session: Number


Peer = (
    Hello
    | Probe
    | ProbeReply
    | Join
    | Refused
    | Follow
    | Entries
    | Commit
    | Ack
    | Cancel
    | Leave
    | Granted
    | ResyncBegin
    | QueueSnapshot
    | Missing
    | QueueContent
    | QueueChange
    | ForwardTx
    | ForwardOutcomes
    | SnapshotConfiguration
    | SnapshotQueues
    | SnapshotEnd
    | Progress
    | Handover
    | Promoted
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Peer)


def encode(message: object) -> bytes:
    """The bytes of one message, without a length prefix."""
    return _encoder.encode(message)


def decode(data: bytes | memoryview) -> Peer:
    """The message in these bytes. Raises ValueError (msgspec.DecodeError) for anything else."""
    try:
        message: Peer = _decoder.decode(data)
    except RecursionError:
        raise ValueError("configuration that is nested too deep") from None
    return message
