"""Events of a node's log that do not come from its core (those: ``ha.log_events``): typed, with plain fields.

``reason`` is the sentence of an error, as it was raised.
"""

from __future__ import annotations

from typing import NamedTuple

from broker_plugin.logs.http_events import (
    HttpDoorEnded,
    HttpDoorFailed,
    HttpDoorListens,
    HttpDoorShut,
    HttpDoorUnstarted,
)
from broker_plugin.logs.link_events import AddressDiffers, PeerMute, PeerNowhere
from broker_plugin.logs.passing_events import PassingRefused
from broker_plugin.logs.tls_events import CertificateExpires, CertificateInForce, CertificateUnread, TlsRefused
from ha.log_events import LogEvent


class NodeStarted(NamedTuple):
    """A node runs. ``core``: compiled or pure."""

    member: str
    position: str
    core: str


class InvariantsChecked(NamedTuple):
    """Invariants are checked after each turn, as this ``variable`` of the environment asks: the node is slow."""

    variable: str


class NodeFailed(NamedTuple):
    """Why the node ends."""

    reason: str


class AllReady(NamedTuple):
    """As many nodes are ready as there are."""

    nodes: int


class TooFewReady(NamedTuple):
    """Fewer nodes are ready than there are."""

    ready: int
    nodes: int
    min_ready: int


class OperatorDecides(NamedTuple):
    """An operator decides a branch without its coordinator."""

    branch: str
    commit: bool


class OperatorCalls(NamedTuple):
    """An operator makes a cluster call at this node. ``arguments``: as JSON, without secrets; ``call``: its id."""

    operation: str
    name: str
    arguments: str
    call: str


class OperatorControls(NamedTuple):
    """An operator lets ``member`` skip the call ``tnx_id``, moves it forward to that, or resets the calls.

    ``reason``: empty where that is done; else why it is not, or why that is not known.
    """

    control: str
    member: str
    tnx_id: int
    reason: str


class ActionNotRun(NamedTuple):
    """An action has failed here; ``tnx_id`` 0: of a call that has no number. ``undo``: it was to be undone."""

    operation: str
    name: str
    tnx_id: int
    undo: bool
    reason: str


class CallsNotKept(NamedTuple):
    """How far this node has run the calls cannot be written, so it runs none. It is tried again."""

    reason: str


class ListenerNotOpen(NamedTuple):
    """A listener that a call has opened cannot be opened at the start. It is tried again."""

    listener: str
    reason: str


class UserChanged(NamedTuple):
    """An operator asks at this node for a change of a user: ``operation`` is the step of configuration.

    ``by`` is who has logged in to ask for it, from ``address``; empty for an operator at the machine itself.
    """

    operation: str
    login: str
    by: str
    address: str


class UsersTakenOver(NamedTuple):
    """The users of this primary's configuration have become those of the cluster; no node reads its own any more."""

    taken: int


class UsersUnread(NamedTuple):
    """This node's configuration says something else of users than the cluster, and is not read for them."""

    reason: str


class BrokerWaited(NamedTuple):
    """The node waits for its host broker to connect to this ``socket``, and takes part in nothing until then."""

    socket: str


class BrokerAttached(NamedTuple):
    """A host broker, which calls itself so, is attached to this node."""

    broker: str


class BrokerRefused(NamedTuple):
    """What connected to the host broker's socket was disconnected."""

    reason: str


class FilesLimited(NamedTuple):
    """The limit of open files could not be raised."""

    limit: int
    reason: str


class ConnectionsRefused(NamedTuple):
    """``kind`` of connections are refused: ``limit`` descriptors are in use, or soon will be."""

    kind: str
    limit: int


class MemoryShort(NamedTuple):
    """Clients make the node hold ``held`` bytes, more than ``high``: publishers are blocked. ``kinds``: in words.

    They did ``unsaid`` more times since the last line.
    """

    held: int
    high: int
    kinds: str
    unsaid: int = 0


class MemoryEnough(NamedTuple):
    """They make it hold no more than ``low`` bytes again: publishers go on."""

    held: int
    low: int


class GreedyClientClosed(NamedTuple):
    """A client is closed for what it makes the node hold, in bytes; ``unsaid`` others were since the last line."""

    client: str
    held: int
    reason: str
    unsaid: int = 0


