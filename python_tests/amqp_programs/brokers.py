"""The two brokers of a run, started for it on loopback and ended with it; or those that are there already."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from python_tests.benchmarks.peers import RabbitMq
from python_tests.processes import LocalCluster


@contextmanager
def both(rabbitmq_port: int | None, txha_port: int | None) -> Iterator[tuple[int, int]]:
    """The AMQP ports of RabbitMQ and of txha. RuntimeError if one of them does not start."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="amqp-programs-")))
        yield rabbitmq_port or _rabbitmq(stack, directory), txha_port or _txha(stack, directory)


@contextmanager
def rabbitmq(port: int | None) -> Iterator[int]:
    """The port of RabbitMQ alone."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="amqp-programs-")))
        yield port or _rabbitmq(stack, directory)


def _rabbitmq(stack: ExitStack, directory: Path) -> int:
    # With one scheduler its processes take turns, so that what AMQP leaves open comes out alike each time.
    peer = RabbitMq(directory / "rabbitmq", 1, {"RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1"})
    stack.callback(peer.stop)
    peer.start()
    return peer.ports[0]


def _txha(stack: ExitStack, directory: Path) -> int:
    return stack.enter_context(LocalCluster(directory / "txha", 1)).ports[0]
