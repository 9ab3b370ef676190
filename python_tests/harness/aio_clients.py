"""Workers on aio-pika: many channels on a few connections, in one event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractTransaction
from aio_pika.exceptions import ChannelPreconditionFailed
from yarl import URL

from python_tests.harness.history import FAILED, OK, ROLLED_BACK, Attempt, History
from python_tests.harness.last_words import raised_not_done
from python_tests.harness.load import RETRY_SECONDS, Load, Plan, Planner, body_of, message_of, place_of
from recovery.dtx.with_aio_pika import LOST

PATIENCE = 20.0
"""Seconds after which a worker gives an answer up."""


class AioWorkers(threading.Thread):
    """``aio_connections`` connections with ``aio_channels`` channels each; every channel is a worker."""

    def __init__(self, urls: Sequence[str], history: History, load: Load) -> None:
        super().__init__(name="aio-workers", daemon=True)
        self.stopping = threading.Event()
        self._urls = list(urls)
        self._history = history
        self._load = load
        self.failure: Exception | None = None

    def run(self) -> None:
        """Work until stopped."""
        try:
            asyncio.run(self._run())
        except Exception as error:
            self.failure = error

    def stop(self) -> None:
        """Let them finish. Raises TimeoutError if they do not end, and what ended them early if anything did."""
        self.stopping.set()
        if self.ident is None:
            return  # never started: what came before it failed, and that is what is told
        self.join(PATIENCE + 10)
        if self.is_alive():
            raise TimeoutError(f"aio-pika's workers did not end within {PATIENCE + 10:.0f} s")
        if self.failure is not None:
            raise self.failure

    async def _run(self) -> None:
        await asyncio.gather(*(self._connect(index) for index in range(self._load.aio_connections)))

    async def _connect(self, index: int) -> None:
        """One connection after the other, to any of the nodes."""
        turn = index
        while not self.stopping.is_set():
            url = self._urls[turn % len(self._urls)]
            turn += 1
            connection = aio_pika.Connection(URL(url).update_query(heartbeat=10))
            try:
                await connection.connect(timeout=6)
                await self._serve(connection, f"aio{index}-{turn}", url)
            except LOST:
                await asyncio.sleep(RETRY_SECONDS)
            finally:
                with contextlib.suppress(*LOST):
                    await asyncio.wait_for(connection.close(), 2)

    async def _serve(self, connection: AbstractConnection, name: str, url: str) -> None:
        """All channels of one connection, until they are stopped or it is lost."""
        workers = [
            asyncio.ensure_future(self._work(connection, f"{name}-{n}", url, n)) for n in range(self._load.aio_channels)
        ]
        await asyncio.wait(workers, return_when=asyncio.FIRST_EXCEPTION)
        for worker in workers:
            worker.cancel()
        for result in await asyncio.gather(*workers, return_exceptions=True):
            if isinstance(result, Exception) and not isinstance(result, LOST):
                raise result

    async def _work(self, connection: AbstractConnection, name: str, url: str, number: int) -> None:
        """One channel after the other: a refused commit closes it."""
        plans = Planner(self._load, name, number)
        channels = 0
        while not self.stopping.is_set():
            channels += 1
            self._history.connected(f"{name}#{channels}", place_of(url))
            with contextlib.suppress(ChannelPreconditionFailed):
                async with connection.channel(publisher_confirms=False) as channel:
                    await self._work_on(channel, f"{name}#{channels}", plans)

    async def _work_on(self, channel: AbstractChannel, name: str, plans: Planner) -> None:
        await channel.set_qos(prefetch_count=1)
        transaction = channel.transaction()
        await transaction.select()
        session = self._history.watching(self._load.queues.input, name, 1)
        try:
            async for message in self._inputs(channel):
                source = message_of(message.body)
                self._history.saw(session, source, bool(message.redelivered))
                await self._take(channel, transaction, message, name, plans)
        finally:
            self._history.watched(session, clean=False)

    async def _inputs(self, channel: AbstractChannel) -> AsyncIterator[AbstractIncomingMessage]:
        """One at a time, for the prefetch count is one. Raises ConnectionError when the channel goes."""
        arrived = asyncio.Event()
        messages: list[AbstractIncomingMessage] = []

        async def receive(message: AbstractIncomingMessage) -> None:
            messages.append(message)
            arrived.set()

        queue = await channel.get_queue(self._load.queues.input, ensure=False)
        await queue.consume(receive)
        while not self.stopping.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(arrived.wait(), 0.2)
            if channel.is_closed:
                raise ConnectionError("the channel is closed")
            while messages:
                yield messages.pop(0)
            arrived.clear()

    async def _take(
        self,
        channel: AbstractChannel,
        transaction: AbstractTransaction,
        message: AbstractIncomingMessage,
        name: str,
        plans: Planner,
    ) -> None:
        """One input: a transaction that commits or gives it back, or one that rolls back and then one that commits."""
        plan = plans.plan()
        await self._transact(channel, transaction, message, name, plan)
        if plan.roll_back and plan.again:
            await self._transact(channel, transaction, message, name, plans.plan_again())
        elif plan.roll_back:
            await message.channel.basic_nack(message.delivery_tag or 0, requeue=True)
            await transaction.commit(timeout=PATIENCE)

    async def _transact(
        self,
        channel: AbstractChannel,
        transaction: AbstractTransaction,
        message: AbstractIncomingMessage,
        name: str,
        plan: Plan,
    ) -> None:
        history = self._history
        attempt = history.begin(name, [message_of(message.body)], on_purpose=plan.roll_back)
        number = message.channel.number
        try:
            await self._publish(channel, attempt, plan)
            await message.channel.basic_ack(message.delivery_tag or 0)
            if plan.roll_back:
                await transaction.rollback(timeout=PATIENCE)
                history.answer(attempt, ROLLED_BACK)
            else:
                history.committing(attempt)
                await transaction.commit(timeout=PATIENCE)
                history.answer(attempt, OK)
        except ChannelPreconditionFailed:
            history.answer(attempt, FAILED)
            raise
        finally:
            history.interrupted(attempt, raised_not_done(number))

    async def _publish(self, channel: AbstractChannel, attempt: Attempt, plan: Plan) -> None:
        for part in plan.parts():
            for queue in part:
                body = body_of(self._history.publishing(attempt, queue))
                message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
                await channel.default_exchange.publish(message, queue, mandatory=False)
            await asyncio.sleep(plan.pause / 3)
