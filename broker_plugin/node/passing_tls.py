"""How a client is passed on over an encrypted connection, and when one may not be passed on at all.

Promise: what came encrypted goes on encrypted, to the primary and to no other node. A client's name is told to the
primary as this node has verified it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any, NamedTuple

from broker_plugin.amqp.protocol.introductions import Introducer
from broker_plugin.logs.formats import tell
from broker_plugin.logs.passing_events import PassingRefused
from broker_plugin.logs.seldom import Seldom
from broker_plugin.tls.accepting import dialled
from broker_plugin.tls.contexts import Contexts
from recovery.certificate_names import node_shown

log = logging.getLogger("txha.node")
IN_CLEAR = "it has come by TLS, and {primary} takes no clients that are passed on by TLS: see its amqp.tls_port"
"""Why a client of TLS is not passed on"""


def dialled_by(contexts: Contexts | None) -> Callable[[], dict[str, Any]] | None:
    """The options of a connection to the primary, by what is in force then; None for a node without certificate."""
    return None if contexts is None else lambda: dialled(contexts.dialling)


class PassingRefusals:
    """What the log says of clients that are not passed on: one line in a while for each reason's kind."""

    def __init__(self, seldom: Seldom | None = None) -> None:
        self._seldom = seldom or Seldom()

    def in_clear(self, address: str, primary: str) -> None:
        """A client that came encrypted would go on in clear."""
        self._tell("clear", address, primary, IN_CLEAR.format(primary=primary or "who serves it"))

    def failed(self, address: str, primary: str, reason: str) -> None:
        """The primary is reached, and no connection with it is encrypted; or another answers in its place."""
        self._tell("failed", address, primary, reason)

    def _tell(self, kind: str, address: str, primary: str, reason: str) -> None:
        if (unsaid := self._seldom.due(kind)) is not None:
            tell(log, logging.WARNING, PassingRefused(address, primary, reason, unsaid))


class SecureWay(NamedTuple):
    """Where the primary ``node`` takes clients over TLS that nodes pass on, and understands how each has come.

    ``options`` give those of a connection that is made now (``broker_plugin.tls.accepting.dialled``).
    """

    host: str
    port: int
    node: str
    cluster: str
    introducer: Introducer
    options: Callable[[], dict[str, Any]]

    def wrong(self, transport: asyncio.BaseTransport) -> str | None:
        """Why the other end of this connection is not that primary; None if it is."""
        secured = transport.get_extra_info("ssl_object")
        if secured is None:
            return "the connection is not encrypted"
        found = node_shown(secured.getpeercert(), self.cluster)
        if found == self.node:
            return None
        return f"its certificate is {'that of no node' if found is None else f'that of node {found}'} of the cluster"


def why_failed(error: OSError) -> str | None:
    """Why no connection to the primary is encrypted; None where it is only not reached, as one that is down."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"the handshake has failed: {error.reason or error}"
    return None
