"""How a connection between nodes ends on which TLS was not agreed on (``broker_plugin.node.link_tls``)."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from broker_plugin.node.link_tls import Dialling, LinkTls, Listening
from ha.messages.seals import LENGTH
from tests.support.guards import StrictGuard

CHALLENGE = LENGTH.pack(5) + b"words"


class Raw:
    """The connection below."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return bool(self.did)

    def close(self) -> None:
        self.did.append("close")

    def abort(self) -> None:
        self.did.append("abort")


class Inner:
    """What says and hears everything in clear."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.refused: list[str] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def refuse(self, reason: str) -> None:
        self.refused.append(reason)
        self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None


class Contexts:
    def accepting(self) -> ssl.SSLContext:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def dialling(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        return context


TLS = LinkTls(Contexts(), "c", True)


@pytest.mark.parametrize(("came", "refusals"), [(b"", 0), (CHALLENGE[:6], 0), (CHALLENGE, 1)])
def test_who_challenges_and_ends_the_connection_may_have_no_tls(came: bytes, refusals: int) -> None:
    """One of whom nothing has come may be down, behind a relay that takes connections for it."""
    raw: Any = Raw()
    inner: Any = Inner()
    proof: Any = None
    passage = Dialling(StrictGuard(), inner, TLS, proof, "b")
    passage.connection_made(raw)
    if came:
        passage.data_received(came)
    passage.connection_lost(None)
    assert len(inner.refused) == refusals and all("it may have no peer.tls" in each for each in inner.refused)


async def test_who_is_refused_in_the_handshake_can_read_why() -> None:
    """The alert is sent before the connection is closed; what is aborted sends nothing more."""
    raw: Any = Raw()
    inner: Any = Inner()
    proof: Any = None
    passage = Listening(StrictGuard(), inner, TLS, proof)
    passage.connection_made(raw)
    passage.data_received(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00")
    assert raw.written[:1] == b"\x15" and raw.did == ["close"] and len(inner.refused) == 1
