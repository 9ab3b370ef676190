"""``tx`` through aio-pika."""

from __future__ import annotations

import asyncio

import aio_pika
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection


async def connected(urls: list[str], node: int = 0) -> AbstractConnection:
    return await aio_pika.connect(urls[node % len(urls)])


async def put(channel: AbstractChannel, queue: str, body: bytes) -> None:
    await channel.default_exchange.publish(aio_pika.Message(body), queue)


async def count(channel: AbstractChannel, queue: str) -> int:
    declared = await channel.declare_queue(queue, passive=True)
    return declared.declaration_result.message_count or 0


async def test_commit_and_rollback(urls: list[str], queues: list[str]) -> None:
    async with await connected(urls) as connection, await connected(urls, 1) as probe:
        channel = await connection.channel(publisher_confirms=False)
        other = await probe.channel()
        async with channel.transaction():
            for queue in queues:
                await put(channel, queue, b"m")
            assert [await count(other, queue) for queue in queues] == [0, 0, 0]
        assert [await count(other, queue) for queue in queues] == [1, 1, 1]
        with pytest.raises(RuntimeError, match="on purpose"):
            async with channel.transaction():
                await put(channel, queues[0], b"never")
                raise RuntimeError("on purpose")
        assert await count(other, queues[0]) == 1


async def test_consume_and_publish_in_one_transaction(urls: list[str], queues: list[str]) -> None:
    source, target, _ = queues
    async with await connected(urls) as connection, await connected(urls, 2) as probe:
        other = await probe.channel()
        for number in range(30):
            await put(other, source, f"{number}".encode())
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=10)
        transaction = channel.transaction()
        await transaction.select()
        queue = await channel.get_queue(source, ensure=False)
        done = 0
        async with queue.iterator() as messages:
            async for message in messages:
                await put(channel, target, message.body)
                await message.ack()
                await transaction.commit()
                done += 1
                if done == 30:
                    break
        assert await count(other, source) == 0 and await count(other, target) == 30


async def test_many_channels_at_once(urls: list[str], queues: list[str]) -> None:
    async def work(connection: AbstractConnection, index: int) -> None:
        channel = await connection.channel(publisher_confirms=False)
        transaction = channel.transaction()
        await transaction.select()
        for number in range(5):
            for queue in queues:
                await put(channel, queue, f"{index}.{number}".encode())
            await transaction.commit()

    async with await connected(urls) as one, await connected(urls, 1) as two:
        await asyncio.gather(*(work(one if n % 2 else two, n) for n in range(30)))
        other = await one.channel()
        assert [await count(other, queue) for queue in queues] == [150, 150, 150]


async def test_a_lost_connection_rolls_back(urls: list[str], queues: list[str]) -> None:
    connection = await connected(urls)
    channel = await connection.channel(publisher_confirms=False)
    await channel.transaction().select()
    await put(channel, queues[0], b"never")
    await connection.close()
    async with await connected(urls, 1) as probe:
        other = await probe.channel()
        await asyncio.sleep(0.1)
        assert await count(other, queues[0]) == 0
