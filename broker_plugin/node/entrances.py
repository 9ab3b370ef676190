"""Entrances: the listeners for clients, in plain and with TLS.

A client that comes with TLS is a newcomer from its first moment, as one without (``broker_plugin.amqp.arrivals``): it
is counted by its address, and who stays in the handshake makes room for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from broker_plugin.amqp.arrivals import Arrivals
from broker_plugin.amqp.server import UNKNOWN
from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.node.amqp_config import Amqp
from broker_plugin.node.descriptors import Room
from broker_plugin.tls.accepting import TlsDoor, TlsRefusals
from broker_plugin.tls.contexts import Asking, Contexts

CLIENTS_WAITING = 1024
"""Connections that the operating system keeps until the node accepts them."""


class Entrances:
    """``open``: for one more client, whose bytes it gets without TLS. ``contexts``: None where no client has TLS.

    ``certified``: other nodes introduce clients by their certificates, which are asked for then, whatever becomes of
    clients' own.
    """

    def __init__(
        self,
        guard: Guard,
        amqp: Amqp,
        contexts: Contexts | None,
        arrivals: Arrivals,
        room: Room,
        open: Callable[[], GuardedProtocol],
        certified: bool = False,
    ) -> None:
        self._guard = guard
        self._amqp = amqp
        self._contexts = contexts
        ask = certified and amqp.client_certificates == "ignore"
        self._asking: Asking = "ask" if ask else amqp.client_certificates
        self._arrivals = arrivals
        self._room = room
        self._refusals = TlsRefusals("clients")
        self.open = open
        self._servers: list[asyncio.Server] = []

    async def listen(self) -> None:
        """At the addresses of the configuration. Raises OSError."""
        amqp = self._amqp
        if amqp.plain:
            await self._listen(self.open, amqp.host, amqp.port)
        if amqp.tls_port is not None:
            await self._listen(self.open_secured, amqp.tls_host, amqp.tls_port)

    def open_secured(self) -> TlsDoor:
        """For one more client, which comes with TLS."""
        assert self._contexts is not None, "no listener has tls without the table tls"
        contexts, asking = self._contexts, self._asking
        return TlsDoor(self._guard, lambda: contexts.clients(asking), self.open, self, self._refusals)

    def close(self) -> None:
        """No client more."""
        for server in self._servers:
            server.close()

    # -- Handshakes of the doors

    def arrive(self, door: TlsDoor, transport: asyncio.BaseTransport) -> bool:
        """Whether it can stay until its handshake is over."""
        found = transport.get_extra_info("peername")
        address = str(found[0]) if found else UNKNOWN
        return self._room.admit(transport) and self._arrivals.arrive(door, address)

    def leave(self, door: TlsDoor) -> None:
        """Its handshake is over, or it is gone."""
        self._arrivals.leave(door)

    async def _listen(self, make: Callable[[], GuardedProtocol], host: str, port: int) -> None:
        self._servers.append(await self._guard.create_server(make, host, port, backlog=CLIENTS_WAITING))
