"""What a node can do with a client's connection, and the primary's half of one that is passed on.

The primary sees where the connection comes from that it gets: from here. So this node introduces each client with the
client's own address (``broker_plugin.amqp.protocol.introductions``), where the primary knows what that is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from socket import socket as Socket
from typing import NamedTuple, Protocol, cast

from broker_plugin.amqp.protocol.introductions import (
    ASK,
    ClientWay,
    Introducer,
    Introduction,
    IntroductionRefused,
)
from broker_plugin.guard import Guard, GuardedProtocol, read_on
from broker_plugin.node.passing_tls import SecureWay, why_failed

NOWHERE = ("unknown", 0)
"""Where a client comes from of which the system says no address"""


class Serve(NamedTuple):
    """This node is the active primary: hand the connection to this protocol.

    It is made with where the client comes from (``Introduced``), if another node has said so.
    """

    factory: Callable[..., GuardedProtocol]


class PassOn(NamedTuple):
    """The primary of this generation listens for clients there.

    ``introducer`` says there where each client comes from, to node ``primary``; None where that would not understand
    it. Where both nodes can, clients go the ``secure`` way, also those that have come in clear.
    """

    host: str
    port: int
    generation: int
    introducer: Introducer | None = None
    primary: str = ""
    secure: SecureWay | None = None

    def takes(self, way: ClientWay) -> bool:
        """Whether a client that has come so can be passed on: one that came encrypted never goes on in clear."""
        return self.secure is not None or not way.encrypted

    def introduction(self, client: tuple[str, int] | None, way: ClientWay = ClientWay()) -> Introduction | None:  # noqa: B008
        """Of a client from there; none in clear of a client of which the system says no address."""
        if self.secure is not None:
            return Introduction(self.secure.introducer, self.primary, *(client or NOWHERE), way)
        if self.introducer is None or client is None:
            return None
        return Introduction(self.introducer, self.primary, *client)


class Refuse(NamedTuple):
    """Backups refuse clients here."""


Verdict = Serve | PassOn | Refuse | None


class ClientSide(Protocol):
    """The client's half of a connection that is passed on."""

    guard: Guard

    def socket(self, family: int, kind: int, protocol: int) -> Socket:
        """For the way to the primary. Raises OSError."""
        ...

    def reached(self, primary: PrimarySide) -> None:
        """It is connected with the primary, which knows where the client comes from."""
        ...

    def from_primary(self, data: bytes) -> None:
        """What the primary says to the client."""
        ...

    def primary_lost(self, reached: bool) -> None:
        """The primary cannot be reached, or has closed the connection."""
        ...

    def not_passed_on(self, primary: str, reason: str) -> None:
        """No connection with the primary is encrypted that should be; ``primary_lost`` follows."""
        ...

    def primary_slow(self, slow: bool) -> None:
        """The primary reads slowly, or has caught up."""
        ...


class PrimarySide(GuardedProtocol):
    """The primary's half of a passed-on connection, from the first attempt to reach it on.

    ``client``: where the client comes from, and the ``way`` it has come. ``_introduction``: that has to be told yet.
    """

    def __init__(
        self,
        door: ClientSide,
        target: PassOn,
        client: tuple[str, int] | None = None,
        way: ClientWay = ClientWay(),  # noqa: B008 -- a tuple
    ) -> None:
        assert target.takes(way), "what came encrypted goes on encrypted"
        self.guard = door.guard
        self.target = target
        self._introduction = target.introduction(client, way)
        self._door: ClientSide | None = door
        self._transport: asyncio.Transport | None = None
        self._reached = self._closed = self._wrong = False
        self._dialling = self.guard.create_task(self._dial(door))

    async def _dial(self, door: ClientSide) -> None:
        target, secure = self.target, self.target.secure
        where = (target.host, target.port) if secure is None else (secure.host, secure.port)
        options = {} if secure is None else secure.options()
        try:
            await self.guard.connect_with(door.socket, lambda: self, *where, **options)
        except OSError as error:
            if secure is not None and (why := why_failed(error)) is not None:
                door.not_passed_on(target.primary, why)
            door.primary_lost(reached=False)
        else:
            if self._wrong:
                return
            if self._introduction is None:
                self._begin()
            elif self._transport is not None:
                self._transport.write(ASK)

    def _begin(self, introduction: bytes = b"") -> None:
        """What the client says goes to the primary from now on."""
        self._introduction, self._reached = None, True
        self.write(introduction)
        if self._door is not None:
            self._door.reached(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The primary takes the connection."""
        self._transport = cast(asyncio.Transport, transport)
        if self._closed:
            self._transport.abort()
            return
        secure = self.target.secure
        if secure is not None and self._door is not None and (wrong := secure.wrong(transport)) is not None:
            self._wrong = True  # and is told nothing of the client, whatever it asks
            self._door.not_passed_on(self.target.primary, wrong)
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Towards the client; before that the primary asks who it is."""
        if self._wrong:
            return
        if self._introduction is not None:
            self._introduce(self._introduction, data)
        elif self._door is not None:
            self._door.from_primary(data)

    def _introduce(self, introduction: Introduction, data: bytes) -> None:
        try:
            line = introduction.take(data)
        except IntroductionRefused:
            if self._transport is not None:
                self._transport.abort()
            return
        if line is not None:
            self._begin(line)

    def connection_lost(self, error: Exception | None) -> None:
        """The primary is gone."""
        self._transport = None
        if self._door is not None:
            self._door.primary_lost(reached=True)

    def pause_writing(self) -> None:
        """The primary reads slowly."""
        if self._door is not None:
            self._door.primary_slow(True)

    def resume_writing(self) -> None:
        """The primary has caught up."""
        if self._door is not None:
            self._door.primary_slow(False)

    def write(self, data: bytes) -> None:
        """Towards the primary, once it is reached: until then the door keeps what comes."""
        if self._reached and self._transport is not None:
            self._transport.write(data)

    def set_reading(self, reading: bool) -> None:
        """Whether the client takes what the primary sends."""
        read_on(self._transport, reading)

    def close(self) -> None:
        """The client is gone: what it has sent still goes to the primary, if that is reached."""
        self._closed = True
        self._dialling.cancel()
        if self._transport is not None:
            self._transport.close()

    def abandon(self) -> None:
        """The primary is none any more: nothing goes to it, and nothing that it says is taken."""
        self._door = None
        self._closed = True
        self._dialling.cancel()
        if self._transport is not None:
            self._transport.abort()
