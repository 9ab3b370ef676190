"""Workers on aio-pika: many channels on a few connections, in one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractTransaction
from aio_pika.exceptions import AMQPError, ChannelPreconditionFailed

from python_tests.history import FAILED, OK, ROLLED_BACK, Attempt, History
from python_tests.pika_clients import INPUT, OUTPUTS, RETRY_SECONDS

LOST = (AMQPError, OSError, asyncio.TimeoutError, RuntimeError)
"""What aio-pika raises when a connection goes in the middle of something."""


class AioWorkers(threading.Thread):
    """``connections`` connections with ``channels`` channels each; every channel is a worker."""

    def __init__(
        self, ports: Sequence[int], history: History, connections: int, channels: int, think: float, rollback: float
    ) -> None:
        super().__init__(name="aio-workers", daemon=True)
        self.stopping = threading.Event()
        self._ports = list(ports)
        self._history = history
        self._connections = connections
        self._channels = channels
        self._think = think
        self._rollback = rollback

    def run(self) -> None:
        """Work until stopped."""
        asyncio.run(self._run())

    async def _run(self) -> None:
        await asyncio.gather(*(self._connect(index) for index in range(self._connections)))

    async def _connect(self, index: int) -> None:
        """One connection after the other, with all its channels."""
        turn = index
        while not self.stopping.is_set():
            port = self._ports[turn % len(self._ports)]
            turn += 1
            try:
                connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/", timeout=6)
            except LOST:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            workers = [asyncio.ensure_future(self._work(connection, f"aio{index}-{n}")) for n in range(self._channels)]
            await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            try:
                await asyncio.wait_for(connection.close(), 1)
            except LOST:
                continue

    async def _work(self, connection: AbstractConnection, name: str) -> None:
        rng = random.Random(name)
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.get_queue(INPUT, ensure=False)
        transaction = channel.transaction()
        await transaction.select()
        while not self.stopping.is_set():
            message = await queue.get(no_ack=False, fail=False, timeout=10)
            if message is None:
                await asyncio.sleep(0.05)
                continue
            attempt = self._history.begin(name, message.body.decode())
            try:
                await self._transact(channel, transaction, message, attempt, rng.random() < self._rollback)
            except ChannelPreconditionFailed:
                self._history.answer(attempt, FAILED)
                raise
            finally:
                self._history.interrupted(attempt)

    async def _transact(
        self,
        channel: AbstractChannel,
        transaction: AbstractTransaction,
        message: AbstractIncomingMessage,
        attempt: Attempt,
        roll_back: bool,
    ) -> None:
        history = self._history
        for queue in OUTPUTS:
            history.publishing(attempt)
            body = aio_pika.Message(attempt.id.encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(body, queue, mandatory=False)
            await asyncio.sleep(self._think / len(OUTPUTS))
        await message.ack()
        if roll_back:
            await transaction.rollback(timeout=20)
            history.answer(attempt, ROLLED_BACK)
            await message.channel.basic_nack(message.delivery_tag or 0, requeue=True)
            await transaction.commit(timeout=20)
        else:
            history.committing(attempt)
            await transaction.commit(timeout=20)
            history.answer(attempt, OK)
