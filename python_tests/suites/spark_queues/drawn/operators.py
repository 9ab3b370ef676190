"""An operator at work on a query that crashes: looks at records and messages, puts them back, runs settle-spark."""

from __future__ import annotations

import contextlib

import pika

from python_tests.harness.waiting import wait_until
from python_tests.suites.spark_queues.drawn.brokers import HEARD, Brokers
from recovery.dtx.errors import Error
from recovery.dtx.lost import LOST, connected
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.settle import settle

SOME = 2
"""As many messages an operator takes out to look at them."""

SHORT = 0.5
"""Seconds for which an operator waits for a driver."""


class Operator:
    """An operator who takes messages out to look at them; each message is held on a connection of its own."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._hands: list[pika.BlockingConnection] = []

    def look_at(self, queue: str, count: int = 1) -> bool:
        """Take messages out to look at them; whether there were any soon, and the broker allowed it."""
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self._take(queue, count), HEARD, "a message")
            return True
        return False

    def _take(self, queue: str, count: int) -> bool:
        with contextlib.suppress(*LOST):
            connection = connected(pika.URLParameters(self._primary()))
            channel = connection.channel()
            found = [channel.basic_get(queue)[0] for _ in range(count)]
            if found[0] is not None:
                self._hands.append(connection)
                return True
            connection.close()
        return False

    def put_back(self) -> bool:
        """Everything; whether there was anything."""
        found = bool(self._hands)
        while self._hands:
            with contextlib.suppress(*LOST):
                self._hands.pop().close()
        return found

    def settle_spark(self, *give_up: str) -> str | None:
        """What ``txha dtx settle-spark`` does; the sentence with which it refuses."""
        try:
            settle(self._brokers.urls, give_up, SHORT)
        except (Error, PipelineError) as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _primary(self) -> str:
        name = self._brokers.primary()
        return self._brokers.url(name) if name is not None else self._brokers.urls[0]
