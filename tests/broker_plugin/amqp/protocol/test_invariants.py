"""Each kind of invariant of an AMQP connection fails on a state that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from broker_plugin.amqp.protocol.handshake import CLOSED, LEAVING
from tests.broker_plugin.amqp.conversation import HANDSHAKE, SESSION
from tests.broker_plugin.amqp.peer import Peer
from tests.support.invariants import unchecked
from txobserver.invariants import InvariantBroken

pytestmark = pytest.mark.plain


HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"


def put(target: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(target, name, value)


BROKEN: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "an unknown state": ("P12", lambda it, one: put(it, state="dreaming")),
    "closed with a session": ("P3", lambda it, one: put(it, state=CLOSED)),
    "channels of one that leaves": ("P3", lambda it, one: put(it, state=LEAVING)),
    "no channels allowed": ("P12", lambda it, one: put(it.channels, limit=0)),
    "more channels than allowed": ("P12", lambda it, one: put(it.channels, limit=1)),
    "tiny frames": ("P12", lambda it, one: put(it, frame_max=7)),
    "payloads of other frames": ("P12", lambda it, one: put(it, max_payload=7)),
    "too much of a frame": ("P12", lambda it, one: put(it, _partial=b"x" * 200_000)),
    "output counted otherwise": ("P12", lambda it, one: put(it, _output_bytes=-1)),
    "waiting counted otherwise": ("P12", lambda it, one: put(it, waiting_bytes=5)),
    "what is remembered counted otherwise": ("P12", lambda it, one: put(it, cached_bytes=it.cached_bytes + 1)),
    "bodies counted otherwise": ("P12", lambda it, one: put(it, content_bytes=3)),
    "a body counted otherwise": ("P12", lambda it, one: (put(one._content, _held=3), put(it, content_bytes=3))),
    "a holder that counts otherwise": ("P12", lambda it, one: it.holder.hold(0, 1)),
    "a holder below zero": ("P12", lambda it, one: it.holder.hold(2, -(1 << 30))),
    "a holder's sum": ("P12", lambda it, one: put(it.holder, held=it.holder.held + 1)),
    "unread answers below zero": ("P12", lambda it, one: put(it, unsent_bytes=-1)),
    "a channel of another number": ("P5", lambda it, one: put(one, number=9)),
    "a body below zero": ("P5", lambda it, one: put(one._content, _missing=-1)),
    "properties of no publish": ("P5", lambda it, one: put(one._content, properties=b"x")),
    "pieces of no publish": ("P5", lambda it, one: put(one._content, _pieces=[b"x"])),
    "a frame within a frame": ("P8", lambda it, one: put(one, _handling=True)),
    "an open channel whose work has ended": ("P3", lambda it, one: put(one.inner, closed=True)),
    "a frame that waits for nothing": (
        "P12",
        lambda it, one: (one._backlog.append((1, b"")), put(it, waiting_bytes=100)),
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_connection_is_found(kind: str) -> None:
    promise, do = BROKEN[kind]
    peer = Peer()
    for each in [*HANDSHAKE, *SESSION[:3]]:
        peer.connection.receive(each)
        peer.settle()
    peer.connection.check_invariants()
    do(peer.connection, peer.connection.channels.by_number[1])
    with pytest.raises(InvariantBroken) as found:
        peer.connection.check_invariants()
    assert found.value.promise == promise


def test_a_connection_is_looked_at_whenever_bytes_have_come() -> None:
    """Where that is on."""
    for on in (True, False):
        peer = Peer()
        for each in [*HANDSHAKE, *SESSION[:3]]:
            peer.connection.receive(each)
            peer.settle()
        put(peer.connection.channels.by_number[1], number=9)
        with nullcontext() if on else unchecked():
            if on:
                with pytest.raises(InvariantBroken, match="goes by 1"):
                    peer.connection.receive(HEARTBEAT)
            else:
                peer.connection.receive(HEARTBEAT)
