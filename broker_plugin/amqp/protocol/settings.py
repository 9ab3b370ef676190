"""What an AMQP listener can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FRAME_MIN_SIZE = 4096
"""Every peer must take frames of this size (AMQP 0-9-1, 4.2.3)."""


@dataclass(frozen=True)
class AmqpSettings:
    """Sizes in bytes, times in seconds. ``host`` is a loopback address; 0 as ``port`` takes a free one.

    ``cluster``, ``cluster_id``: its name and its random identity, told to clients unless they are empty.
    ``certificate_login_from``: what of a client's certificate is its user's name; None: no certificate stands for one.
    """

    host: str = "127.0.0.1"
    port: int = 5672
    cluster: str = ""
    cluster_id: str = ""
    users: dict[str, str] = field(default_factory=lambda: {"guest": "guest"}, repr=False)
    max_connections: int = 1024
    max_unauthenticated: int = 2000
    max_unauthenticated_per_address: int = 1000
    heartbeat: int = 60
    frame_max: int = 131072
    channel_max: int = 2047
    handshake_timeout: float = 10.0
    certificate_login_from: Literal["common_name", "distinguished_name", "dns", "email", "uri"] | None = "common_name"
    max_message_bytes: int = 128 << 20
    in_flight_bytes: int = 16 << 20
    """A connection is not read while more of what it sent has no outcome yet."""
    output_bytes: int = 4 << 20
    """A connection gets no more deliveries, and is not read, while more than this waits to be sent to it."""
    waiting_bytes: int = 4 << 20
    """A connection is not read while more waits behind a request that is not answered yet."""
