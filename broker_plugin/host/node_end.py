"""The node's end of the connection to its host broker: tells it what the core tells a host, and takes its requests.

Promise: the broker is told everything in stream order and nothing twice; what it asks goes to the ledger in its order.
A node and its broker live and end together: without a broker the node would be a primary that serves no client. So a
node waits for its broker before it takes part in the cluster, and ends, in order, when the broker has gone
(``host_broker_is_killed``). A broker that does not read ends its node as well, before what waits for it fills the
memory (``host_broker_does_not_read``).

The lease: the broker may be stopped, and woken when another node is primary. So it is told until when it may speak to
its clients, and looks at the same clock before it does (``host_broker_wakes_up_late``). The node looks before it takes
a request, as for clients of its own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from broker_plugin.guard import Guard, GuardedProtocol, read_on
from broker_plugin.host.from_broker import Attach
from broker_plugin.host.from_node import FromNode, Welcome
from broker_plugin.host.remote_broker import RemoteBroker
from broker_plugin.host.wire import HOST_VERSION, MAX_ATTACH, MAX_MESSAGE, decode_from_broker, framed, messages_in
from broker_plugin.logs.events import BrokerAttached, BrokerRefused, BrokerWaited
from broker_plugin.logs.formats import tell

log = logging.getLogger("txha.host")
MAX_UNREAD = 256 << 20
"""Bytes that wait for a broker that does not read; with more the node ends."""
SOCKET_MODE = 0o600


class BrokerDoor:
    """Where a broker connects: the Unix socket ``path``. ``remote`` is that broker, for the core.

    ``address``: where the broker that is attached listens for clients. ``before_input`` is called before anything of
    the broker is taken, ``on_gone`` once, with a sentence, when the broker that was attached is there no more.
    """

    def __init__(self, guard: Guard, path: Path, cluster: str, node: str, on_gone: Callable[[str], None]) -> None:
        self.guard = guard
        self.path = path
        self.before_input: Callable[[], None] = lambda: None
        self.attached = asyncio.Event()
        self.address = ("", 0)
        self._welcome = Welcome(HOST_VERSION, cluster, node)
        self._on_gone = on_gone
        self._server: asyncio.Server | None = None
        self._broker: BrokerProtocol | None = None
        self.remote = RemoteBroker(self._say, self._say_encoded)
        self._gone = False

    # -- the connection

    async def listen(self) -> None:
        """Wait for brokers to connect; the socket is for this user alone. Raises OSError."""
        self.path.unlink(missing_ok=True)  # a node that was killed leaves it; the store's lock keeps a second node out
        before = os.umask(0o777 & ~SOCKET_MODE)
        try:
            self._server = await self.guard.create_unix_server(lambda: BrokerProtocol(self), str(self.path))
        finally:
            os.umask(before)
        tell(log, logging.INFO, BrokerWaited(str(self.path)))

    async def stop(self) -> None:
        """End the connection, and listen no more."""
        self._gone = True
        if self._server is not None:
            self._server.close()
            self.path.unlink(missing_ok=True)
        if self._broker is not None:
            self._broker.close()

    def attach(self, broker: BrokerProtocol, hello: Attach) -> None:
        """A broker's first message. Raises ValueError for one that is refused."""
        if hello.version != HOST_VERSION:
            raise ValueError(f"it speaks version {hello.version} of the host protocol and this node {HOST_VERSION}")
        if self._broker is not None or self._gone:
            raise ValueError("a broker is attached to this node already")
        self._broker = broker
        self.address = (hello.host, hello.port)
        broker.send(framed(self._welcome))
        tell(log, logging.INFO, BrokerAttached(hello.broker))
        self.attached.set()

    def lost(self, broker: BrokerProtocol, reason: str) -> None:
        """This connection has ended. If it is that of the broker, the node cannot go on."""
        if broker is self._broker and not self._gone:
            self._gone = True
            self._on_gone(reason)

    def set_reading(self, reading: bool) -> None:
        """Whether requests are read: a cluster that is behind takes none (``Primary.congested``)."""
        if self._broker is not None:
            self._broker.set_reading(reading)

    def _say(self, message: FromNode) -> None:
        self._say_encoded(framed(message))

    def _say_encoded(self, data: bytes) -> None:
        if self._broker is not None:
            self._broker.send(data)


class BrokerProtocol(GuardedProtocol):
    """One connection to the socket of a ``BrokerDoor``. What a turn of the loop brings is written with one call."""

    def __init__(self, door: BrokerDoor) -> None:
        self.guard = door.guard
        self._door = door
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._attached = False
        self._gathered: list[bytes] = []
        self._reason = "the host broker has closed its connection"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A process of this user has connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Requests, or parts of them."""
        if self._transport is None:
            return
        self._buffer += data
        self._door.before_input()
        try:
            for each in messages_in(self._buffer, MAX_MESSAGE if self._attached else MAX_ATTACH):
                message = decode_from_broker(each)
                if self._attached:
                    self._door.remote.take(message)
                elif isinstance(message, Attach):
                    self._door.attach(self, message)
                    self._attached = True
                else:
                    raise ValueError("it asks before it attaches")
        except ValueError as error:
            self._refuse(str(error))

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        self._transport = None
        self._door.lost(self, self._reason)

    def send(self, data: bytes) -> None:
        """Encoded messages, at the end of this turn of the loop."""
        if self._transport is None:
            return
        if not self._gathered:
            self.guard.call_soon(self._flush)
        self._gathered.append(data)

    def set_reading(self, reading: bool) -> None:
        """Whether requests are read."""
        read_on(self._transport, reading)

    def close(self) -> None:
        """End the connection, with what has been gathered."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        gathered, self._gathered = self._gathered, []
        if self._transport is None or not gathered:
            return
        self._transport.write(b"".join(gathered))
        unread = self._transport.get_write_buffer_size()
        if unread > MAX_UNREAD:
            self._refuse(f"the host broker does not read: {unread} bytes wait for it, and {MAX_UNREAD} are the most")

    def _refuse(self, reason: str) -> None:
        self._reason = f"the host broker was disconnected: {reason}"
        tell(log, logging.WARNING, BrokerRefused(reason))
        if self._transport is not None:
            self._transport.abort()
