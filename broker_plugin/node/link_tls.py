"""TLS on connections between nodes and with readers of the log: who begins it, and whose certificate counts for what.

    who dials with peer.tls = true     begins TLS at once, and drops the one step of a proof that may come in clear
    who listens with "accept"          challenges in clear, as a node without TLS does; takes TLS where it begins
    who listens with true              keeps silent; who has not begun TLS soon is told so (``ONLY_TLS``)
    who dials with "accept"            waits, and begins TLS where it is told so

So a node without TLS, one of an earlier version too, gets a clear word, and a cluster is switched over node by node.
What first comes from a dialler tells which it is: a handshake of TLS begins with 0x16, a step of a proof with 0.

Inside TLS everything goes on as it does without (``broker_plugin.node.peer_protocol``), under the other end's
certificate: a peer is the node that it names, and a reader's makes no peer.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.node.peer_protocol import PeerProtocol
from ha.messages.proof import ONLY_TLS, DiallerProof, ListenerProof
from ha.messages.seals import LENGTH
from recovery.certificate_names import CLIENT, NODE, CertificateName
from recovery.tls_channel import HANDSHAKE, ChannelRefused, ClearBeginning, TlsChannel

SILENT_SECONDS = 0.2
"""After this time a dialler that says nothing is told that this node speaks TLS only; it may still begin it."""


class LinkContexts(Protocol):
    """Where the contexts of new connections come from; they change when certificates are loaded anew."""

    def accepting(self) -> ssl.SSLContext:
        """That of a node which is dialled by other nodes and readers."""

    def dialling(self) -> ssl.SSLContext:
        """That of a node which dials another one."""


@dataclass(frozen=True)
class LinkTls:
    """What a node goes by. ``only``: it neither takes nor makes a connection without TLS."""

    contexts: LinkContexts
    cluster: str
    only: bool

    def accepted(self, guard: Guard, inner: PeerProtocol, proof: ListenerProof) -> Listening:
        """For a connection that comes; ``proof`` is for what is said inside TLS."""
        return Listening(guard, inner, self, proof)

    def dialled(self, guard: Guard, inner: PeerProtocol, proof: DiallerProof, peer: str) -> Dialling:
        """For one to this peer; ``proof`` is for what is said inside TLS."""
        return Dialling(guard, inner, self, proof, peer)

    def check_dialler(self, name: CertificateName | None) -> CertificateName:
        """Raises ValueError for a certificate that makes neither a node nor a reader of this cluster."""
        if name is None or name.kind == CLIENT:
            whose = "names neither a node nor a reader" if name is None else f"is that of the client {name.name}"
            raise ValueError(f"its certificate {whose} of cluster {self.cluster}: give it one with {self._uri()}")
        if name.cluster != self.cluster:
            raise ValueError(f"its certificate is of cluster {name.cluster}, and this node of {self.cluster}")
        return name

    def check_listener(self, name: CertificateName | None, peer: str) -> CertificateName:
        """Raises ValueError for a certificate that is not this peer's."""
        wanted = CertificateName(NODE, self.cluster, peer)
        if name != wanted:
            shown = "names no node" if name is None else f"says {name.uri}"
            raise ValueError(f"its certificate {shown}, and {wanted.uri} is dialled")
        return wanted

    def _uri(self) -> str:
        return f"the URI txha://{self.cluster}/node/NAME"


