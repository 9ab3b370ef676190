"""Listeners for clients beside the node's own, which calls open and close by name; the node's file has the addresses.

A closed one takes no new connection. Those that it has taken stay.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from broker_plugin.guard import Guard, GuardedProtocol
from broker_plugin.logs.events import ListenerNotOpen
from broker_plugin.logs.formats import tell
from broker_plugin.node.calls.actions import ActionContext, ActionFailed
from txobserver.actions import SetListener

log = logging.getLogger("txha.calls")
BACKLOG = 1024
"""Connections that the operating system keeps until the node accepts them."""


class ListenerAddress(NamedTuple):
    """Where a listener is opened, and whether its clients come with TLS."""

    host: str
    port: int
    tls: bool = False


class Listeners:
    """NodeAction of ``listener``. ``make``: for one more client, None before the node takes any; ``make_secured``: for
    one that comes with TLS; ``retry``: seconds between two attempts at the start."""

    def __init__(self, guard: Guard, addresses: Mapping[str, ListenerAddress], retry: float) -> None:
        self.make: Callable[[], GuardedProtocol] | None = None
        self.make_secured: Callable[[], GuardedProtocol] | None = None
        self._guard = guard
        self._addresses = addresses
        self._retry = retry
        self._open: dict[str, asyncio.Server] = {}
        self._wanted: set[str] = set()
        self._opening: set[str] = set()
        """Those for which a task tries again and again"""
        self._stopped = False
        self._said: dict[str, str] = {}
        """Why a listener could not be opened again since the node has started"""

    @property
    def opened(self) -> list[str]:
        """The names of those that are open."""
        return sorted(self._open)

    def initial(self, name: str) -> msgspec.Struct:
        """Closed."""
        self._address(name)
        return SetListener(False)

    async def run(self, name: str, arguments: SetListener, context: ActionContext) -> None:
        """Open or close it. What cannot be opened when a call is undone is opened later, as at a start: it may not have
        been open before either (``undone_where_the_port_is_taken``)."""
        if not arguments.open:
            self._wanted.discard(name)
            server = self._open.pop(name, None)
            if server is not None:
                server.close()
            return
        self._wanted.add(name)
        if context.undo:
            self._address(name)
            self._open_later(name)
        else:
            await self._listen(name)

    def restore(self, name: str, arguments: SetListener) -> None:
        """Open it again, as often as it takes: a port that another program has does not keep the node from starting."""
        if arguments.open:
            self._wanted.add(name)

    def start(self) -> None:
        """Clients can be taken from now on."""
        for name in sorted(self._wanted):
            self._open_later(name)

    def amiss(self) -> dict[str, str]:
        """Those that cannot be opened again."""
        return {name: why for name, why in self._said.items() if name in self._wanted and name not in self._open}

    def stop(self) -> None:
        """Close all."""
        self._stopped = True
        for server in self._open.values():
            server.close()
        self._open.clear()

    def _open_later(self, name: str) -> None:
        if name not in self._opening:
            self._opening.add(name)
            task = self._guard.create_task(self._until_open(name))
            self._guard.when_done(task, lambda _: self._opening.discard(name))

    async def _until_open(self, name: str) -> None:
        while name in self._wanted and not self._stopped:
            try:
                await self._listen(name)
                return
            except ActionFailed as error:
                said = str(error)
                if self._said.get(name) != said:
                    self._said[name] = said
                    tell(log, logging.WARNING, ListenerNotOpen(name, said))
            await asyncio.sleep(self._retry)

    async def _listen(self, name: str) -> None:
        host, port, tls = self._address(name)
        if name in self._open:
            return
        make = self.make_secured if tls else self.make
        if make is None or self._stopped:
            raise ActionFailed("this node takes no clients at the moment")
        try:
            server = await self._guard.create_server(make, host, port, backlog=BACKLOG)
        except (OSError, UnicodeError) as error:  # the second: a host that is no name
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            raise ActionFailed(
                f"listener {name!r} cannot be opened at {host}:{port}: {reason}; give it another address in "
                f"listeners.{name} of this node's configuration"
            ) from error
        if self._stopped or name not in self._wanted or name in self._open:
            server.close()
        else:
            self._open[name] = server

    def _address(self, name: str) -> ListenerAddress:
        found = self._addresses.get(name)
        if found is None:
            raise ActionFailed(
                f"this node's configuration has no listener {name!r}: add listeners.{name} with host and port, and "
                "start the node again"
            )
        return found
