"""Clients that push as hard as their sockets let them, and one that does not read what it gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pamqp import commands

from python_tests.benchmarks.load import CONFIRM, TX, Shape, batch_bytes
from tests.broker_plugin.amqp.raw_client import RawClient

MESSAGES = 10
"""In each batch"""

PLAIN, COMMITTED, ENDLESS = "outside transactions", "a commit behind every batch", "one transaction without a commit"
"""How a flood publishes"""


class Flood(threading.Thread):
    """Batch after batch, without waiting for any answer. ``mode``: see above; ``size``: of a body, in bytes.

    ``sent`` counts the messages of ``queue`` that the socket has taken.
    """

    def __init__(self, port: int, queue: str, mode: str, size: int) -> None:
        super().__init__(daemon=True)
        self.queue = queue
        self.sent = 0
        self._batch = batch_bytes(Shape(TX if mode == COMMITTED else CONFIRM, MESSAGES, size, (queue,)))
        self._ended = threading.Event()
        self._client = RawClient(port)
        self._client.send(1, commands.Channel.Open())
        self._client.next()
        if mode != PLAIN:
            self._client.send(1, commands.Tx.Select())
            self._client.next()

    def run(self) -> None:
        """Push, until told to stop."""
        while not self._ended.is_set():
            self._client.send_bytes(self._batch, timeout=60)
            self.sent += MESSAGES

    def stop(self) -> None:
        """No batch after the one that is being sent."""
        self._ended.set()

    def finish(self) -> None:
        """Until everything that was sent has been carried out."""
        self.join()
        self._client.send(1, commands.Channel.Close(200, "", 0, 0))
        while not isinstance((self._client.next(60) or (0, commands.Channel.CloseOk()))[1], commands.Channel.CloseOk):
            pass
        self._client.close()


class Progress:
    """Whether floods get anything more off. ``stalled``: nothing at all for half a second."""

    def __init__(self, floods: Sequence[Flood]) -> None:
        self._floods = floods
        self._sent, self._since = self._now(), time.monotonic()

    def stalled(self) -> bool:
        if self._now() != self._sent:
            self._sent, self._since = self._now(), time.monotonic()
        return time.monotonic() - self._since > 0.5

    def goes_on(self) -> bool:
        return self._now() > self._sent

    def _now(self) -> int:
        return sum(flood.sent for flood in self._floods)


@contextmanager
def flooding(*floods: Flood) -> Iterator[Progress]:
    """All of them at once, until the end; then everything that they sent is carried out."""
    for flood in floods:
        flood.start()
    try:
        yield Progress(floods)
    finally:
        for flood in floods:
            flood.stop()
        for flood in floods:
            flood.finish()


def deaf_consumer(port: int, queue: str) -> RawClient:
    """A client that consumes without any limit and reads nothing from now on."""
    client = RawClient(port)
    client.send(1, commands.Channel.Open())
    client.next()
    client.send(1, commands.Basic.Consume(0, queue, "deaf"))
    client.next()
    return client
