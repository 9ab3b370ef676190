"""Workers, feeder and probes on pika, each a thread with a connection of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pika
from pika.exceptions import AMQPError, ChannelClosedByBroker

from python_tests.history import FAILED, OK, ROLLED_BACK, Attempt, History

INPUT = "orders"
OUTPUTS = ("billing", "stock", "shipping")
RETRY_SECONDS = 0.05


class Client(threading.Thread):
    """Connects to any of ``ports``, and to the next one when the connection is lost, until it is stopped."""

    def __init__(self, name: str, ports: Sequence[int]) -> None:
        super().__init__(name=name, daemon=True)
        self.stopping = threading.Event()
        self._ports = list(ports)
        self._next = sum(map(ord, name))

    def run(self) -> None:
        """Work, whatever happens to connections."""
        while not self.stopping.is_set():
            try:
                connection = pika.BlockingConnection(self._parameters())
                try:
                    self.work(connection)
                finally:
                    if connection.is_open:
                        connection.close()
            except (AMQPError, OSError):
                self.stopping.wait(RETRY_SECONDS)

    def work(self, connection: pika.BlockingConnection) -> None:
        """The client's work on one connection."""
        raise AssertionError("a client has work to do")

    def _parameters(self) -> pika.ConnectionParameters:
        self._next += 1
        port = self._ports[self._next % len(self._ports)]
        return pika.ConnectionParameters(
            "127.0.0.1", port, heartbeat=30, socket_timeout=2, stack_timeout=6, blocked_connection_timeout=10
        )


class Worker(Client):
    """Takes an input, publishes to the three outputs, acknowledges the input, all in one transaction."""

    def __init__(self, name: str, ports: Sequence[int], history: History, think: float, rollback: float) -> None:
        super().__init__(name, ports)
        self._history = history
        self._think = think
        self._rollback = rollback
        self._random = random.Random(name)

    def work(self, connection: pika.BlockingConnection) -> None:
        """One transaction after the other."""
        channel = connection.channel()
        channel.tx_select()
        while not self.stopping.is_set():
            method, _, body = channel.basic_get(INPUT)
            if method is None:
                connection.sleep(0.05)
                continue
            attempt = self._history.begin(self.name, body.decode())
            try:
                self._transact(connection, channel, method.delivery_tag, attempt)
            except ChannelClosedByBroker as error:
                self._history.answer(attempt, FAILED if error.reply_code == 406 else ROLLED_BACK)
                raise
            finally:
                self._history.interrupted(attempt)

    def _transact(self, connection: pika.BlockingConnection, channel: Any, tag: int, attempt: Attempt) -> None:
        history = self._history
        for queue in OUTPUTS:
            history.publishing(attempt)
            channel.basic_publish("", queue, attempt.id.encode(), pika.BasicProperties(delivery_mode=2))
            connection.sleep(self._think / len(OUTPUTS))
        channel.basic_ack(tag)
        if self._random.random() < self._rollback:
            channel.tx_rollback()
            history.answer(attempt, ROLLED_BACK)
            channel.basic_nack(tag, requeue=True)
            channel.tx_commit()
        else:
            history.committing(attempt)
            channel.tx_commit()
            history.answer(attempt, OK)


class Feeder(Client):
    """Publishes inputs with confirms, at most ``ahead`` more than were worked off. An unconfirmed one is given up."""

    def __init__(self, ports: Sequence[int], history: History, ahead: int) -> None:
        super().__init__("feeder", ports)
        self._history = history
        self._ahead = ahead

    def work(self, connection: pika.BlockingConnection) -> None:
        """One input after the other."""
        channel = connection.channel()
        channel.confirm_delivery()
        while not self.stopping.is_set():
            if len(self._history.fed) - self._history.committed() > self._ahead:
                connection.sleep(0.02)
                continue
            name = f"order-{len(self._history.fed)}"
            self._history.fed[name] = False
            channel.basic_publish("", INPUT, name.encode(), pika.BasicProperties(delivery_mode=2))
            self._history.fed[name] = True


class Consumer(Client):
    """Drains one output queue all the time, with acknowledgements, and records everything that it is handed."""

    def __init__(self, queue: str, ports: Sequence[int], history: History) -> None:
        super().__init__(f"consumer-{queue}", ports)
        self._queue = queue
        self._history = history

    def work(self, connection: pika.BlockingConnection) -> None:
        """Until the connection goes."""
        channel = connection.channel()
        channel.basic_qos(prefetch_count=50)
        for method, _, body in channel.consume(self._queue, inactivity_timeout=0.1):
            if method is not None:
                self._history.saw(self._queue, body.decode(), method.redelivered)
                channel.basic_ack(method.delivery_tag)
            if self.stopping.is_set():
                return


class Counter(Client):
    """Asks for the length of the output queues all the time."""

    def __init__(self, ports: Sequence[int], history: History) -> None:
        super().__init__("counter", ports)
        self._history = history

    def work(self, connection: pika.BlockingConnection) -> None:
        """Until the connection goes."""
        channel = connection.channel()
        while not self.stopping.is_set():
            for queue in OUTPUTS:
                answer = channel.queue_declare(queue, passive=True)
                self._history.counted(queue, answer.method.message_count)
            connection.sleep(0.05)


def declare(ports: Sequence[int], patience: float = 10.0) -> None:
    """Make the queues."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", ports[0])) as connection:
                channel = connection.channel()
                for queue in (INPUT, *OUTPUTS):
                    channel.queue_declare(queue, durable=True)
                return
        except (AMQPError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def remaining(ports: Sequence[int]) -> dict[str, int]:
    """How many messages each queue holds, from the first port that answers."""
    for port in ports:
        try:
            with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
                channel = connection.channel()
                return {
                    queue: channel.queue_declare(queue, passive=True).method.message_count
                    for queue in (INPUT, *OUTPUTS)
                }
        except (AMQPError, OSError):
            continue
    return {INPUT: -1}


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Look again and again. Raises TimeoutError with ``what`` did not come about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come about within {seconds:.0f} s")
        time.sleep(0.02)
