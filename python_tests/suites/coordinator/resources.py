"""A database and a broker as a coordinator meets them, so that a test is written once and holds for both."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Sequence

import pika
import psycopg

from python_tests.harness.pika_clients import PERSISTENT, parameters
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.resources import Resource


class Place(ABC):
    """Somewhere that takes part: a table, or a queue, of this test's own."""

    def __init__(self) -> None:
        self.own = f"place_{uuid.uuid4().hex[:8]}"
        self._opened: list[Resource] = []

    def open(self) -> Resource:
        """Another connection of a coordinator, closed with this place."""
        self._opened.append(self._open())
        return self._opened[-1]

    def close(self) -> None:
        """Let go of everything that was opened."""
        for resource in self._opened:
            resource.close()

    @abstractmethod
    def _open(self) -> Resource: ...

    @abstractmethod
    def work(self, resource: Resource) -> None:
        """Something that can be seen when it is committed."""

    @abstractmethod
    def look(self) -> Sequence[str]:
        """What every other session sees of it."""


class Table(Place):
    """A table in PostgreSQL."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.dsn = dsn
        with psycopg.connect(dsn) as connection:
            connection.execute(f"CREATE TABLE {self.own} (word text)".encode())

    def _open(self) -> Postgresql:
        return Postgresql(self.dsn)

    def work(self, resource: Resource) -> None:
        assert isinstance(resource, Postgresql)
        resource.connection.execute(f"INSERT INTO {self.own} VALUES ('word')".encode())

    def look(self) -> list[str]:
        with psycopg.connect(self.dsn) as connection:
            return [word for (word,) in connection.execute(f"SELECT word FROM {self.own}".encode())]


class Queue(Place):
    """A queue of a broker."""

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__()
        self.urls = urls
        with pika.BlockingConnection(parameters(urls[0])) as connection:
            connection.channel().queue_declare(self.own, durable=True)

    def _open(self) -> Broker:
        return Broker(*map(parameters, self.urls))

    def work(self, resource: Resource) -> None:
        assert isinstance(resource, Broker)
        resource.channel.basic_publish("", self.own, b"word", PERSISTENT)

    def look(self) -> list[str]:
        with pika.BlockingConnection(parameters(self.urls[0])) as connection:
            channel, found = connection.channel(), []
            while (got := channel.basic_get(self.own))[0] is not None:
                found.append(got[2].decode())
            return found
