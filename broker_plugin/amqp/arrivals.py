"""Arrivals: connections until they have logged in. Who has not is bounded in number, and one that a node of the cluster
passes on counts by its own address (``newcomers``, ``introductions``).

Those that a node serves itself and those that it passes on, or may pass on, are counted together.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Protocol

from broker_plugin.amqp.certified import certified_user
from broker_plugin.amqp.protocol.introductions import (
    Beginning,
    Carrier,
    ClientWay,
    IntroductionRefused,
    Introductions,
    Reception,
)
from broker_plugin.amqp.protocol.newcomers import Newcomers
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.logs.events import StrangersClosed
from broker_plugin.logs.formats import tell
from broker_plugin.logs.seldom import Seldom
from recovery.certificate_names import node_shown

log = logging.getLogger("txha.amqp")


class Arriving(Protocol):
    """A client's socket."""

    def abort(self) -> None:
        """Drop the client."""
        ...


class Arrivals:
    """``now`` gives the time in seconds.

    ``introductions``: which lines of other nodes are believed; none, unless a key is given.
    """

    def __init__(self, settings: AmqpSettings, now: Callable[[], float]) -> None:
        self.newcomers: Newcomers[Arriving] = Newcomers(
            settings.max_unauthenticated, settings.max_unauthenticated_per_address
        )
        self.introductions = Introductions("", ())
        self._settings = settings
        self._now = now
        self._seldom = Seldom(now)

    def arrive(self, client: Arriving, address: str) -> bool:
        """Whether one more client from there can stay until it has logged in."""
        return self._stays(client, self.newcomers.arrive(client, address, self._now()), address)

    def step(self, client: Arriving) -> None:
        """It has gone on in its handshake."""
        self.newcomers.step(client, self._now())

    def leave(self, client: Arriving) -> None:
        """It has logged in, or is gone."""
        self.newcomers.leave(client)

    def reception(self) -> Reception:
        """For one more connection, of which ``carrier`` is told when it stands."""
        return Reception(self.introductions, _nonce)

    def carrier(self, transport: asyncio.BaseTransport) -> Carrier:
        """What an introduction would come by."""
        secured = transport.get_extra_info("ssl_object")
        if secured is None:
            return Carrier()
        return Carrier(True, node_shown(secured.getpeercert(), self._settings.cluster))

    def way(self, transport: asyncio.BaseTransport) -> ClientWay:
        """How a client has come that no node introduces."""
        secured = transport.get_extra_info("ssl_object")
        return ClientWay() if secured is None else ClientWay(True, certified_user(transport, self._settings))

    def begins(self, client: Arriving, reception: Reception, data: bytes, peer: str) -> Beginning | None:
        """What comes of these bytes of a client that is received. None: it is dropped, and no introduction is true."""
        try:
            taken = reception.take(data)
        except IntroductionRefused as error:
            self._tell(peer, str(error))
            client.abort()
            return None
        if taken.introduced is not None:
            host = taken.introduced.host
            if not self._stays(client, self.newcomers.introduced(client, host, self._now()), host):
                client.abort()
                return None
        return taken

    def _stays(self, client: Arriving, closed: list[Arriving], address: str) -> bool:
        """Some have to make room; whether ``client`` itself need not."""
        if closed:
            self._tell(address, f"{self.newcomers.count} connections have not logged in")
        for each in closed:
            if each is not client:
                each.abort()
        return client not in closed

    def _tell(self, address: str, reason: str) -> None:
        """One line of the log now and then."""
        if self._seldom.due() is not None:  # the line counts all of them
            tell(log, logging.WARNING, StrangersClosed(address, self.newcomers.refused, reason))


def _nonce() -> bytes:
    """One that cannot be guessed, and never comes again."""
    return secrets.token_hex(16).encode()
