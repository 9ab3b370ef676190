"""The AMQP listener: asyncio protocols around the connections. Works on asyncio's own loop and on uvloop.

Everything that a turn of the event loop brings for a client is written with one call. A connection is not read while
it is congested (``Intake.congested``).
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import cast

from broker_plugin.amqp.alarms import Alarms
from broker_plugin.amqp.arrivals import Arrivals
from broker_plugin.amqp.certified import certified_user, introduced_user
from broker_plugin.amqp.parting import HEARD_SECONDS, heard
from broker_plugin.amqp.protocol.connection import Connection
from broker_plugin.amqp.protocol.handshake import History
from broker_plugin.amqp.protocol.introductions import Introduced, Reception
from broker_plugin.amqp.protocol.logins import AtOnce, Logins, PasswordChecks, Told, UserBook
from broker_plugin.amqp.protocol.reading import Reading
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.guard import Guard, GuardedProtocol

__all__ = ["AmqpServer", "AmqpSettings"]

TICK = 0.5
"""Seconds between looks at the clock."""
UNKNOWN = "unknown"
"""The address of a client of which the system says none: it is not taken for one of this machine's."""


class AmqpProtocol(GuardedProtocol):
    """One client's socket. Implements ``Wire`` and ``ServedClient``. Many methods: one for each thing that is reported.

    ``_opening``: how far its handshake has come, None when that is over. ``_reception``: of a client that may yet be
    introduced by another node (``introductions``), None when what comes is AMQP. ``introduced``: it has been already.
    """

    def __init__(self, server: AmqpServer, introduced: Introduced | None = None) -> None:
        self.guard = server.guard
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._flushing = False
        self._reading = True
        self._ended_at: float | None = None
        self._opening: str | None = ""
        self._introduced = introduced
        self._reception = server.arrivals.reception() if introduced is None else None
        self.connection: Connection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast(asyncio.Transport, transport)
        server, peer = self._server, transport.get_extra_info("peername")
        name, address = (f"{peer[0]}:{peer[1]}", str(peer[0])) if peer else ("", UNKNOWN)
        if self._introduced is not None:
            name, address = self._introduced.peer, self._introduced.host
        if self._reception is not None:
            self._reception.carrier = server.arrivals.carrier(transport)
        if not server.admit(self, address):
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=server.settings.output_bytes)
        self.connection = Connection(
            server.broker, server.settings, self, name, server.history(), address, server.logins
        )
        given = self._introduced
        said = server.settings
        self.connection.certified = certified_user(transport, said) if given is None else introduced_user(given, said)
        self.connection.block(server.blocked)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client."""
        connection = self.connection
        if connection is not None:
            if self._reception is not None:
                data = self._receive(connection, self._reception, data)
                if not data:
                    return
            waits = self._server.reading.arrived(self, data)
            if waits or connection.intake.congested or self._server.paused:
                self._set_reading(False)

    def _receive(self, connection: Connection, reception: Reception, data: bytes) -> bytes:
        """Another node may introduce the client first; what behind that is for the broker."""
        taken = self._server.arrivals.begins(self, reception, data, connection.peer)
        if taken is None or self._transport is None:
            return b""
        if taken.answer:
            self._transport.write(taken.answer)
        if taken.introduced is not None:
            connection.peer, connection.address = taken.introduced.peer, taken.introduced.host
            connection.certified = introduced_user(taken.introduced, self._server.settings)
        if reception.over:
            self._reception = None
        return taken.rest

    def take(self, data: bytes, most: int) -> bool:
        """These bytes have come; carry out so many frames at most. Whether more waits to be carried out."""
        connection = self.connection
        if connection is None:
            return False
        if self._transport is None:
            return self._vanish(connection, most)
        if self.guard.monitor is not None:
            self.guard.monitor.client = connection.peer
        self._server.before_input()
        connection.receive(data, most)
        self._server.on_activity()
        if self._opening is not None:
            self._go_on(connection)
        self._server.alarms.look(self)
        return connection.behind

    def taken(self) -> None:
        """All that has come is carried out."""
        self.read_on()

    def _go_on(self, connection: Connection) -> None:
        """It is a newcomer until its connection is open."""
        if connection.heartbeats.opened or connection.ended:
            self._opening = None
            self._server.arrivals.leave(self)
        elif connection.state != self._opening:
            self._opening = connection.state
            self._server.arrivals.step(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is closed. What the client held goes back when it is this client's turn, as for what one sends."""
        self._server.discharge(self)
        self._transport = None
        if self.connection is not None:
            self._server.reading.arrived(self, b"")

    def _vanish(self, connection: Connection, most: int) -> bool:
        """The client has gone. With thousands of channels that is all that a turn has room for."""
        if not most:
            return True
        self.connection = None
        connection.vanish()
        self._server.on_activity()
        return False

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        if self.connection is not None:
            self.connection.set_writable(False)
            self._set_reading(False)

    def resume_writing(self) -> None:
        """It does again."""
        if self.connection is not None:
            self._count_unsent(self.connection)
            self.connection.set_writable(True)

    def wake(self) -> None:
        """Write what there is when the turn ends."""
        if not self._flushing:
            self._flushing = True
            self.guard.call_soon(self._flush)

    def part_later(self) -> None:
        """The last word waits so long for the client, and no longer."""
        if self.connection is not None:
            self.guard.call_later(HEARD_SECONDS, self.connection.part)

    def read_on(self) -> None:
        """Read again, if nothing is in the way."""
        if self.connection is None:
            return
        if self._opening is not None:  # it may have gone on in a turn in which nothing came
            self._go_on(self.connection)
        if self._reading or self._server.paused:
            return
        if not self.connection.intake.congested and not self.connection.behind:
            self._set_reading(True)

    def tick(self, now: float) -> None:
        """Time passes. A client that does not take our last words is dropped without them."""
        connection = self.connection
        if connection is None:
            return
        if connection.unsent_bytes:
            self._count_unsent(connection)
        if not connection.ended:
            self._look_for_life(connection)
            connection.tick(now, self._reading)
        elif self._ended_at is None:
            self._ended_at = now
        elif now - self._ended_at > self._server.settings.handshake_timeout:
            self.abort()

    def _look_for_life(self, connection: Connection) -> None:
        """A client that takes nothing may be at work, or hang: one read, above all of heartbeats, and it waits again.

        Else a client that hangs is never given up, and keeps its messages (``a_consumer_that_hangs_is_given_up``).
        """
        waits = connection.behind or connection.draining or connection.intake.overfull or self._server.paused
        if not self._reading and not connection.writable and not waits:
            self._set_reading(True)

    def abort(self) -> None:
        """Drop the client."""
        if self._transport is not None:
            self._transport.abort()

    @property
    def parting(self) -> bool:
        """Whether the client has been told that this node serves no more, and has not answered that."""
        return self.connection is not None and self.connection.parting

    def _flush(self) -> None:
        self._flushing = False
        self._server.before_input()
        connection, transport = self.connection, self._transport
        if connection is None or transport is None:
            return
        data = connection.take_output()
        if data:
            transport.write(data)
            self._count_unsent(connection)
        if connection.ended:
            transport.close()
        elif transport.get_write_buffer_size() <= self._server.settings.output_bytes:
            connection.set_writable(True)

    def _count_unsent(self, connection: Connection) -> None:
        if self._transport is not None:
            connection.sent(self._transport.get_write_buffer_size())

    def _set_reading(self, reading: bool) -> None:
        if self._transport is None or reading == self._reading or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()


