"""What pika raises of a host that is lost, in one place."""

from __future__ import annotations

from pika.adapters.blocking_connection import BlockingConnection
from pika.adapters.select_connection import SelectConnection
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.connection import Parameters
from pika.exceptions import AMQPError

LOST = (AMQPError, AMQPConnectorException, OSError)
"""What pika raises when a connection goes, or is not made in time."""


def connected(host: Parameters, kind: type[SelectConnection] | None = None) -> BlockingConnection:
    """A connection of this kind. Raises ``LOST``, and nothing else for a host that cannot be reached.

    Of a socket that is reset between two of pika's looks at it, pika raises ValueError.
    """
    try:
        return BlockingConnection(host, kind)
    except ValueError as error:
        raise ConnectionResetError(f"the connection was reset while it was made: {error}") from error
