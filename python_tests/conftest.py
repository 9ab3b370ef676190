"""The cluster under test: one of our own, or the broker that TXHA_AMQP_URL names, with its user, password and vhost."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator

import pika
import pytest
from pika.exceptions import AMQPError

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from tests.support.interrupts import heed_interrupts
from tests.support.left_open import close_what_is_left as close_what_is_left

Start = Callable[..., LocalCluster]

heed_interrupts()


@pytest.fixture(scope="session")
def foreign_broker() -> str | None:
    """The url of a foreign broker that the suite shall run against; None if it starts a cluster of its own."""
    return os.environ.get("TXHA_AMQP_URL") or None


@pytest.fixture(scope="session")
def may_kill_nodes(foreign_broker: str | None) -> None:
    """For tests that kill and freeze nodes; skips them, with a reason, where the nodes are not ours."""
    if foreign_broker is not None:
        pytest.skip("TXHA_AMQP_URL names a broker that this suite did not start, so it cannot kill its nodes")


@pytest.fixture(scope="session")
def urls(foreign_broker: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Urls at which a running cluster serves clients, each of them as good as the others."""
    if foreign_broker is not None:
        yield [foreign_broker]
    else:
        with LocalCluster(tmp_path_factory.mktemp("suite") / "cluster", 3, "--set", "timing.lease_ttl=5") as cluster:
            yield cluster.urls


@pytest.fixture(scope="module")
def start(may_kill_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts a cluster of this module's own, with ``settings`` as ``--set`` takes them, or returns the running one."""
    running: dict[tuple[str, ...], LocalCluster] = {}

    def start(*settings: str) -> LocalCluster:
        if settings not in running:
            options = [word for setting in settings for word in ("--set", setting)]
            directory = tmp_path_factory.mktemp("killed") / "cluster"
            running[settings] = LocalCluster(directory, 3, *options).start()
        cluster = running[settings]
        for index in range(cluster.count):
            name = f"node-{index + 1}"
            if not cluster.processes.runs(name):
                cluster.start_node(name, settings=settings)
        wait_until(cluster.all_ready, 30, "all nodes ready", every=0.1)
        return cluster

    yield start
    for cluster in running.values():
        cluster.stop()


@pytest.fixture
def connect(urls: list[str]) -> Iterator[Callable[..., pika.BlockingConnection]]:
    """Opens connections, to the n-th node if asked, and closes them in the end."""
    opened = []

    def connect(node: int = 0) -> pika.BlockingConnection:
        parameters = pika.URLParameters(urls[node % len(urls)])
        parameters.heartbeat = 30
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


@pytest.fixture
def names() -> tuple[str, str, str]:
    """Names for three queues of this test's own."""
    tag = uuid.uuid4().hex[:8]
    return f"source-{tag}", f"left-{tag}", f"right-{tag}"