class AmqpServer:
    """Serves a broker's clients. ``start`` listens itself; a node shell may use ``connection_factory`` instead.

    ``before_input`` is called before what a client sends is taken, and before what it is told is sent, so that a broker
    that may serve no more can say so.
    ``history`` is asked for each client, which is told it. A primary serves no client of another generation.
    ``told`` is called with each login that is refused. ``users``: whom it lets in, those of the settings unless given;
    ``checks`` verifies their passwords.
    ``on_activity`` is called whenever a client has asked something of the broker, so that the ledger is looked after.
    """

    def __init__(
        self,
        guard: Guard,
        broker: EmbeddedBroker,
        settings: AmqpSettings,
        on_activity: Callable[[], object] = lambda: None,
        before_input: Callable[[], object] = lambda: None,
        history: Callable[[], History] = History,
        told: Told = lambda user, address, count, why: None,
        users: UserBook | None = None,
        checks: PasswordChecks = AtOnce(),  # noqa: B008 -- it has no state
    ) -> None:
        self.guard = guard
        self.logins = Logins(settings.users if users is None else users, told, checks)
        self.broker = broker
        self.settings = settings
        self.on_activity = on_activity
        self.before_input = before_input
        self.history = history
        now = lambda: guard.loop.time()  # noqa: E731
        self.arrivals = Arrivals(settings, now)
        self.paused = False
        self.opened = 0
        """Clients that have been admitted since the process began"""
        self.reading = Reading(broker.turn, guard.call_soon)
        self._protocols: set[AmqpProtocol] = set()
        self._listener: asyncio.Server | None = None
        self._ticker: asyncio.TimerHandle | None = None
        self.blocked: str | None = None
        """Why publishers are blocked"""
        self.alarms = Alarms(broker, self._protocols, self.block, now)

    @property
    def port(self) -> int:
        """The port that is listened on; the configured one while nothing is."""
        if self._listener is None or not self._listener.sockets:
            return self.settings.port
        return int(self._listener.sockets[0].getsockname()[1])

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._protocols)

    def connection_factory(self, introduced: Introduced | None = None) -> AmqpProtocol:
        """The protocol for one accepted client, for ``loop.create_server`` or a socket that was accepted elsewhere.

        ``introduced``: where it comes from, if another node has said so. Heartbeats run from the first client on.
        """
        self.keep_time()
        return AmqpProtocol(self, introduced)

    def keep_time(self) -> None:
        """Look at the clock from now on: for heartbeats, and for refused logins, which a backup has as well."""
        if self._ticker is None:
            self.logins.tick(self.guard.loop.time())
            self._ticker = self.guard.call_later(TICK, self._tick)

    async def start(self) -> None:
        """Listen. OSError if the port is taken, ValueError if the address is not a loopback address."""
        host = self.settings.host
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"{host} is not a loopback address; clients are served on loopback only")
        self._listener = await self.guard.create_server(self.connection_factory, host, self.settings.port)

    async def stop(self) -> None:
        """Listen no more and drop every client, when those that were closed have heard it or had time for that."""
        await heard(lambda: self._protocols)
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        for protocol in list(self._protocols):
            protocol.abort()
        if self._listener is not None:
            self._listener.close()
            await self._listener.wait_closed()
            self._listener = None

    def pause(self) -> None:
        """Read from no client: more is on its way to the disks than should be."""
        self.paused = True

    def resume(self) -> None:
        """Read again."""
        self.paused = False
        for protocol in self._protocols:
            protocol.read_on()

    def forget_output(self) -> None:
        """What no client has been sent yet is told to none (``stale_answers_of_a_primary_that_woke_up``)."""
        for protocol in self._protocols:
            if protocol.connection is not None:
                protocol.connection.forget_output()

    def block(self, reason: str | None) -> None:
        """Take no more publishes for this reason (None: take them again); clients are told."""
        self.blocked = reason
        for protocol in self._protocols:
            if protocol.connection is not None:
                protocol.connection.block(reason)

    def admit(self, protocol: AmqpProtocol, address: str) -> bool:
        """Whether one more client is served, from there."""
        if len(self._protocols) >= self.settings.max_connections:
            return False
        if not self.arrivals.arrive(protocol, address):
            return False
        self._protocols.add(protocol)
        self.opened += 1
        return True

    def discharge(self, protocol: AmqpProtocol) -> None:
        """A client has gone."""
        self._protocols.discard(protocol)
        self.arrivals.leave(protocol)

    def _tick(self) -> None:
        now = self.guard.loop.time()
        self._ticker = self.guard.call_later(TICK, self._tick)
        self.logins.tick(now)
        self.broker.tick(now)
        for protocol in list(self._protocols):
            protocol.tick(now)
        self.alarms.look()
