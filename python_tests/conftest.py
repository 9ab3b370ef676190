"""The cluster under test: one of our own, or the broker that TXHA_AMQP_URL names (host and port)."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pika
import pytest
from pika.exceptions import AMQPError

from python_tests.processes import LocalCluster


@pytest.fixture(scope="session")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[int]]:
    """AMQP ports of a running cluster; every one of them serves clients."""
    url = os.environ.get("TXHA_AMQP_URL")
    if url:
        yield [urlsplit(url).port or 5672]
    else:
        with LocalCluster(tmp_path_factory.mktemp("suite") / "cluster", 3, "--set", "timing.lease_ttl=5") as cluster:
            yield cluster.ports


@pytest.fixture
def connect(ports: list[int]) -> Iterator[Callable[..., pika.BlockingConnection]]:
    """Opens connections, to the n-th node if asked, and closes them in the end."""
    opened = []

    def connect(node: int = 0) -> pika.BlockingConnection:
        parameters = pika.ConnectionParameters("127.0.0.1", ports[node % len(ports)], heartbeat=30)
        opened.append(pika.BlockingConnection(parameters))
        return opened[-1]

    yield connect
    for connection in opened:
        with contextlib.suppress(AMQPError, OSError):
            connection.close()


@pytest.fixture
def queues(connect: Callable[..., pika.BlockingConnection]) -> Iterator[list[str]]:
    """Three durable queues of this test's own."""
    names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("one", "two", "three")]
    channel = connect().channel()
    for name in names:
        channel.queue_declare(name, durable=True)
    yield names
    channel = connect().channel()
    for name in names:
        channel.queue_delete(name)
