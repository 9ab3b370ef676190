"""Connections that have not logged in, for tests of who receives them."""

from __future__ import annotations

from broker_plugin.amqp.arrivals import Arrivals
from broker_plugin.amqp.protocol.settings import AmqpSettings


class StillTime:
    """It is what the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def arrivals(most: int = 2000, of_one: int = 1000, time: StillTime | None = None, cluster: str = "c") -> Arrivals:
    """So many at a time, and of one address."""
    settings = AmqpSettings(cluster=cluster, max_unauthenticated=most, max_unauthenticated_per_address=of_one)
    return Arrivals(settings, time or StillTime())
