"""What a node does with a client's connection: serve it, pass it through to the primary, or refuse it.

A client that comes while no primary is known is kept waiting, with what it has sent so far, until there is one (or
patience ends); so a take-over looks like a slow connection, not like a refused one. That holds until the primary's
first word: one that was killed a moment ago may still accept a connection, and never serves it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import NamedTuple, cast

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.node.descriptors import Room

PATIENCE = 15.0
RETRY_SECONDS = 0.2
HELD_BYTES = 1 << 20
"""Of a client that waits for a primary: when it has sent more, nothing more is read from it."""


class Serve(NamedTuple):
    """This node is the active primary: hand the connection to this protocol."""

    factory: Callable[[], GuardedProtocol]


class PassOn(NamedTuple):
    """The primary listens for clients there."""

    host: str
    port: int


class Refuse(NamedTuple):
    """Backups refuse clients here."""


Verdict = Serve | PassOn | Refuse | None


class FrontDoor(GuardedProtocol):
    """A client's connection until it is known what becomes of it, and the client's half of a passed-on one.

    Each of those ``waiting`` may be passed on, which takes a connection more: ``room`` is left for all of these. Where
    there is none after all, since the node itself has opened more meanwhile, a client goes on waiting.
    """

    def __init__(
        self,
        guard: Guard,
        decide: Callable[[], Verdict],
        waiting: set[FrontDoor],
        room: Room,
    ) -> None:
        self.guard = guard
        self._decide = decide
        self._waiting = waiting
        self._room = room
        self._inside = False
        self._owes = False
        self._held = bytearray()
        self._transport: asyncio.Transport | None = None
        self._other: asyncio.Transport | None = None
        self._dialing = False
        self._answered = False
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connects."""
        self._transport = transport = cast(asyncio.Transport, transport)
        if not self._room.admit(transport):
            transport.abort()
            return
        self._inside = True
        self._room.pairs += 1
        self._owe(True)
        self._waiting.add(self)
        self._patience = self.guard.call_later(PATIENCE, transport.abort)
        self.reconsider()

    def data_received(self, data: bytes) -> None:
        """Pass on, or keep."""
        if self._other is not None:
            self._other.write(data)
        if not self._answered:
            self._held += data
            if len(self._held) > HELD_BYTES and self._transport is not None:
                self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """The client is gone."""
        self._waiting.discard(self)
        self._transport = None
        self._leave_room()
        if self._patience is not None:
            self._patience.cancel()
        if self._other is not None:
            self._other.close()

    def pause_writing(self) -> None:
        """The client reads slowly: so do we from the primary."""
        if self._other is not None:
            self._other.pause_reading()

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._other is not None:
            self._other.resume_reading()

    def reconsider(self) -> None:
        """Something has changed: is it known now what becomes of this connection?"""
        if self._transport is None or self._dialing or self._other is not None:
            return
        verdict = self._decide()
        if isinstance(verdict, Serve):
            self._hand_over(verdict.factory())
        elif isinstance(verdict, PassOn):
            self._dialing = True
            self.guard.create_task(self._dial(verdict))
        elif isinstance(verdict, Refuse):
            self._transport.abort()

    def _settled(self) -> None:
        self._waiting.discard(self)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _leave_room(self) -> None:
        if self._inside:
            self._owe(False)
            self._inside = False
            self._room.pairs -= 1

    def _owe(self, owes: bool) -> None:
        """Whether this client may yet take a second descriptor: told to the room, as long as the client is in it."""
        if self._inside and owes != self._owes:
            self._owes = owes
            self._room.owed += 1 if owes else -1

    def _socket(self, family: int, kind: int, protocol: int) -> socket.socket:
        made = self._room.open_socket(family, kind, protocol)
        self._owe(False)
        return made

    def _hand_over(self, protocol: GuardedProtocol) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None
        self._settled()
        self._leave_room()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._held:
            protocol.data_received(bytes(self._held))
        transport.resume_reading()

    async def _dial(self, target: PassOn) -> None:
        try:
            other = await self.guard.connect_with(self._socket, lambda: PrimarySide(self), target.host, target.port)
        except OSError:
            self._owe(True)
            self._dialing = False
            self._try_again()
            return
        self._dialing = False
        if self._transport is None or other.is_closing():
            other.close()
            return
        self._other = other
        other.write(bytes(self._held))
        self._transport.resume_reading()

    def _try_again(self) -> None:
        """The primary that this node knows of cannot be reached: it may be back soon, or another one known, or room."""
        self.guard.call_later(RETRY_SECONDS, self.reconsider)

    def from_primary(self, data: bytes) -> None:
        """Pass on to the client."""
        if not self._answered:
            self._answered = True
            self._held.clear()
            self._settled()
            if self._transport is not None:
                self._transport.resume_reading()
        if self._transport is not None:
            self._transport.write(data)

    def primary_lost(self) -> None:
        """The primary has closed the connection: so do we, unless it never said a word on it."""
        self._other = None
        self._owe(True)
        if self._transport is None:
            return
        if self._answered:
            self._transport.close()
        else:
            self._try_again()

    def primary_slow(self, slow: bool) -> None:
        """The primary reads slowly, or has caught up."""
        if self._transport is not None:
            if slow:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


class PrimarySide(GuardedProtocol):
    """The primary's half of a passed-on connection."""

    def __init__(self, door: FrontDoor) -> None:
        self.guard = door.guard
        self._door = door

    def data_received(self, data: bytes) -> None:
        """Towards the client."""
        self._door.from_primary(data)

    def connection_lost(self, error: Exception | None) -> None:
        """The primary is gone."""
        self._door.primary_lost()

    def pause_writing(self) -> None:
        """The primary reads slowly."""
        self._door.primary_slow(True)

    def resume_writing(self) -> None:
        """The primary has caught up."""
        self._door.primary_slow(False)
