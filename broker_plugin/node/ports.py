"""Ports that a node and its HTTP door are to listen on: whether they are free."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterable

from broker_plugin.node.config import ConfigError, NodeConfig


async def check_ports(config: NodeConfig) -> None:
    """Find a port of the node in use before anything is written. Raises ConfigError.

    The door's are not among them: a node lives without its door, and one that outlives its node keeps its ports.
    """
    loop = asyncio.get_running_loop()
    clients = [("AMQP clients", *address) for address in config.amqp.addresses]
    for what, host, port in (*clients, ("other nodes", config.peer.host, config.peer.port)):
        try:
            server = await loop.create_server(asyncio.Protocol, host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen for {what} on {host}:{port}: {_why(error)}") from error
        server.close()
        await server.wait_closed()


def why_shut(addresses: Iterable[tuple[str, int]]) -> str | None:
    """Why the HTTP door cannot listen on these addresses; None if it can. In a thread: a name may have to be looked
    up."""
    for host, port in addresses:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            socket.create_server((host, port), family=family).close()
        except OSError as error:
            return f"cannot listen for operators on {host}:{port}: {_why(error)}"
    return None


def _why(error: OSError) -> str:
    """Of an address that cannot be listened on: what is wrong with it, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return "the address is in use; choose another port"
    if error.errno == errno.EACCES:
        return "this user may not listen there; choose a port from 1024 on"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address; name one of its own as the host"
    if isinstance(error, socket.gaierror):
        return f"{error.strerror}; correct the host"
    return f"{error.strerror or error}; choose another address"
