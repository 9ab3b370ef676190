"""What the clients do: which queues they use, how many they are, and what each transaction looks like."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

RETRY_SECONDS = 0.05


@dataclass(frozen=True)
class Queues:
    """The queues of a run: transactions consume from ``input`` and publish to ``outputs``."""

    input: str = "orders"
    outputs: tuple[str, ...] = ("billing", "stock", "shipping")
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of their declarations"""

    @property
    def all(self) -> tuple[str, ...]:
        """Every queue."""
        return (self.input, *self.outputs)

    def with_prefix(self, prefix: str, arguments: Mapping[str, Any]) -> Queues:
        """The same queues by other names and with other arguments."""
        return Queues(prefix + self.input, tuple(prefix + each for each in self.outputs), arguments)


@dataclass(frozen=True)
class Load:
    """How much load runs.

    ``think`` is how long a transaction stays open at least, in seconds. Two thirds of the workers then wait for the
    next multiple of ``beat`` before they commit, so that many commits are on their way at the same time.

    ``rollback``, ``single``, ``several``, ``large``: shares of transactions that are rolled back, that publish one
    message, a few to each output, or ``largest`` rounds of one to each output. The rest publish one to each output.
    """

    pika_workers: int = 16
    aio_connections: int = 4
    aio_channels: int = 8
    think: float = 0.2
    beat: float = 0.2
    rollback: float = 0.1
    single: float = 0.0
    several: float = 0.2
    large: float = 0.01
    largest: int = 50
    ahead: int = 100
    """Inputs that may wait for a worker"""
    backlog: int = 10_000
    """Messages that may wait in all queues: while there are more, no inputs are published"""
    queues: Queues = Queues()


@dataclass(frozen=True)
class Plan:
    """One transaction: what it publishes, how long it stays open, and how it ends."""

    queues: tuple[str, ...]
    pause: float
    """Seconds between its first publish and its end"""
    roll_back: bool
    again: bool
    """After the rollback: the same input again at once. Else it is given back to the queue"""

    def parts(self) -> list[tuple[str, ...]]:
        """The publishes in three parts, or as many as there are messages, between which it pauses."""
        size = max(1, len(self.queues) // 3)
        return [self.queues[at : at + size] for at in range(0, len(self.queues), size)]


class Planner:
    """Draws one worker's transactions."""

    def __init__(self, load: Load, name: str, number: int) -> None:
        self._load = load
        self._random = random.Random(name)
        self._in_step = number % 3 != 0

    def plan(self) -> Plan:
        """The next transaction."""
        load, rng = self._load, self._random
        outputs = load.queues.outputs
        lot = rng.random()
        rounds = load.largest if lot < load.large else rng.randint(2, 4) if lot < load.large + load.several else 1
        queues = tuple(queue for _ in range(rounds) for queue in rng.sample(outputs, len(outputs)))
        if lot > 1 - load.single:
            queues = queues[:1]
        end = time.monotonic() + load.think
        if self._in_step:
            end += -end % load.beat
        return Plan(queues, max(0.0, end - time.monotonic()), rng.random() < load.rollback, rng.random() < 0.5)

    def plan_again(self) -> Plan:
        """The same input once more: one that commits."""
        plan = self.plan()
        return Plan(plan.queues, plan.pause, False, False)


def place_of(url: str) -> str:
    """Host and port of a broker's URL, for the record: it shall hold no password."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 5672}"


def body_of(message: str) -> bytes:
    """What goes out for a message: its id, and something for it to carry."""
    return f"{message} {'x' * (len(message) * 37 % 400)}".encode()


def message_of(body: bytes) -> str:
    """The id of a message that came in."""
    return body.split(b" ", 1)[0].decode()
