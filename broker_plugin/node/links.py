"""Connections between nodes: every node dials every other, and sends on the connection that it dialled.

A peer is *linked* while our connection to it stands, both ends have proved that they know the cluster's secret, and it
has greeted us on it (``broker_plugin.node.peer_protocol``). Of connections that come and have not proved themselves yet
there are few, and not for long: beyond UNGREETED the oldest makes room, so that strangers who keep silent keep no node
and no reader out.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.logs.formats import tell
from broker_plugin.logs.link_events import PeerMute, PeerNowhere
from broker_plugin.node.link_tls import LinkTls
from broker_plugin.node.peer_alarms import PeerAlarms
from broker_plugin.node.peer_protocol import Admit, OnReader, PeerProtocol, admit_all
from broker_plugin.node.refusals import PeerRefusals
from ha.messages.framing import Framer
from ha.messages.greeting import Hello
from ha.messages.proof import NONCE, PEER, DiallerProof, LinkSecrets, ListenerProof
from ha.messages.seals import LONG, Sealer, hash_of
from ha.messages.stream import Entries
from ha.messages.wire import Peer, encode

log = logging.getLogger("txha.links")
LARGE = 1 << 14
"""Bytes of a frame from which on it is not copied for each backup"""
SHARED = 4 << 20
"""Bytes of a frame up to which its hash is kept for the next backup, and the frame with it"""
_BIN16, _BIN32 = struct.Struct(">BH"), struct.Struct(">BI")
_NO_BYTES = b"\xc4\x00"
"""How msgpack writes an empty byte string; one of LONG bytes or more has 0xc5 or 0xc6 and its length in front"""
GREETING_SECONDS = 5.0
"""Within this time a peer that connects must prove itself and greet."""
UNGREETED = 64
"""Connections that have come and not greeted yet, at a time"""
LINKING_SECONDS = 10.0
"""Within this time a peer that is dialled must take the connection and greet; then it is dialled anew."""
UNACKNOWLEDGED_SECONDS = 10.0
"""For so long the kernel sends what a peer's kernel does not acknowledge, not for its usual quarter of an hour: the
connection may be one that a firewall between the two has forgotten, and dialled anew it goes through"""
FIRST_DELAY, LAST_DELAY = 0.05, 0.5
NO_MEMBER = "it is no member of the cluster any more"


@dataclass(frozen=True)
class PeerAddress:
    """Where a peer listens for other nodes."""

    name: str
    host: str
    port: int


def fresh_nonce() -> bytes:
    """One that cannot be guessed, and never comes again."""
    return secrets.token_bytes(NONCE)


@dataclass(frozen=True)
class LinkCredentials:
    """By what a node proves itself. ``nonce`` gives a new one for each connection; ``now`` seconds, for its log.

    ``tls``: None where links are in clear.
    """

    secrets: LinkSecrets
    nonce: Callable[[], bytes] = fresh_nonce
    now: Callable[[], float] = time.monotonic
    tls: LinkTls | None = None

    @property
    def in_clear(self) -> bool:
        """Whether anything may be said without TLS."""
        return self.tls is None or not self.tls.only

    def challenge(self, certified: bool = False) -> ListenerProof:
        """For a connection that has come; ``certified``: over TLS."""
        return ListenerProof(self.secrets, self.nonce(), certified)

    def answer(self) -> DiallerProof:
        """For one to a peer."""
        return DiallerProof(self.secrets.own, PEER, self.nonce())


class SealedStream:
    """Seals messages for peers. Of the stream, a frame that goes to several is hashed once, and copied for none."""

    def __init__(self) -> None:
        self._hashed = b"", b""

    def parts(self, sealer: Sealer, message: object) -> list[bytes]:
        """What is to be written."""
        if type(message) is not Entries or len(message.frame) < LONG:
            return [sealer.seal(encode(message))]
        frame = message.frame
        empty = encode(Entries(message.generation, message.session, message.commit, b""))
        size = len(frame)
        length = _BIN16.pack(0xC5, size) if size < 1 << 16 else _BIN32.pack(0xC6, size)
        hashed = b"" if isinstance(sealer, Framer) else self._hash(frame)
        found = sealer.seal_long(empty[: -len(_NO_BYTES)] + length, frame, hashed)
        return found if size >= LARGE else [b"".join(found)]

    def _hash(self, frame: bytes) -> bytes:
        last, known = self._hashed
        if last is frame:
            return known
        found = hash_of(frame)
        self._hashed = (frame, found) if len(frame) <= SHARED else (b"", b"")
        return found


class Links:
    """All connections of this node. Callbacks run in the event loop.

    ``on_link`` gets, for each peer, what both sides know when it is linked, and None when it is no more. ``alarms``
    tells peers of this node's, and knows theirs.
    """

    def __init__(
        self,
        guard: Guard,
        hello: Hello,
        credentials: LinkCredentials,
        peers: list[PeerAddress],
        on_link: Callable[[str, frozenset[str] | None], None],
        on_message: Callable[[str, Peer], None],
        on_reader: OnReader | None = None,
        admit: Admit = admit_all,
    ) -> None:
        self._guard = guard
        self.hello = hello
        self.greetings: dict[str, Hello] = {}
        self.alarms = PeerAlarms(self.send)
        self._credentials = credentials
        self._refusals = PeerRefusals(credentials.now)
        self._sealed = SealedStream()
        self._peers = {peer.name: peer for peer in peers}
        self._on_link = on_link
        self._on_message = on_message
        self._on_reader = on_reader
        self._admit = admit
        self._out: dict[str, PeerProtocol] = {}
        self._in: dict[PeerProtocol, None] = {}  # in the order of their coming, so that they end in that
        self._ungreeted: dict[PeerProtocol, None] = {}
        self._server: asyncio.Server | None = None
        self._dialers: dict[str, asyncio.Task[object]] = {}
        self._stopping = False

    async def start(self, host: str, port: int) -> None:
        """Listen, and begin to dial. Raises OSError if the port is taken."""
        self._server = await self._guard.create_server(self._accepted, host, port)
        self._dial_all()

    def follow(self, peers: Sequence[PeerAddress]) -> None:
        """These are the peers from now on: dial who is new, dial anew who has moved, and let go of the others."""
        wanted = {peer.name: peer for peer in peers}
        gone = [name for name, peer in self._peers.items() if wanted.get(name) != peer]
        self._peers.clear()
        self._peers.update(wanted)
        for name in gone:
            if (dialer := self._dialers.pop(name, None)) is not None:
                dialer.cancel()
            if (out := self._out.get(name)) is not None:
                out.close()
        for protocol in [each for each in self._in if each.peer is not None and each.peer not in wanted]:
            protocol.refuse(NO_MEMBER)
        if self._server is not None and not self._stopping:
            self._dial_all()

    def _dial_all(self) -> None:
        for name, peer in self._peers.items():
            if name not in self._dialers:
                self._dialers[name] = self._guard.create_task(self._dial(peer))

    def send(self, peer: str, message: object) -> None:
        """Send, if the peer is linked; else the message is lost, as it may be on any network."""
        protocol = self._out.get(peer)
        if protocol is not None and protocol.transport is not None and protocol.session is not None:
            transport = protocol.transport
            for part in self._sealed.parts(protocol.session.sealer, message):
                transport.write(part)

    def heard(self) -> set[str]:
        """From which peers bytes have come since the last call."""
        peers = set()
        for protocol in self._in:
            if protocol.heard and protocol.peer is not None:
                peers.add(protocol.peer)
            protocol.heard = False
        return peers

    def close_link(self, peer: str) -> None:
        """Nothing comes from this peer any more: end what was dialled, which is dialled anew, and what it has."""
        for protocol in [*self._out.values(), *self._in]:
            if protocol.peer == peer:
                protocol.close()

    async def stop(self) -> None:
        """End everything."""
        self._stopping = True
        for dialer in self._dialers.values():
            dialer.cancel()
        await asyncio.gather(*self._dialers.values(), return_exceptions=True)
        if self._server is not None:
            self._server.close()
        for protocol in [*self._out.values(), *self._in]:
            protocol.close()

    def _accepted(self) -> GuardedProtocol:
        protocol = PeerProtocol(
            self._guard,
            self.hello,
            self._credentials.challenge() if self._credentials.in_clear else None,
            self._peers,
            self._greeted,
            self._on_message,
            self._left,
            self._on_reader,
            self._admit,
            self._refusals,
            self.alarms.told,
        )
        self._in[protocol] = self._ungreeted[protocol] = None
        if len(self._ungreeted) > UNGREETED:
            oldest = next(iter(self._ungreeted))
            del self._ungreeted[oldest]
            oldest.refuse(f"{UNGREETED} others have come that have not proved who they are either")
        self._guard.call_later(GREETING_SECONDS, protocol.close_unless_greeted)
        tls = self._credentials.tls
        return protocol if tls is None else tls.accepted(self._guard, protocol, self._credentials.challenge(True))

    def _greeted(self, protocol: PeerProtocol, hello: Hello) -> None:
        self._ungreeted.pop(protocol, None)
        self.alarms.came(hello.node, protocol)

    def _left(self, protocol: PeerProtocol) -> None:
        self._in.pop(protocol, None)
        self._ungreeted.pop(protocol, None)
        if protocol.peer is not None:
            self.alarms.left(protocol.peer, protocol)

    async def _dial(self, peer: PeerAddress) -> None:
        """Keep a connection to this peer, for ever. One that stands, and on which it does not greet, is none
        (``dialled_and_never_greeted``): its process may be stopped, its host may hang.
        """
        delay, silent, refusals = FIRST_DELAY, False, PeerRefusals(self._credentials.now, peer.name)
        while True:
            met, lost = asyncio.Event(), asyncio.Event()

            def greeted(protocol: PeerProtocol, hello: Hello, met: asyncio.Event = met) -> None:
                met.set()
                self._out[peer.name] = protocol
                self.greetings[peer.name] = hello
                self._on_link(peer.name, protocol.features)
                self.alarms.linked(peer.name, protocol.features)

            def gone(protocol: PeerProtocol, met: asyncio.Event = met, lost: asyncio.Event = lost) -> None:
                met.set()
                lost.set()
                if self._out.get(peer.name) is protocol:
                    del self._out[peer.name]
                    self.alarms.unlinked(peer.name)
                    if not self._stopping:
                        self._on_link(peer.name, None)

            proof = self._credentials.answer() if self._credentials.in_clear else None
            dialled = PeerProtocol(
                self._guard, self.hello, proof, [peer.name], greeted, _ignore, gone, refusals=refusals
            )
            try:
                async with asyncio.timeout(LINKING_SECONDS):
                    made = self._made(dialled, peer.name)
                    _give_up_unacknowledged(await self._guard.create_connection(made, peer.host, peer.port))
                    await met.wait()
                await lost.wait()
                delay, silent = FIRST_DELAY, False
            except asyncio.CancelledError:  # it is no peer any more, or is elsewhere
                dialled.close()
                raise
            except (OSError, ValueError) as error:  # the second where the system cannot even look for such a host
                if isinstance(error, ValueError) and not silent:
                    silent = True
                    tell(log, logging.WARNING, PeerNowhere(peer.name, peer.host))
                if isinstance(error, TimeoutError) and not silent:
                    silent = True  # and said once
                    tell(log, logging.WARNING, PeerMute(peer.name, LINKING_SECONDS))
                dialled.close()
                delay = min(delay * 2, LAST_DELAY)
            await asyncio.sleep(delay)

    def _made(self, dialled: PeerProtocol, peer: str) -> Callable[[], GuardedProtocol]:
        """What makes the protocol of a connection to this peer."""
        credentials = self._credentials
        if (tls := credentials.tls) is None:
            return lambda: dialled
        return lambda: tls.dialled(self._guard, dialled, credentials.answer(), peer)


def _give_up_unacknowledged(transport: asyncio.BaseTransport) -> None:
    found: socket.socket | None = transport.get_extra_info("socket")
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNACKNOWLEDGED_SECONDS * 1000))


def _ignore(peer: str, message: Peer) -> None:
    """Messages come on the connection that their sender has dialled."""
