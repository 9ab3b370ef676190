"""The load's clients where the cluster does not come up: what failed is told, and nothing in its place."""

from __future__ import annotations

from python_tests.harness.aio_clients import AioWorkers
from python_tests.harness.failover import Clients
from python_tests.harness.load import Load
from python_tests.harness.pika_clients import Client


def test_clients_that_were_never_started_can_be_stopped() -> None:
    """A cluster that took no login ended the suite by "cannot join thread before it is started"."""
    clients = Clients(["amqp://127.0.0.1:1/"], Load())
    every: list[Client | AioWorkers] = [*clients._feeders, *clients._all_clients()]
    assert len(every) > 3
    for client in every:
        client.stop()
