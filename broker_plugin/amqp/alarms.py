"""Alarms: while memory or the disk is short, publishers are blocked, and clients that hold too much are closed.

What counts as too much memory is ``MemoryBudget``'s to say; this module acts on it. Consumers go on, and so do commits:
they are what frees memory. So a connection with a transaction or a branch under way is read until that has ended
(``Intake``), within its share of the memory; who takes more is closed with 406, and so is rolled back. Beyond the hard
mark the connection that holds most is closed, then the next one, until no more than that is held.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

from broker_plugin.amqp.protocol.connection import Connection
from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.memory_budget import ANSWERS, KINDS
from broker_plugin.logs.events import GreedyClientClosed, MemoryEnough, MemoryShort
from broker_plugin.logs.formats import tell
from broker_plugin.logs.seldom import Seldom

log = logging.getLogger("txha.amqp")
LEAST_CLOSED: Final = 1 << 20
"""Bytes: a connection that holds less is not closed for the memory of the node; it would help nothing."""
LOW_ON_MEMORY: Final = "low on memory"
LOW_ON_DISK: Final = "low on disk"
"""What clients are told, in RabbitMQ's words"""
CLOSED: Final = "closed"
"""A kind of line in the log"""


class ServedClient(Protocol):
    """One client's socket."""

    connection: Connection | None

    def abort(self) -> None:
        """Drop the client."""
        ...


class Alarms:
    """``clients``: all that are connected. ``block`` is told why publishers are blocked, None when they are no more.

    ``now`` gives the time in seconds, for the log.
    """

    def __init__(
        self,
        broker: EmbeddedBroker,
        clients: Collection[ServedClient],
        block: Callable[[str | None], object],
        now: Callable[[], float],
    ) -> None:
        self.on: dict[str, None] = {}
        self.closed = 0
        """Clients that were closed for what they held"""
        self._broker = broker
        self._clients = clients
        self._block = block
        self._seldom = Seldom(now)
        self._is_told = False
        """Whether the log says that memory is short"""

    def set(self, reason: str, on: bool) -> None:
        """The alarm of this reason is on, or is not any more."""
        if on != (reason in self.on):
            if on:
                self.on[reason] = None
            else:
                del self.on[reason]
            self._block(" & ".join(self.on) or None)

    def look(self, client: ServedClient | None = None) -> None:
        """Whether memory is short now. ``client``: the one that has just been read; None: look at all of them."""
        broker = self._broker
        memory, held = broker.memory, broker.held_bytes
        if held <= memory.marks.high and not memory.alarm:
            return
        before = memory.alarm
        if memory.look(held):
            if not before:
                self._begin()
            for each in list(self._clients) if client is None or not before else (client,):
                self._keep_to_share(each)
            if broker.held_bytes > memory.marks.hard:
                self._close_greediest()
        elif before:
            if self._is_told:
                tell(log, logging.INFO, MemoryEnough(held, memory.marks.low))
            self.set(LOW_ON_MEMORY, False)

    def _begin(self) -> None:
        self._tell_short()
        for client in self._clients:
            if client.connection is not None:
                client.connection.forget_cache()
                client.connection.weigh()
        self.set(LOW_ON_MEMORY, True)

    def _tell_short(self) -> None:
        unsaid = self._seldom.due(LOW_ON_MEMORY)
        self._is_told = unsaid is not None
        if unsaid is None:
            return
        memory = self._broker.memory
        kinds = [f"{kind} {size}" for kind, size in zip(KINDS, memory.kinds, strict=True) if size]
        work = self._broker.held_bytes - memory.held
        held = ", ".join([*kinds, f"open transactions {work}"])
        tell(log, logging.WARNING, MemoryShort(self._broker.held_bytes, memory.marks.high, held, unsaid))

    def _keep_to_share(self, client: ServedClient) -> None:
        connection, share = client.connection, self._broker.memory.marks.connection
        if connection is not None and connection.holder.total > share:
            self._close(
                client,
                connection,
                f"the node is short of memory and this connection holds {connection.holder.total} bytes of it, more "
                f"than the {share} that one may then (memory.connection_bytes)",
            )

    def _close_greediest(self) -> None:
        hard = self._broker.memory.marks.hard
        by_total = sorted(
            ((each.connection.holder.total, number, each, each.connection)
             for number, each in enumerate(self._clients)
             if each.connection is not None and each.connection.holder.total >= LEAST_CLOSED),
            reverse=True,
        )  # fmt: skip
        for total, _, client, connection in by_total:
            if self._broker.held_bytes <= hard:
                return
            self._close(
                client,
                connection,
                f"all connections together hold more than {hard} bytes of the node's memory (memory.hard_bytes) and "
                f"this one the most, {total}",
            )

    def _close(self, client: ServedClient, connection: Connection, why: str) -> None:
        """With a sentence; but a client that does not read what it is sent would not read that either."""
        holder = connection.holder
        total, unread = holder.total, holder.kinds[ANSWERS]
        if connection.ended or total < LEAST_CLOSED:
            return
        self.closed += 1
        if (unsaid := self._seldom.due(CLOSED)) is not None:
            tell(log, logging.WARNING, GreedyClientClosed(connection.peer, total, why, unsaid))
        connection.fail(AmqpError(406, why, hard=True), 0)
        if 2 * unread > total:
            connection.vanish()
            client.abort()
        connection.weigh()
