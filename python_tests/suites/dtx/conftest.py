"""A cluster, queues with some work in them, and clients of both makes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator

import pika
import pytest

from python_tests.conftest import Start
from python_tests.harness.cluster import LocalCluster
from python_tests.suites.dtx.clients import MAKES, Client
from txobserver.xid import Xid

Open = Callable[..., Client]
SETTINGS = ("timing.lease_ttl=2", "timing.prepare_timeout=20")
"""A lease that a busy machine does not end by itself, and patience with a backup that holds a vote up"""


@pytest.fixture(scope="module")
def cluster(start: Start) -> LocalCluster:
    """Three nodes that are well, for a module that leaves them so."""
    return start(*SETTINGS)


@pytest.fixture
def opened() -> Iterator[Callable[[str], Open]]:
    """Opens clients of any make, and closes them in the end."""
    clients: list[Client] = []

    def of(make: str) -> Open:
        def opened(*hosts: str, **options: object) -> Client:
            clients.append(MAKES[make](*hosts, **options))
            return clients[-1]

        return opened

    yield of
    for each in clients:
        each.close()


@pytest.fixture(params=MAKES)
def client(request: pytest.FixtureRequest, opened: Callable[[str], Open]) -> Open:
    """The same for each make in turn."""
    return opened(request.param)


class Desk:
    """A client that looks at queues from outside."""

    def __init__(self, url: str) -> None:
        self._url = url

    @contextlib.contextmanager
    def channel(self) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
        """On a connection of its own."""
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        yield connection.channel()
        connection.close()

    def fill(self, names: tuple[str, ...], *bodies: str) -> None:
        """Declare queues, and put messages into the first."""
        with self.channel() as channel:
            for name in names:
                channel.queue_declare(name, durable=True)
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish("", names[0], body.encode())

    def counts(self, *names: str) -> list[int]:
        """Messages that are ready, queue by queue."""
        with self.channel() as channel:
            return [channel.queue_declare(name, passive=True).method.message_count for name in names]

    def drained(self, name: str) -> list[str]:
        """Everything that is ready, taken out."""
        found = []
        with self.channel() as channel:
            while (got := channel.basic_get(name, auto_ack=True))[0] is not None:
                found.append(got[2].decode())
        return found


@pytest.fixture
def desk(cluster: LocalCluster, names: tuple[str, str, str]) -> Desk:
    """With two inputs in the first of three queues."""
    found = Desk(cluster.urls[0])
    found.fill(names, "1", "2")
    return found


@pytest.fixture
def xid() -> Xid:
    """A name that no branch has had."""
    return Xid(1, uuid.uuid4().bytes, b"broker")
