"""One connection between two nodes, or of a reader of the log, from its first byte on.

    proof      both ends prove that they know a secret (``ha.messages.proof``); lengths of a few hundred bytes
               over TLS (``broker_plugin.node.link_tls``) the certificates may stand in for the secret
    greeting   the first message under the seals, each way: Hello, or a reader's ReadHello
    messages   msgpack arrays of ``ha.messages.wire``, under the seals (``ha.messages.seals``)

One that has no version of the protocol in common with ours, another cluster, one of the same name that was founded
apart, and a node that is no peer of ours, is refused. Who greets with ReadHello only reads our log
(``recovery.reader.log_wire``): it is no peer, and is handed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import cast

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.node.refusals import PeerRefusals
from ha.messages.alarms import AlarmsInForce
from ha.messages.greeting import Hello, agreed
from ha.messages.proof import MAX_UNPROVEN, PEER, DiallerProof, LinkSession, ListenerProof
from ha.messages.seals import LENGTH
from ha.messages.wire import Peer, Told, decode, encode
from recovery.certificate_names import NODE, CertificateName
from recovery.reader.log_wire import ReadHello, decode_greeting
from recovery.tls_channel import HANDSHAKE

MAX_MESSAGE = 1 << 30
MAX_HELLO = 4096
"""Bytes of a greeting"""

OnReader = Callable[[asyncio.Transport, ReadHello, LinkSession, bytes], None]
"""Takes over the connection of a peer that only reads, with what came behind its greeting; ValueError refuses it."""

OnAlarms = Callable[[str, object, AlarmsInForce], object]
"""The peer of that name has said on this connection which alarms are in force there."""

Admit = Callable[[asyncio.BaseTransport], bool]
"""Whether a peer that has just connected can stay."""


def drop_alarms(peer: str, connection: object, alarms: AlarmsInForce) -> None:
    """What is told on a connection that this node has dialled is dropped, as every other message there."""


def admit_all(transport: asyncio.BaseTransport) -> bool:
    """Can stay."""
    return True


class PeerProtocol(GuardedProtocol):
    """One connection, either way. What comes in goes to ``on_message`` with the name of its sender; what that says of
    its alarms, which the core does not take, goes to ``on_alarms``.

    ``expected`` are the nodes that may greet, looked at when one does; ``features`` what both sides know, once the peer
    has greeted. ``session`` is there once both sides have proved themselves. ``proof``: None where all must be said
    over TLS (``secured``). ``heard``: bytes have come since that was asked last.
    """

    def __init__(
        self,
        guard: Guard,
        hello: Hello,
        proof: ListenerProof | DiallerProof | None,
        expected: Collection[str],
        on_greeted: Callable[[PeerProtocol, Hello], None],
        on_message: Callable[[str, Peer], None],
        on_lost: Callable[[PeerProtocol], None],
        on_reader: OnReader | None = None,
        admit: Admit = admit_all,
        refusals: PeerRefusals | None = None,
        on_alarms: OnAlarms = drop_alarms,
    ) -> None:
        self.guard = guard
        self.peer: str | None = None
        self.features: frozenset[str] = frozenset()
        self.heard = False
        self.session: LinkSession | None = None
        self.transport: asyncio.Transport | None = None
        self._hello = hello
        self._proof = proof
        self._expected = expected
        self._on_greeted = on_greeted
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_reader = on_reader
        self._admit = admit
        self._on_alarms = on_alarms
        self._refusals = refusals or PeerRefusals()
        self._certificate: CertificateName | None = None
        self._buffer = bytearray()
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Challenge, if it was not us who dialled."""
        self.transport = transport = cast(asyncio.Transport, transport)
        if self._ended or not self._admit(transport):
            self.close()
        else:
            self._challenge(transport)

    def secured(self, proof: ListenerProof | DiallerProof, certificate: CertificateName) -> None:
        """TLS has begun, and the other end has shown this certificate: all is said anew under it, with this proof."""
        self._proof, self._certificate = proof, certificate
        if self.transport is not None:
            self._challenge(self.transport)

    def data_received(self, data: bytes) -> None:
        """Take whole messages out of what came in."""
        if self.transport is None:
            return
        self.heard = True
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while self.transport is not None and (found := self._next(buffer, at)) is not None:
                message, at = found
                if self.peer is not None:
                    self._take(self.peer, decode(message))
                elif self.session is None:
                    self._prove(message)
                elif isinstance(greeting := decode_greeting(message), Hello):
                    self._greeted(greeting)
                else:
                    self._hand_on(greeting, self.session, bytes(memoryview(buffer)[at:]))
                    return
        except ValueError as error:
            self.refuse(str(error))
            at = len(buffer)
        if at:
            del buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self.transport = None
        self._on_lost(self)

    def send(self, message: object) -> None:
        """To a peer that has greeted."""
        if self.transport is not None and self.session is not None:
            self.transport.write(self.session.sealer.seal(encode(message)))

    def close_unless_greeted(self) -> None:
        """End the connection with a peer that keeps silent."""
        if self.peer is None and self.transport is not None:
            self.refuse("it does not greet" if self.session else "it does not prove who it is in time")

    def refuse(self, reason: str) -> None:
        """End the connection, and say why; seldom where it happens often."""
        self._refusals.refused(self.peer or "", self.transport, reason)
        self.close()

    def close(self) -> None:
        """End the connection; what still comes is not taken."""
        self._ended = True
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.abort()

    def _next(self, buffer: bytearray, at: int) -> tuple[bytes, int] | None:
        """The next message, and where it ends; None if it has not come whole."""
        if self.session is not None:
            return self.session.unsealer.message(buffer, at, MAX_HELLO if self.peer is None else MAX_MESSAGE)
        if len(buffer) - at < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(buffer, at)
        if buffer[at] == HANDSHAKE:
            raise ValueError("it begins TLS, and this node speaks none (peer.tls)")
        if length > MAX_UNPROVEN:
            raise ValueError(f"a message of {length} bytes before it proves who it is")
        start = at + LENGTH.size
        if len(buffer) < start + length:
            return None
        return bytes(memoryview(buffer)[start : start + length]), start + length

    def _take(self, peer: str, message: Told) -> None:
        if isinstance(message, AlarmsInForce):
            self._on_alarms(peer, self, message)
        else:
            self._on_message(peer, message)

    def _challenge(self, transport: asyncio.Transport) -> None:
        if self._proof is not None and self._proof.opening:
            transport.write(_unsealed(self._proof.opening))

    def _prove(self, message: bytes) -> None:
        """The next step of the proof, behind the last of which we greet."""
        assert self.transport is not None and self._proof is not None, "it took the message"
        answer, self.session = self._proof.take(message)
        if answer:
            self.transport.write(_unsealed(answer))
        self.send(self._hello)

    def _hand_on(self, greeting: ReadHello, session: LinkSession, rest: bytes) -> None:
        """This peer reads our log: the connection is no longer ours."""
        if self._on_reader is None or self.transport is None:
            raise ValueError("it does not greet as a peer")
        self._on_reader(self.transport, greeting, session, rest)
        self.transport = None
        self._buffer.clear()
        self._on_lost(self)

    def _greeted(self, message: Hello) -> None:
        if self.session is None or self.session.purpose != PEER:
            raise ValueError("it has the right to read the log, and greets as a peer")
        if self._certificate is not None and (self._certificate.kind, self._certificate.name) != (NODE, message.node):
            raise ValueError(f"it greets as {message.node}, and its certificate says {self._certificate.uri}")
        self.features = agreed(self._hello, message).features
        if message.cluster != self._hello.cluster:
            raise ValueError(f"it belongs to cluster {message.cluster}, not to {self._hello.cluster}")
        if message.cluster_id != self._hello.cluster_id:
            raise ValueError(f"it belongs to another cluster that is also called {message.cluster}")
        if message.node not in self._expected:
            expected = f", not {' or '.join(self._expected)}" if self._expected else ", and no peer is expected here"
            raise ValueError(f"it is {message.node}{expected}")
        self.peer = message.node
        self._on_greeted(self, message)


def _unsealed(message: bytes) -> bytes:
    """A step of the proof as it is sent."""
    return LENGTH.pack(len(message)) + message
