"""Connections between nodes: every node dials every other, and sends on the connection that it dialled.

    message: length (4 bytes, big endian), then the msgpack array of ``ha.messages.wire``

The first message of each side is Hello; one that has no version of the protocol in common with ours, another cluster,
one of the same name that was founded apart, and a node that is no peer of ours, is refused. A peer is *linked* while
our connection to it stands and it has greeted us on it. Who greets with ReadHello only reads our log
(``recovery.reader.log_wire``): it is no peer, and is handed on.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import cast

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.logs.events import PeerMute, PeerRefused
from broker_plugin.logs.formats import tell
from ha.messages.greeting import Hello, agreed
from ha.messages.stream import Entries
from ha.messages.wire import Peer, decode, encode
from recovery.reader.log_wire import ReadHello, decode_greeting

log = logging.getLogger("txha.links")
_LENGTH = struct.Struct(">I")
MAX_MESSAGE = 1 << 30
MAX_HELLO = 4096
"""Bytes of a message before the greeting: who has not said who it is fills no memory."""
LARGE = 1 << 16
"""Bytes of a frame from which on msgpack gives its length in four bytes, and which is not copied for each backup"""
_NO_BYTES, _MANY_BYTES = b"\xc4\x00", b"\xc6"
"""How msgpack writes an empty byte string, and how a large one begins, before its length"""
GREETING_SECONDS = 10.0
"""Within this time a peer that connects must greet."""
LINKING_SECONDS = 10.0
"""Within this time a peer that is dialled must take the connection and greet; then it is dialled anew."""
FIRST_DELAY, LAST_DELAY = 0.05, 0.5

OnReader = Callable[[asyncio.Transport, ReadHello, bytes], None]
"""Takes over the connection of a peer that only reads, with what came behind its greeting; ValueError refuses it."""

Admit = Callable[[asyncio.BaseTransport], bool]
"""Whether a peer that has just connected can stay."""


def admit_all(transport: asyncio.BaseTransport) -> bool:
    """Can stay."""
    return True


@dataclass(frozen=True)
class PeerAddress:
    """Where a peer listens for other nodes."""

    name: str
    host: str
    port: int


def framed(message: object) -> bytes:
    """A message with its length in front."""
    data = encode(message)
    return _LENGTH.pack(len(data)) + data


def parts(message: object) -> list[bytes]:
    """The same in parts, of which a large frame of the stream is one, as it is: it goes to several, uncopied."""
    if type(message) is not Entries or len(message.frame) < LARGE:
        return [framed(message)]
    frame = message.frame
    empty = encode(Entries(message.generation, message.session, message.commit, b""))
    data = empty[: -len(_NO_BYTES)] + _MANY_BYTES + _LENGTH.pack(len(frame))
    return [_LENGTH.pack(len(data) + len(frame)) + data, frame]


class PeerProtocol(GuardedProtocol):
    """One connection, either way. What comes in goes to ``on_message`` with the name of its sender.

    ``expected`` are the nodes that may greet; ``features`` what both sides know, once the peer has greeted.
    """

    def __init__(
        self,
        guard: Guard,
        hello: Hello,
        expected: Collection[str],
        on_greeted: Callable[[PeerProtocol, Hello], None],
        on_message: Callable[[str, Peer], None],
        on_lost: Callable[[PeerProtocol], None],
        on_reader: OnReader | None = None,
        admit: Admit = admit_all,
    ) -> None:
        self.guard = guard
        self.peer: str | None = None
        self.features: frozenset[str] = frozenset()
        self.transport: asyncio.Transport | None = None
        self._hello = hello
        self._expected = expected
        self._on_greeted = on_greeted
        self._on_message = on_message
        self._on_lost = on_lost
        self._on_reader = on_reader
        self._admit = admit
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet."""
        self.transport = transport = cast(asyncio.Transport, transport)
        if not self._admit(transport):
            self.close()
            return
        transport.write(framed(self._hello))

    def data_received(self, data: bytes) -> None:
        """Take whole messages out of what came in."""
        if self.transport is None:
            return
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(buffer, at)
                if length > (MAX_HELLO if self.peer is None else MAX_MESSAGE):
                    raise ValueError(f"a message of {length} bytes{' before it greets' if self.peer is None else ''}")
                if len(buffer) - at - _LENGTH.size < length:
                    break
                start = at + _LENGTH.size
                at = start + length
                message = bytes(memoryview(buffer)[start:at])
                if self.peer is not None:
                    self._on_message(self.peer, decode(message))
                elif isinstance(greeting := decode_greeting(message), Hello):
                    self._greeted(greeting)
                else:
                    self._hand_on(greeting, bytes(memoryview(buffer)[at:]))
                    return
        except ValueError as error:
            tell(log, logging.WARNING, PeerRefused(self.peer or "", str(error)))
            self.close()
            at = len(buffer)
        if at:
            del buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self.transport = None
        self._on_lost(self)

    def close_unless_greeted(self) -> None:
        """End the connection with a peer that keeps silent."""
        if self.peer is None and self.transport is not None:
            tell(log, logging.WARNING, PeerRefused("", "it does not greet"))
            self.close()

    def close(self) -> None:
        """End the connection; what still comes is not taken."""
        transport, self.transport = self.transport, None
        if transport is not None:
            transport.abort()

    def _hand_on(self, greeting: ReadHello, rest: bytes) -> None:
        """This peer reads our log: the connection is no longer ours."""
        if self._on_reader is None or self.transport is None:
            raise ValueError("it does not greet as a peer")
        self._on_reader(self.transport, greeting, rest)
        self.transport = None
        self._buffer.clear()
        self._on_lost(self)

    def _greeted(self, message: Hello) -> None:
        self.features = agreed(self._hello, message).features
        if message.cluster != self._hello.cluster:
            raise ValueError(f"it belongs to cluster {message.cluster}, not to {self._hello.cluster}")
        if message.cluster_id != self._hello.cluster_id:
            raise ValueError(f"it belongs to another cluster that is also called {message.cluster}")
        if message.node not in self._expected:
            raise ValueError(f"it is {message.node}, not {' or '.join(self._expected)}")
        self.peer = message.node
        self._on_greeted(self, message)


