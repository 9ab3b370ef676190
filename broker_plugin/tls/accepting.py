"""TlsDoor: a connection that has come and is to be encrypted, until its handshake is over.

Promise: each connection is encrypted by what is in force when it comes; and who does not finish the handshake keeps no
one out. A connection is counted from its first moment (``Handshakes``), its handshake has an end in time, and of those
that fail, one line in a while stands in the log, with the address and the reason.

It is accepted in plain and then upgraded. So its address is known when the handshake fails, and a reload holds for
every listener, whose own context could not be replaced.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from typing import Any, Protocol, cast

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.logs.formats import tell
from broker_plugin.logs.seldom import Seldom
from broker_plugin.logs.tls_events import TlsRefused
from broker_plugin.tls.peer_certificate import certificate_of

log = logging.getLogger("txha.tls")
HANDSHAKE_SECONDS = 10.0
"""In which a connection has to be encrypted."""
SHUTDOWN_SECONDS = 5.0
"""In which the other end of a connection that is closed says that it has heard so; then it is dropped."""
MOST_HELD = 1 << 18
"""Bytes that come behind a handshake before the connection's protocol is there: a record or two."""
TOO_LATE = f"it has not finished its handshake within {HANDSHAKE_SECONDS:g} s"
EXPIRED = "its certificate is not accepted: certificate has expired"
ContextInForce = Callable[[], ssl.SSLContext]
"""The one for a connection that comes now"""


class Handshakes(Protocol):
    """Who counts connections that are in their handshake, and closes those that have to make room (``abort``)."""

    def arrive(self, door: TlsDoor, transport: asyncio.BaseTransport) -> bool:
        """Whether it can stay until its handshake is over."""
        ...

    def leave(self, door: TlsDoor) -> None:
        """It is over, or the connection is gone. What is made then counts as what is accepted without TLS."""
        ...


class TlsRefusals:
    """What the log says of connections that could not be encrypted. ``what``: comes there, in words for people."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._seldom = Seldom()

    def refused(self, address: str, reason: str) -> None:
        """One line in a while, which counts the others."""
        if (unsaid := self._seldom.due()) is not None:
            tell(log, logging.WARNING, TlsRefused(self._what, address, reason, unsaid))


class TlsDoor(GuardedProtocol):
    """One connection. ``make``: the protocol of what is encrypted, which is made when it is.

    Nothing of TLS is begun for one that says nothing.
    """

    def __init__(
        self,
        guard: Guard,
        context: ContextInForce,
        make: Callable[[], GuardedProtocol],
        newcomers: Handshakes,
        refusals: TlsRefusals,
    ) -> None:
        self.guard = guard
        self._context = context
        self._make = make
        self._newcomers = newcomers
        self._refusals = refusals
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._said = bytearray()
        self._aborted = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It has come."""
        self._transport = cast(asyncio.Transport, transport)
        if self._newcomers.arrive(self, transport):
            self._deadline = self.guard.call_later(HANDSHAKE_SECONDS, self._give_up)
        else:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """The beginning of its handshake."""
        assert self._transport is not None
        begun, self._said = bool(self._said), self._said + data
        if not begun and not self._aborted:
            self._transport.pause_reading()
            self.guard.create_task(self._secure(self._transport))

    def connection_lost(self, error: Exception | None) -> None:
        """It has gone before its handshake began."""
        self._leave()

    def abort(self) -> None:
        """It has to make room."""
        self._aborted = True
        if self._transport is not None:
            self._transport.abort()

    def _give_up(self) -> None:
        if self._transport is not None and not self._aborted:
            self._refusals.refused(address_of(self._transport), TOO_LATE)
        self.abort()

    def _leave(self) -> None:
        self._newcomers.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    async def _secure(self, transport: asyncio.Transport) -> None:
        address, between = address_of(transport), _Between(self.guard)
        try:
            if transport.is_closing():
                return
            secured = await self.guard.loop.start_tls(
                transport,
                between,
                _Begun(self._context(), bytes(self._said)),
                server_side=True,
                ssl_handshake_timeout=2 * HANDSHAKE_SECONDS,  # the deadline comes first
                ssl_shutdown_timeout=SHUTDOWN_SECONDS,
            )
            if secured is None or secured.get_extra_info("ssl_object") is None:
                raise ConnectionResetError  # uvloop does not say so where the connection was aborted
        except OSError as error:  # of which ssl.SSLError is one
            if not self._aborted:
                self._refusals.refused(address, why(error))
            return
        finally:
            self._leave()
        if _has_expired_since(secured):
            self._refusals.refused(address, EXPIRED)
            secured.abort()
        else:
            between.hand_over(secured, self._make)


