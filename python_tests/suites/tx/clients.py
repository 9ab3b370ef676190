"""One transactional client in two makes, pika and aio-pika, so that a test is written once and holds for both."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.exceptions import ChannelPreconditionFailed
from pika.exceptions import AMQPError, ChannelClosedByBroker

from python_tests.harness.history import FAILED, OK, UNKNOWN
from python_tests.harness.pika_clients import PERSISTENT, parameters
from python_tests.harness.waiting import wait_until
from recovery.dtx.lost import connected
from recovery.dtx.with_aio_pika import LOST

PATIENCE = 20.0
"""Seconds after which an answer is given up."""

Result = TypeVar("Result")


class Delivery(NamedTuple):
    """A message that a client was handed."""

    tag: int
    body: str
    redelivered: bool


class TxClient(ABC):
    """One connection with one channel. ``why`` is what the broker said when it refused a commit."""

    def __init__(self) -> None:
        self.why = ""
        self._received: list[Delivery] = []

    @abstractmethod
    def declare(self, queue: str) -> None:
        """``queue.declare`` of a durable queue."""

    @abstractmethod
    def select(self) -> None:
        """``tx.select``: from now on everything is in a transaction."""

    @abstractmethod
    def publish(self, queue: str, body: str) -> None:
        """``basic.publish`` to a queue."""

    @abstractmethod
    def get(self, queue: str) -> Delivery | None:
        """``basic.get``, to be acknowledged; None when the queue is empty."""

    @abstractmethod
    def consume(self, queue: str, prefetch: int) -> None:
        """``basic.consume`` with a prefetch count."""

    @abstractmethod
    def received(self, count: int) -> list[Delivery]:
        """What the consumer has been handed so far, ``count`` messages at least. Raises TimeoutError."""

    @abstractmethod
    def acknowledge(self, tag: int) -> None:
        """``basic.ack`` of one message."""

    @abstractmethod
    def commit(self) -> str:
        """``tx.commit``: OK, FAILED when the channel was closed with 406, UNKNOWN when the connection was lost."""

    @abstractmethod
    def close(self) -> None:
        """End the connection if there still is one."""


class PikaClient(TxClient):
    """On pika's blocking connection."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._connection = connected(parameters(url))
        self._channel = self._connection.channel()

    def declare(self, queue: str) -> None:
        self._channel.queue_declare(queue, durable=True)

    def select(self) -> None:
        self._channel.tx_select()

    def publish(self, queue: str, body: str) -> None:
        self._channel.basic_publish("", queue, body.encode(), PERSISTENT)

    def get(self, queue: str) -> Delivery | None:
        method, _, body = self._channel.basic_get(queue)
        return None if method is None else Delivery(method.delivery_tag, body.decode(), method.redelivered)

    def consume(self, queue: str, prefetch: int) -> None:
        def receive(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self._received.append(Delivery(method.delivery_tag, body.decode(), method.redelivered))

        self._channel.basic_qos(prefetch_count=prefetch)
        self._channel.basic_consume(queue, receive)

    def received(self, count: int) -> list[Delivery]:
        def enough() -> bool:
            self._connection.process_data_events(0)
            return len(self._received) >= count

        wait_until(enough, PATIENCE, f"{count} messages")
        return list(self._received)

    def acknowledge(self, tag: int) -> None:
        self._channel.basic_ack(tag)

    def commit(self) -> str:
        try:
            self._channel.tx_commit()
        except ChannelClosedByBroker as error:
            self.why = error.reply_text
            assert error.reply_code == 406, error
            return FAILED
        except (AMQPError, OSError):
            return UNKNOWN
        return OK

    def close(self) -> None:
        with contextlib.suppress(AMQPError, OSError):
            self._connection.close()


class AioClient(TxClient):
    """On aio-pika, in an event loop in a thread of its own."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aio-client", daemon=True)
        self._thread.start()
        self._do(self._connect(url))

    async def _connect(self, url: str) -> None:
        self._connection = await aio_pika.connect(url)
        self._channel = await self._connection.channel(publisher_confirms=False)
        self._transaction = self._channel.transaction()
        self._messages: dict[int, AbstractIncomingMessage] = {}

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE + 1)

    def _delivery(self, message: AbstractIncomingMessage) -> Delivery:
        assert message.delivery_tag is not None
        self._messages[message.delivery_tag] = message
        return Delivery(message.delivery_tag, message.body.decode(), bool(message.redelivered))

    def declare(self, queue: str) -> None:
        self._do(self._channel.declare_queue(queue, durable=True))

    def select(self) -> None:
        self._do(self._transaction.select())

    def publish(self, queue: str, body: str) -> None:
        message = aio_pika.Message(body.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        self._do(self._channel.default_exchange.publish(message, queue))

    def get(self, queue: str) -> Delivery | None:
        async def get() -> AbstractIncomingMessage | None:
            return await (await self._channel.get_queue(queue, ensure=False)).get(fail=False, timeout=PATIENCE)

        message = self._do(get())
        return None if message is None else self._delivery(message)

    def consume(self, queue: str, prefetch: int) -> None:
        async def receive(message: AbstractIncomingMessage) -> None:
            self._received.append(self._delivery(message))

        async def consume() -> None:
            await self._channel.set_qos(prefetch_count=prefetch)
            await (await self._channel.get_queue(queue, ensure=False)).consume(receive)

        self._do(consume())

    def received(self, count: int) -> list[Delivery]:
        wait_until(lambda: len(self._received) >= count, PATIENCE, f"{count} messages")
        return list(self._received)

    def acknowledge(self, tag: int) -> None:
        self._do(self._messages[tag].ack())

    def commit(self) -> str:
        try:
            self._do(self._transaction.commit(timeout=PATIENCE))
        except ChannelPreconditionFailed as error:
            self.why = str(error)
            return FAILED
        except TimeoutError:  # among LOST, but on a connection that stands it would be a fault of the broker's
            if self._connection.connected.is_set():
                raise
            return UNKNOWN  # a call that is made just as the connection is lost is not always told of it
        except LOST:
            return UNKNOWN
        return OK

    def close(self) -> None:
        with contextlib.suppress(*LOST):
            self._do(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()


MAKES: dict[str, type[PikaClient] | type[AioClient]] = {"pika": PikaClient, "aio-pika": AioClient}


def fill(client: TxClient, queues: Sequence[str], bodies: Sequence[str]) -> None:
    """Declare queues, and publish to the first in a transaction, so that it is known to have arrived."""
    for queue in queues:
        client.declare(queue)
    client.select()
    for body in bodies:
        client.publish(queues[0], body)
    assert client.commit() == OK


def drained(client: TxClient, queue: str) -> list[Delivery]:
    """Everything that a queue holds."""
    found = []
    while (delivery := client.get(queue)) is not None:
        found.append(delivery)
    return found