class Links:
    """All connections of this node. Callbacks run in the event loop.

    ``on_link`` gets, for each peer, what both sides know when it is linked, and None when it is no more.
    """

    def __init__(
        self,
        guard: Guard,
        hello: Hello,
        peers: list[PeerAddress],
        on_link: Callable[[str, frozenset[str] | None], None],
        on_message: Callable[[str, Peer], None],
        on_reader: OnReader | None = None,
        admit: Admit = admit_all,
    ) -> None:
        self._guard = guard
        self.hello = hello
        self.greetings: dict[str, Hello] = {}
        self._peers = peers
        self._on_link = on_link
        self._on_message = on_message
        self._on_reader = on_reader
        self._admit = admit
        self._out: dict[str, PeerProtocol] = {}
        self._in: dict[PeerProtocol, None] = {}  # in the order of their coming, so that they end in that
        self._server: asyncio.Server | None = None
        self._dialers: list[asyncio.Task[object]] = []
        self._stopping = False

    async def start(self, host: str, port: int) -> None:
        """Listen, and begin to dial. Raises OSError if the port is taken."""
        self._server = await self._guard.create_server(self._accepted, host, port)
        self._dialers = [self._guard.create_task(self._dial(peer)) for peer in self._peers]

    def send(self, peer: str, message: object) -> None:
        """Send, if the peer is linked; else the message is lost, as it may be on any network."""
        protocol = self._out.get(peer)
        if protocol is not None and protocol.transport is not None:
            transport = protocol.transport
            for part in parts(message):
                transport.write(part)

    async def stop(self) -> None:
        """End everything."""
        self._stopping = True
        for dialer in self._dialers:
            dialer.cancel()
        await asyncio.gather(*self._dialers, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for protocol in [*self._out.values(), *self._in]:
            protocol.close()

    def _accepted(self) -> PeerProtocol:
        protocol = PeerProtocol(
            self._guard,
            self.hello,
            [peer.name for peer in self._peers],
            lambda p, hello: None,
            self._on_message,
            self._left,
            self._on_reader,
            self._admit,
        )
        self._in[protocol] = None
        self._guard.call_later(GREETING_SECONDS, protocol.close_unless_greeted)
        return protocol

    def _left(self, protocol: PeerProtocol) -> None:
        self._in.pop(protocol, None)

    async def _dial(self, peer: PeerAddress) -> None:
        """Keep a connection to this peer, for ever. One that stands, and on which it does not greet, is none
        (``dialled_and_never_greeted``): its process may be stopped, its host may hang.
        """
        delay, silent = FIRST_DELAY, False
        while True:
            met, lost = asyncio.Event(), asyncio.Event()

            def greeted(protocol: PeerProtocol, hello: Hello, met: asyncio.Event = met) -> None:
                met.set()
                self._out[peer.name] = protocol
                self.greetings[peer.name] = hello
                self._on_link(peer.name, protocol.features)

            def gone(protocol: PeerProtocol, met: asyncio.Event = met, lost: asyncio.Event = lost) -> None:
                met.set()
                lost.set()
                if self._out.get(peer.name) is protocol:
                    del self._out[peer.name]
                    if not self._stopping:
                        self._on_link(peer.name, None)

            dialled = PeerProtocol(self._guard, self.hello, [peer.name], greeted, lambda p, m: None, gone)
            try:
                async with asyncio.timeout(LINKING_SECONDS):
                    await self._guard.create_connection(lambda d=dialled: d, peer.host, peer.port)  # type: ignore[misc]
                    await met.wait()
                await lost.wait()
                delay, silent = FIRST_DELAY, False
            except OSError as error:
                if isinstance(error, TimeoutError) and not silent:
                    silent = True  # and said once
                    tell(log, logging.WARNING, PeerMute(peer.name, LINKING_SECONDS))
                dialled.close()
                delay = min(delay * 2, LAST_DELAY)
            await asyncio.sleep(delay)