class _Begun(ssl.SSLContext):
    """The context in force for a handshake whose beginning has been read already.

    Loops read a connection from its first moment, whatever its protocol asks for, and take no bytes back.
    """

    _real: ssl.SSLContext
    _said: bytes

    def __new__(cls, real: ssl.SSLContext, said: bytes) -> _Begun:
        made = super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)
        made._real, made._said = real, said
        return made

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """As the real one's, after what was said."""
        incoming.write(self._said)
        return self._real.wrap_bio(incoming, outgoing, *args, **kwargs)


def _has_expired_since(secured: asyncio.Transport) -> bool:
    """Whether a session of TLS 1.2 is resumed, which is not verified again, whose client's certificate has expired."""
    if not secured.get_extra_info("ssl_object").session_reused:
        return False
    found = certificate_of(secured)
    return found is not None and found.not_after < time.time()


class _Between(GuardedProtocol):
    """The protocol of what is encrypted, from the end of the handshake until its own is there: some may have come."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._held = bytearray()
        self._lost = False
        self._secured: asyncio.Transport | None = None

    def data_received(self, data: bytes) -> None:
        """Kept."""
        if len(self._held) <= MOST_HELD:
            self._held += data

    def connection_lost(self, error: Exception | None) -> None:
        """It has gone, before or just when its own protocol came."""
        self._lost = True
        if self._secured is not None:
            cast(Any, self._secured.get_protocol()).connection_lost(error)

    def hand_over(self, secured: asyncio.Transport, make: Callable[[], GuardedProtocol]) -> None:
        """Make the connection's own protocol, which may give it to another one at once."""
        if self._lost or secured.is_closing() or len(self._held) > MOST_HELD:
            secured.abort()
            return
        self._secured = secured
        protocol = make()
        secured.set_protocol(protocol)
        protocol.connection_made(secured)
        if self._held and not secured.is_closing():
            cast(Any, secured.get_protocol()).data_received(bytes(self._held))


def dialled(context: ContextInForce) -> dict[str, Any]:
    """Options with which ``Guard.create_connection`` and ``Guard.connect_with`` make a connection that is encrypted.

    The other end is verified, and not yet who it is: see ``certificate_of``. Where it refuses this node's certificate,
    the connection may be lost only after it was made (TLS 1.3).
    """
    return {
        "ssl": context(),
        "server_hostname": "",
        "ssl_handshake_timeout": HANDSHAKE_SECONDS,
        "ssl_shutdown_timeout": SHUTDOWN_SECONDS,
    }


def address_of(transport: asyncio.BaseTransport) -> str:
    """The other end's; empty where the system says none."""
    found = transport.get_extra_info("peername")
    return f"{found[0]}:{found[1]}" if isinstance(found, tuple) and found else ""


def why(error: OSError) -> str:
    """A handshake has failed: why, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return _WORDS.get(error.reason or "", f"the handshake has failed: {error.reason or error}")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return TOO_LATE
    return "it has gone before its handshake was over"


_WORDS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it gives no certificate",
    "HTTP_REQUEST": "it speaks HTTP without TLS",
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it speaks no version of TLS that is accepted: TLS 1.2 is the oldest",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the authority of this node's certificate",
    "TLSV1_ALERT_PROTOCOL_VERSION": "it speaks no version of TLS that is accepted: TLS 1.2 is the oldest",
}
