"""What a node does with a client's connection: serve it, pass it through to the primary, or refuse it.

A client that comes while no primary is known is kept waiting, with what it has sent so far, until there is one (or
the deadline comes); so a take-over looks like a slow connection, not like a refused one. That holds until the primary's
first word: one that was killed a moment ago may still accept a connection, and never serves it.

A client is passed on to the primary of one generation. When the record has another generation, no client of the former
one is served any more, and its primary may be stopped, and never say so: its clients' connections end here
(``passed_on_to_a_stopped_primary``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from socket import socket as Socket
from typing import NamedTuple, cast

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.node.descriptors import Room

DEADLINE_SECONDS = 15.0
RETRY_SECONDS = 0.2
HELD_BYTES = 1 << 20
"""Of a client that waits for a primary: when it has sent more, nothing more is read from it."""


class Serve(NamedTuple):
    """This node is the active primary: hand the connection to this protocol."""

    factory: Callable[[], GuardedProtocol]


class PassOn(NamedTuple):
    """The primary of this generation listens for clients there."""

    host: str
    port: int
    generation: int


class Refuse(NamedTuple):
    """Backups refuse clients here."""


Verdict = Serve | PassOn | Refuse | None


class FrontDoor(GuardedProtocol):
    """A client's connection until it is known what becomes of it, and the client's half of a passed-on one.

    ``doors`` are those that want to be told when something changes: all but those of clients that are served here.
    Each of those that wait may be passed on, which takes a connection more: ``room`` is left for all of these. Where
    there is none after all, since the node itself has opened more meanwhile, a client goes on waiting.
    """

    def __init__(self, guard: Guard, decide: Callable[[], Verdict], doors: set[FrontDoor], room: Room) -> None:
        self.guard = guard
        self._decide = decide
        self._doors = doors
        self._room = room
        self._inside = False
        self._owes = False
        self._held = bytearray()
        self._transport: asyncio.Transport | None = None
        self._other: PrimarySide | None = None
        self._answered = False
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client connects."""
        self._transport = transport = cast(asyncio.Transport, transport)
        if not self._room.admit(transport):
            transport.abort()
            return
        self._inside = True
        self._room.pairs += 1
        self._owe(True)
        self._doors.add(self)
        self._deadline = self.guard.call_later(DEADLINE_SECONDS, transport.abort)
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
        self._doors.discard(self)
        self._transport = None
        self._leave_room()
        self._cancel_deadline()
        if self._other is not None:
            self._other.close()

    def pause_writing(self) -> None:
        """The client reads slowly: so do we from the primary."""
        if self._other is not None:
            self._other.set_reading(False)

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._other is not None:
            self._other.set_reading(True)

    def reconsider(self) -> None:
        """Something has changed: is it known now what becomes of this connection?"""
        if self._transport is None or self._other is not None:
            return
        verdict = self._decide()
        if isinstance(verdict, Serve):
            self._hand_over(verdict.factory())
        elif isinstance(verdict, PassOn):
            self._other = PrimarySide(self, verdict)
        elif isinstance(verdict, Refuse):
            self._transport.abort()

    def look(self, generation: int) -> None:
        """The record has this generation now, or something else has changed."""
        if self._other is not None and self._other.target.generation != generation:
            other, self._other = self._other, None
            other.abandon()
            self._owe(True)
            if self._answered and self._transport is not None:
                self._transport.close()
        if not self._answered:
            self.reconsider()

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

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

    def _hand_over(self, protocol: GuardedProtocol) -> None:
        transport, self._transport = self._transport, None
        assert transport is not None
        self._doors.discard(self)
        self._cancel_deadline()
        self._leave_room()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if self._held:
            protocol.data_received(bytes(self._held))
        transport.resume_reading()

    # -- what the primary's side tells

    def socket(self, family: int, kind: int, protocol: int) -> Socket:
        """A second descriptor for this client. Raises OSError where only the node's own are left."""
        made = self._room.open_socket(family, kind, protocol)
        self._owe(False)
        return made

    def reached(self, primary: PrimarySide) -> None:
        """It is connected with the primary: pass on what has come so far."""
        if self._transport is None or primary is not self._other:
            primary.close()
            return
        primary.write(bytes(self._held))
        self._transport.resume_reading()

    def from_primary(self, data: bytes) -> None:
        """Pass on to the client."""
        if not self._answered:
            self._answered = True
            self._held.clear()
            self._cancel_deadline()
            if self._transport is not None:
                self._transport.resume_reading()
        if self._transport is not None:
            self._transport.write(data)

    def primary_lost(self) -> None:
        """The primary cannot be reached, or has closed the connection: so do we, unless it never said a word on it.

        Then it may be back soon, or another one known.
        """
        self._other = None
        self._owe(True)
        if self._transport is None:
            return
        if self._answered:
            self._transport.close()
        else:
            self.guard.call_later(RETRY_SECONDS, self.reconsider)

    def primary_slow(self, slow: bool) -> None:
        """The primary reads slowly, or has caught up."""
        if self._transport is not None:
            if slow:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()


class PrimarySide(GuardedProtocol):
    """The primary's half of a passed-on connection, from the first attempt to reach it on."""

    def __init__(self, door: FrontDoor, target: PassOn) -> None:
        self.guard = door.guard
        self.target = target
        self._door: FrontDoor | None = door
        self._transport: asyncio.Transport | None = None
        self._reached = self._closed = False
        self._dialling = self.guard.create_task(self._dial(door))

    async def _dial(self, door: FrontDoor) -> None:
        try:
            await self.guard.connect_with(door.socket, lambda: self, self.target.host, self.target.port)
        except OSError:
            door.primary_lost()
        else:
            self._reached = True
            door.reached(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The primary takes the connection."""
        self._transport = cast(asyncio.Transport, transport)
        if self._closed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Towards the client."""
        if self._door is not None:
            self._door.from_primary(data)

    def connection_lost(self, error: Exception | None) -> None:
        """The primary is gone."""
        self._transport = None
        if self._door is not None:
            self._door.primary_lost()

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
        if self._transport is not None:
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

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
