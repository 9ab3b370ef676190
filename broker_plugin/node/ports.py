"""Ports that a node is to listen on: whether they are free, before anything is written."""

from __future__ import annotations

import asyncio
import errno
import socket

from broker_plugin.node.config import ConfigError, NodeConfig


async def check_ports(config: NodeConfig) -> None:
    """Find a port in use before anything is written. Raises ConfigError."""
    loop = asyncio.get_running_loop()
    operators = [] if config.http is None else config.http.addresses
    for what, host, port in (
        ("AMQP clients", config.amqp.host, config.amqp.port),
        ("other nodes", config.peer.host, config.peer.port),
        *(("operators", host, port) for host, port in operators),
    ):
        try:
            server = await loop.create_server(asyncio.Protocol, host, port)
        except OSError as error:
            raise ConfigError(f"cannot listen for {what} on {host}:{port}: {_why(error)}") from error
        server.close()
        await server.wait_closed()


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
