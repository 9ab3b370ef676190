"""What aio-pika sees."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import aio_pika.abc
import pytest
import pytest_asyncio

from tests.broker_plugin.amqp.conftest import Served


@pytest_asyncio.fixture
async def connection(served: Served) -> AsyncIterator[aio_pika.abc.AbstractConnection]:
    connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{served.port}/")
    yield connection
    await connection.close()


def message(body: bytes) -> aio_pika.Message:
    return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT, headers={"n": 1})


async def test_transaction(connection: aio_pika.abc.AbstractConnection) -> None:
    channel = await connection.channel(publisher_confirms=False)
    queues = [await channel.declare_queue(name, durable=True) for name in "abc"]
    async with channel.transaction():
        for queue in queues:
            await channel.default_exchange.publish(message(b"m"), queue.name)
    for queue in queues:
        got = await queue.get()
        assert got.body == b"m" and got.headers == {"n": 1}
        await got.ack()


async def test_rollback(connection: aio_pika.abc.AbstractConnection) -> None:
    channel = await connection.channel(publisher_confirms=False)
    queue = await channel.declare_queue("q", durable=True)
    with pytest.raises(RuntimeError, match="no"):
        async with channel.transaction():
            await channel.default_exchange.publish(message(b"m"), "q")
            raise RuntimeError("no")
    assert await queue.get(fail=False) is None


async def test_confirms_and_a_topic_exchange(connection: aio_pika.abc.AbstractConnection) -> None:
    channel = await connection.channel(on_return_raises=True)
    exchange = await channel.declare_exchange("x", aio_pika.ExchangeType.TOPIC, durable=True)
    queue = await channel.declare_queue("q", durable=True)
    await queue.bind(exchange, "a.#")
    confirmations = await asyncio.gather(*(exchange.publish(message(b"%d" % n), "a.b") for n in range(200)))
    assert len(confirmations) == 200
    with pytest.raises(aio_pika.exceptions.PublishError):
        await exchange.publish(message(b"lost"), "b")
    found = []
    async with queue.iterator() as messages:
        async for each in messages:
            async with each.process():
                found.append(int(each.body))
            if len(found) == 200:
                break
    assert found == list(range(200))


async def test_robust_connection_declares_again(served: Served) -> None:
    """After a take-over a robust client finds its way back by itself."""
    connection = await aio_pika.connect_robust(f"amqp://guest:guest@127.0.0.1:{served.port}/", reconnect_interval=0.05)
    channel = await connection.channel()
    queue = await channel.declare_queue("q", durable=True)
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_message(incoming: aio_pika.abc.AbstractIncomingMessage) -> None:
        async with incoming.process():
            arrived.put_nowait(incoming.body)

    await queue.consume(on_message)

    def take_over() -> None:
        served.broker.on_inactive("the lease is lost")
        served.ledger.lose()
        served.serve(served.ledger.successor())

    closed = asyncio.Event()
    connection.close_callbacks.add(lambda *_: closed.set())
    served.call(take_over)
    await asyncio.wait_for(closed.wait(), 10)
    other = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{served.port}/")
    await (await other.channel()).default_exchange.publish(message(b"after"), "q")
    assert await asyncio.wait_for(arrived.get(), 10) == b"after"
    await other.close()
    await connection.close()
