"""Where an attack is aimed at, and by how much."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from python_tests.suites.attacks.wire import Wire

Sent = Callable[[], bytes]


@dataclass(frozen=True)
class NodePorts:
    """A node of ours as a neighbour on the machine sees it. ``admin``: its port for operators' commands;
    ``http``: that of its door."""

    name: str
    amqp: int
    peer: int
    admin: int
    token: str
    http: int
    directory: Path


@dataclass(frozen=True)
class Target:
    """A broker. ``amqp`` is the port that is attacked. ``scale``: 1 for the whole attack, less for a part of it.

    ``primary`` and ``backup`` are those of a cluster of ours, None where there is none; ``secret`` is its secret.
    """

    amqp: int
    scale: float = 1.0
    primary: NodePorts | None = None
    backup: NodePorts | None = None
    secret: bytes = b""
    user: str = "guest"
    password: str = "guest"
    notes: list[str] = field(default_factory=list)

    def times(self, count: int) -> int:
        """So many, by the scale; one at least."""
        return max(1, int(count * self.scale))

    def lasting(self, seconds: float) -> Iterator[None]:
        """One turn after the other, for so long by the scale."""
        deadline = time.monotonic() + seconds * self.scale
        while time.monotonic() < deadline:
            yield

    def dial(self, port: int | None = None) -> Wire:
        """A connection that has said nothing. Raises OSError."""
        return Wire(port or self.amqp)

    def login(self, port: int | None = None, channels: Sequence[int] = (1,), frame_max: int = 131072) -> Wire:
        """A connection of a client with these channels open. Raises OSError if it is refused."""
        wire = self.dial(port)
        wire.login(self.user, self.password, frame_max)
        for channel in channels:
            wire.method(channel, "channel.open")
            wire.expect("channel.open-ok")
        return wire

    def nodes(self) -> tuple[NodePorts, NodePorts]:
        """Primary and a backup of ours. Raises LookupError where the broker is another one."""
        if self.primary is None or self.backup is None:
            raise LookupError("this attack is aimed at a cluster of txha")
        return self.primary, self.backup
