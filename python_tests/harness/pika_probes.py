"""Observers on pika: consumers and getters that drain the outputs all the time, and a counter of messages."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

import pika
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.history import History, Session
from python_tests.harness.load import Queues, message_of, place_of
from python_tests.harness.pika_clients import Client, parameters
from python_tests.harness.waiting import wait_until
from recovery.dtx.lost import LOST, connected

PREFETCH = 10


class Probe(Client):
    """Drains one output queue with acknowledgements, in stints with rests between them.

    While it rests no client holds anything of the queue, so what the queue counts is known exactly.
    """

    hidden = PREFETCH

    def __init__(self, queue: str, urls: Sequence[str], history: History, first: int = 0) -> None:
        super().__init__(f"probe-{queue}", urls, first)
        self._queue = queue
        self._history = history
        self._random = random.Random(queue)

    def work(self, connection: pika.BlockingConnection) -> None:
        """One stint after the other, until the connection goes."""
        while not self.stopping.is_set():
            self._stint(connection, time.monotonic() + self._random.uniform(0.3, 1.0))
            if not self.stopping.is_set():
                connection.sleep(self._random.uniform(0.1, 0.5))

    def drain(self) -> None:
        """Take everything that is there now. Raises ``LOST``."""
        self.stopping.set()
        self.url = self._urls[self._first % len(self._urls)]
        connection = connected(parameters(self.url))
        self._stint(connection, time.monotonic() + 0.5)
        connection.close()

    def _stint(self, connection: pika.BlockingConnection, end: float) -> None:
        channel = connection.channel()
        self._history.connected(self.name, place_of(self.url))
        session = self._history.watching(self._queue, self.name, self.hidden)
        clean = False
        try:
            self.receive(channel, session, end)
            channel.close()  # close-ok comes after everything that was sent before
            clean = True
        finally:
            self._history.watched(session, clean)

    def receive(self, channel: BlockingChannel, session: Session, end: float) -> None:
        """Record and settle until ``end``, or as soon as it is stopped and nothing comes."""
        raise AssertionError("a probe has something to look at")


class Consumer(Probe):
    """Is handed messages, and acknowledges several at a time: so some are in its hands at every kill."""

    def receive(self, channel: BlockingChannel, session: Session, end: float) -> None:
        """Until ``end``."""
        channel.basic_qos(prefetch_count=PREFETCH)
        held = last = 0
        for method, _, body in channel.consume(self._queue, inactivity_timeout=0.03):
            if method is not None:
                self._history.saw(session, message_of(body), method.redelivered)
                last, held = method.delivery_tag, held + 1
            if held and (held >= PREFETCH // 2 or method is None):
                channel.basic_ack(last, multiple=True)
                held = 0
            if time.monotonic() > end or (method is None and self.stopping.is_set()):
                break
        if held:
            channel.basic_ack(last, multiple=True)
        channel.cancel()


class Getter(Consumer):
    """In every other stint asks for one message at a time, and notes how many the broker says are left.

    That is slow. In the stints between, it consumes, so that the queue does not only grow.
    """

    hidden = 1

    def _stint(self, connection: pika.BlockingConnection, end: float) -> None:
        self.hidden = PREFETCH if self.hidden == 1 else 1
        super()._stint(connection, end)

    def receive(self, channel: BlockingChannel, session: Session, end: float) -> None:
        """Until ``end``."""
        if self.hidden == PREFETCH:
            super().receive(channel, session, end)
            return
        while time.monotonic() < end:
            asked = self._history.clock()
            method, _, body = channel.basic_get(self._queue)
            if method is None:
                self._history.counted(self._queue, 0, asked, self.name)
                if self.stopping.is_set():
                    return
                channel.connection.sleep(0.01)
                continue
            self._history.saw(session, message_of(body), method.redelivered)
            self._history.counted(self._queue, method.message_count, asked, self.name)
            channel.basic_ack(method.delivery_tag)


class Counter(Client):
    """Asks for the length of ``queues`` all the time."""

    def __init__(self, queues: Sequence[str], urls: Sequence[str], history: History) -> None:
        super().__init__("counter", urls)
        self._queues = queues
        self._history = history

    def work(self, connection: pika.BlockingConnection) -> None:
        """Until the connection goes."""
        self._history.connected(self.name, place_of(self.url))
        channel = connection.channel()
        while not self.stopping.is_set():
            for queue in self._queues:
                asked = self._history.clock()
                answer = channel.queue_declare(queue, passive=True)
                self._history.counted(queue, answer.method.message_count, asked, self.name)
            connection.sleep(0.02)


def declare(urls: Sequence[str], queues: Queues, patience: float = 10.0) -> None:
    """Make the queues. Nothing is purged: what an earlier run left behind shall be found. Raises TimeoutError."""

    def made() -> bool:
        try:
            with connected(parameters(urls[0])) as connection:
                channel = connection.channel()
                for queue in queues.all:
                    channel.queue_declare(queue, durable=True, arguments=dict(queues.arguments))
                return True
        except LOST:
            return False

    wait_until(made, patience, "the making of the queues")


def delete(urls: Sequence[str], queues: Queues) -> None:
    """Take the queues away again. Raises ``LOST``."""
    with connected(parameters(urls[0])) as connection:
        channel = connection.channel()
        for queue in queues.all:
            channel.queue_delete(queue)


def remaining(urls: Sequence[str], queues: Queues) -> dict[str, int]:
    """How many messages each queue holds, from the first node that answers; empty if none does."""
    for url in urls:
        try:
            with connected(parameters(url)) as connection:
                channel = connection.channel()
                return {queue: channel.queue_declare(queue, passive=True).method.message_count for queue in queues.all}
        except LOST:
            continue
    return {}
