"""The clients of both makes behind one face, so that a test is written once and holds for both."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, TypeVar

import aio_pika

from python_tests.harness.pika_clients import PERSISTENT
from recovery.dtx import with_aio_pika, with_pika
from txobserver.xid import Xid

WAIT = 60.0
"""Seconds for a coroutine, more than the patience of any client here"""

Result = TypeVar("Result")


class Client(ABC):
    """``do`` has the methods of a connection of its make. Branches if ``two_phase``, else plain transactions."""

    do: Any

    @abstractmethod
    def publish(self, queue: str, body: str, exchange: str = "") -> None:
        """To a queue, on its channel."""

    @abstractmethod
    def take(self, queue: str) -> str | None:
        """One message, acknowledged; None for an empty queue."""

    @abstractmethod
    def close(self) -> None:
        """End its connection; once more does no harm."""

    def work(self, source: str, targets: tuple[str, ...], name: str) -> str:
        """Take one message, and publish one that is called ``name`` to each target; returns what was taken."""
        taken = self.take(source)
        assert taken is not None
        for target in targets:
            self.publish(target, name)
        return taken

    def begun(self, xid: Xid, *work: Any) -> None:
        """A branch with this work."""
        self.do.tpc_begin(xid)
        self.work(*work)


class PikaClient(Client):
    """On pika."""

    def __init__(self, *hosts: str, two_phase: bool = True, **options: Any) -> None:
        make = with_pika.DtxConnection if two_phase else with_pika.TxConnection
        self.do = make(*hosts, **options)

    def publish(self, queue: str, body: str, exchange: str = "") -> None:
        self.do.channel.basic_publish(exchange, queue, body.encode(), PERSISTENT)

    def take(self, queue: str) -> str | None:
        method, _, body = self.do.channel.basic_get(queue)
        if method is None:
            return None
        self.do.channel.basic_ack(method.delivery_tag)
        return str(body.decode())

    def close(self) -> None:
        self.do.close()


class AioClient(Client):
    """On aio-pika, in an event loop in a thread of its own."""

    def __init__(self, *hosts: str, two_phase: bool = True, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aio-client", daemon=True)
        self._thread.start()
        make = with_aio_pika.AioDtxConnection if two_phase else with_aio_pika.AioTxConnection
        self._connection: Any = make(*hosts, **options)
        self.do = _Blocking(self._connection, self)
        try:
            self.run(self._connection.__aenter__())
        except Exception:
            self.close()
            raise

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """In its event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT)

    def publish(self, queue: str, body: str, exchange: str = "") -> None:
        message = aio_pika.Message(body.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        self.run(self._publish(exchange, queue, message))

    async def _publish(self, exchange: str, queue: str, message: aio_pika.Message) -> None:
        channel = self._connection.channel
        there = await channel.get_exchange(exchange, ensure=False) if exchange else channel.default_exchange
        await there.publish(message, queue)

    def take(self, queue: str) -> str | None:
        return self.run(self._take(queue))

    async def _take(self, queue: str) -> str | None:
        message = await (await self._connection.channel.get_queue(queue, ensure=False)).get(fail=False)
        if message is None:
            return None
        await message.ack()
        return str(message.body.decode())

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT)
        self._loop.close()


class _Blocking:
    """A connection whose coroutines are waited for."""

    def __init__(self, connection: Any, client: AioClient) -> None:
        self._connection = connection
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        if not asyncio.iscoroutinefunction(found):
            return found
        return lambda *arguments: self._client.run(found(*arguments))


MAKES: dict[str, type[PikaClient] | type[AioClient]] = {"pika": PikaClient, "aio-pika": AioClient}