class DiskShort(NamedTuple):
    """Less than ``least`` bytes are free on the disk of ``directory``. ``primary``: publishers are blocked by it."""

    directory: str
    free: int
    least: int
    primary: bool


class DiskEnough(NamedTuple):
    """There is room again."""

    directory: str
    free: int


class DiskUnread(NamedTuple):
    """How much is free on the disk cannot be read."""

    directory: str
    reason: str


class StrangersClosed(NamedTuple):
    """Connections that have not logged in are closed, this time one from ``address``; ``closed`` of them so far."""

    address: str
    closed: int
    reason: str


class FilesShort(NamedTuple):
    """Fewer clients than ``max_connections`` fit in the limit of open files. ``needed``: files for all of them."""

    limit: int
    clients: int
    max_connections: int
    needed: int


class LoginsRefused(NamedTuple):
    """Logins from an address are refused, so many since the last such line; login and reason are of the last one."""

    login: str
    address: str
    refusals: int
    reason: str


class UnsupportedAccepted(NamedTuple):
    """A client uses ``what`` at a queue or exchange (``kind``): RabbitMQ would act on it, and it has no effect here."""

    kind: str
    name: str
    what: str


class PeerRefused(NamedTuple):
    """A connection at the port for other nodes is closed, and ``unsaid`` others were since the last line.

    ``peer`` is empty before it has proved itself and said its name; ``address`` where it is not known any more.
    """

    peer: str
    reason: str
    address: str = ""
    unsaid: int = 0


class ReaderRefused(NamedTuple):
    """A connection with a reader of the log is closed, and ``unsaid`` others were since the last line."""

    reason: str
    address: str = ""
    unsaid: int = 0


class ReaderUnanswered(NamedTuple):
    """The log could not be read for a reader, nor ``unsaid`` times since the last line. ``kind``: of the error."""

    kind: str
    reason: str
    unsaid: int = 0


class LogUnread(NamedTuple):
    """The log could not be read for a backup."""

    reason: str


class RecordUnread(NamedTuple):
    """The coordination record could not be read or changed."""

    reason: str


class OperatorGone(NamedTuple):
    """A connection of an operator has ended by an error."""

    reason: str


class UnexpectedError(NamedTuple):
    """An error that is no client's own fault: the node ends. ``kind``: of the error."""

    kind: str
    reason: str


class LoopError(NamedTuple):
    """What the event loop reports."""

    reason: str


class LongTurn(NamedTuple):
    """A turn of the event loop took so many seconds of processor time. The ``call`` that took longest in it was this.

    ``call_seconds``: the time that passed meanwhile. ``client``: whose bytes were carried out last in the turn; empty
    if none were.
    """

    seconds: float
    call: str
    call_seconds: float
    client: str


class RenewedMeanwhile(NamedTuple):
    """The event loop has completed no turn for so many seconds, and the lease would have been over by now: the process
    that keeps the coordination store has renewed it meanwhile."""

    seconds: float


NodeEvent = (
    NodeStarted
    | InvariantsChecked
    | AddressDiffers
    | NodeFailed
    | AllReady
    | TooFewReady
    | OperatorDecides
    | OperatorCalls
    | OperatorControls
    | ActionNotRun
    | CallsNotKept
    | ListenerNotOpen
    | UserChanged
    | HttpDoorEnded
    | HttpDoorUnstarted
    | HttpDoorListens
    | HttpDoorFailed
    | HttpDoorShut
    | UsersTakenOver
    | UsersUnread
    | BrokerWaited
    | BrokerAttached
    | BrokerRefused
    | FilesLimited
    | ConnectionsRefused
    | DiskEnough
    | DiskShort
    | DiskUnread
    | FilesShort
    | GreedyClientClosed
    | MemoryEnough
    | MemoryShort
    | StrangersClosed
    | PassingRefused
    | CertificateInForce
    | CertificateUnread
    | TlsRefused
    | CertificateExpires
    | LoginsRefused
    | UnsupportedAccepted
    | PeerRefused
    | PeerMute
    | PeerNowhere
    | ReaderRefused
    | ReaderUnanswered
    | LogUnread
    | RecordUnread
    | OperatorGone
    | UnexpectedError
    | LoopError
    | LongTurn
    | RenewedMeanwhile
)

Event = LogEvent | NodeEvent
