"""What pika raises of a host that is lost, or that lets a user not in, in one place."""

from __future__ import annotations

import re

from pika.adapters.blocking_connection import BlockingConnection
from pika.adapters.select_connection import SelectConnection
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.connection import Parameters
from pika.exceptions import AMQPError, ProbableAccessDeniedError, ProbableAuthenticationError

from recovery.dtx.hosts import login_refused

LOST = (AMQPError, AMQPConnectorException, OSError)
"""What pika raises when a connection goes, or is not made in time."""


_CLOSED = re.compile(r"ConnectionClosedByBroker: \((403|530)\) '([^']*)'")
"""What the broker has said; a connection that is lost at the same stage is the same error for pika."""


def why_refused(error: Exception, host: Parameters) -> str | None:
    """The sentence for a login that the host has refused; None for every other error of ``LOST``."""
    if not isinstance(error, ProbableAuthenticationError | ProbableAccessDeniedError):
        return None
    found = _CLOSED.search(repr(error))
    if found is None:
        return None
    if isinstance(error, ProbableAuthenticationError):
        return login_refused(f"{host.host}:{host.port}", str(host.credentials.username))
    return f"{host.host}:{host.port} does not let the user into {host.virtual_host!r}: {found[2]}"


def connected(host: Parameters, kind: type[SelectConnection] | None = None) -> BlockingConnection:
    """A connection of this kind. Raises ``LOST``, and nothing else for a host that cannot be reached.

    Of a socket that is reset between two of pika's looks at it, pika raises ValueError.
    """
    try:
        return BlockingConnection(host, kind)
    except ValueError as error:
        raise ConnectionResetError(f"the connection was reset while it was made: {error}") from error