class LinkTransport(asyncio.Transport):
    """The transport of a connection as those see it who send on it: encrypted from when there is a ``channel``.

    ``owner`` gets to know of another protocol that takes it over.
    """

    def __init__(self, raw: asyncio.Transport, take_over: Callable[[Any], None]) -> None:
        super().__init__()
        self._raw = raw
        self._take_over = take_over
        self.channel: TlsChannel | None = None
        self.farewell = False
        """Whether something was just written that the other end is to read before the connection ends"""

    def write(self, data: Any) -> None:
        """Send."""
        if self.channel is None:
            self._raw.write(data)
        elif not self._raw.is_closing():
            try:
                self._raw.write(self.channel.encrypt(data))
            except ChannelRefused:
                self._raw.abort()

    def flush(self, farewell: bool = False) -> None:
        """Send what TLS itself has to say."""
        if self.channel is not None and (waiting := self.channel.outgoing()):
            self.farewell = farewell
            self._raw.write(waiting)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Another one takes the connection over."""
        self._take_over(protocol)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As of the connection below."""
        self._raw.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As of the connection below."""
        return self._raw.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """As of the connection below."""
        return self._raw.is_closing()

    def abort(self) -> None:
        """End it; behind the last word, where there is one."""
        self._raw.close() if self.farewell else self._raw.abort()

    close = abort


class Passage(GuardedProtocol):
    """Between the connection and ``inner``, which says and hears everything in clear."""

    def __init__(self, guard: Guard, inner: PeerProtocol, tls: LinkTls) -> None:
        self.guard = guard
        self._peer: PeerProtocol | None = inner
        self._inner: asyncio.Protocol = inner
        self._tls = tls
        self._transport: LinkTransport | None = None
        self._in_clear = False
        """Whether it has been settled that there is no TLS"""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """There is a connection; this end says first what it says."""
        self._transport = made = LinkTransport(cast(asyncio.Transport, transport), self._hand_over)
        self._inner.connection_made(made)
        if self._peer is not None and self._peer.transport is not None:
            self._made(made)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._in_clear:
            self._inner.data_received(data)
            return
        try:
            self._take(transport, data)
        except ValueError as error:
            transport.flush(farewell=True)
            self._refuse(str(error))

    def pause_writing(self) -> None:
        """As the connection below."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """As the connection below."""
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        transport, self._transport = self._transport, None
        if transport is not None and self._peer is not None and self._peer.transport is not None:
            self._lost(transport)
        self._inner.connection_lost(error)

    # -- for the two ends

    @abstractmethod
    def _made(self, transport: LinkTransport) -> None:
        """The connection stands."""

    @abstractmethod
    def _take(self, transport: LinkTransport, data: bytes) -> None:
        """Bytes have come. Raises ValueError."""

    def _lost(self, transport: LinkTransport) -> None:
        """Before it has come to anything, maybe."""

    @abstractmethod
    def _secured(self, name: CertificateName | None) -> None:
        """TLS stands, and this is in the other end's certificate. Raises ValueError where it does not count."""

    def _refuse(self, reason: str) -> None:
        if self._peer is not None:
            self._peer.refuse(reason)
        elif self._transport is not None:
            self._transport.abort()

    def _hand_over(self, protocol: asyncio.Protocol) -> None:
        self._inner, self._peer = protocol, None

    def _without_tls(self, data: bytes) -> None:
        self._in_clear = True
        self._inner.data_received(data)

    def _begin(self, transport: LinkTransport, context: ssl.SSLContext, listening: bool) -> None:
        transport.channel = TlsChannel(context, listening)
        if not listening:
            transport.channel.begin()
            transport.flush()

    def _through(self, transport: LinkTransport, channel: TlsChannel, data: bytes) -> None:
        """Raises ValueError."""
        before = channel.established
        said = channel.take(data)
        transport.flush()
        if channel.established and not before:
            self._secured(channel.name)
        if said and not transport.is_closing():
            self._inner.data_received(said)
        if channel.ended:
            transport.abort()


class Listening(Passage):
    """Of a connection that has come."""

    def __init__(self, guard: Guard, inner: PeerProtocol, tls: LinkTls, proof: ListenerProof) -> None:
        super().__init__(guard, inner, tls)
        self._proof = proof

    def _made(self, transport: LinkTransport) -> None:
        if self._tls.only:
            self.guard.call_later(SILENT_SECONDS, lambda: self._hint(transport))

    def _hint(self, transport: LinkTransport) -> None:
        if transport.channel is None and not transport.is_closing():
            transport.write(ONLY_TLS)

    def _take(self, transport: LinkTransport, data: bytes) -> None:
        if (channel := transport.channel) is None:
            if data[0] != HANDSHAKE:
                if self._tls.only:
                    raise ValueError("it does not begin TLS, and this node speaks nothing else (peer.tls)")
                self._without_tls(data)
                return
            self._begin(transport, self._tls.contexts.accepting(), listening=True)
            channel = cast(TlsChannel, transport.channel)
        self._through(transport, channel, data)

    def _secured(self, name: CertificateName | None) -> None:
        if self._peer is not None:
            self._peer.secured(self._proof, self._tls.check_dialler(name))


class Dialling(Passage):
    """Of a connection that this node has made to ``peer``."""

    def __init__(self, guard: Guard, inner: PeerProtocol, tls: LinkTls, proof: DiallerProof, peer: str) -> None:
        super().__init__(guard, inner, tls)
        self._proof = proof
        self._name = peer
        self._beginning = ClearBeginning()

    def _made(self, transport: LinkTransport) -> None:
        if self._tls.only:
            self._begin(transport, self._tls.contexts.dialling(), listening=False)

    def _take(self, transport: LinkTransport, data: bytes) -> None:
        rest = self._beginning.take(data)
        if not self._beginning.over:
            return
        if (channel := transport.channel) is None:
            said = self._beginning.message
            if said is None or LENGTH.pack(len(said)) + said != ONLY_TLS:
                self._without_tls((b"" if said is None else LENGTH.pack(len(said)) + said) + rest)
                return
            self._begin(transport, self._tls.contexts.dialling(), listening=False)
            channel = cast(TlsChannel, transport.channel)
        if rest:
            self._through(transport, channel, rest)

    def _lost(self, transport: LinkTransport) -> None:
        challenged = self._beginning.message is not None  # where nothing has come it may be down behind a relay
        if challenged and transport.channel is not None and not transport.channel.established:
            self._refuse('it ends the connection where TLS begins: it may have no peer.tls; give it "accept"')

    def _secured(self, name: CertificateName | None) -> None:
        if self._peer is not None:
            self._peer.secured(self._proof, self._tls.check_listener(name, self._name))
