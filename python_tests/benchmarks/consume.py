"""Deliver and acknowledge: consumers with a prefetch limit drain a queue of numbered messages, each exactly once."""

from __future__ import annotations

import asyncio
import struct
import time

from pamqp import commands

from python_tests.benchmarks.load import CONFIRM, Loader, LoadError, Result, Shape, connected, marshalled, publish_bytes

PREFETCH = 100
SIZE = 256
_NUMBER = struct.Struct(">Q")
_ACK = struct.Struct(">BHIHHQBB")
_DELIVER = b"\x00\x3c\x00\x3c"
AT_ONCE = 500
DRAIN_SECONDS = 600.0


class Taken:
    """What all consumers of a drain have taken. ``done`` when that is as much as was published."""

    def __init__(self, count: int) -> None:
        self.seen = bytearray(count)
        self.left = count
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(self, number: int, redelivered: bool) -> None:
        """One message. A wrong one ends the drain with LoadError."""
        if redelivered or number >= len(self.seen) or self.seen[number]:
            self.fail(f"message {number} was delivered twice, or never published")
            return
        self.seen[number] = 1
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)

    def fail(self, reason: str) -> None:
        """The drain gives no figure."""
        if not self.done.done():
            self.done.set_exception(LoadError(reason))


class Consumer(Loader):
    """Takes and acknowledges, one by one, what it is sent."""

    def __init__(self, queue: str, taken: Taken) -> None:
        super().__init__(Shape(CONFIRM, queues=(queue,)), Result(), [b""])
        self._queue = queue
        self._taken = taken
        self._tag, self._redelivered = 0, False
        self._acks: list[bytes] = []

    def consume(self) -> None:
        """Begin."""
        qos = commands.Basic.Qos(prefetch_count=PREFETCH)
        self._write(marshalled(qos, 1) + marshalled(commands.Basic.Consume(queue=self._queue), 1))

    def data_received(self, data: bytes) -> None:
        """Acknowledge all that came together, each by itself."""
        super().data_received(data)
        if self._acks:
            self._write(b"".join(self._acks))
            self._acks = []

    def connection_lost(self, error: Exception | None) -> None:
        """The drain cannot go on."""
        super().connection_lost(error)
        self._taken.fail(f"a consumer was lost: {error}")

    def _method(self, data: bytes, channel: int) -> None:
        if data[7:11] == _DELIVER:
            behind = 12 + data[11]
            (self._tag,), self._redelivered = _NUMBER.unpack_from(data, behind), bool(data[behind + 8])
        else:
            super()._method(data, channel)

    def _body(self, data: bytes) -> None:
        self._taken.take(_NUMBER.unpack_from(data)[0], self._redelivered)
        self._acks.append(_ACK.pack(1, 1, 13, 60, 80, self._tag, 0, 0xCE))


async def publish_numbered(port: int, queue: str, count: int) -> None:
    """``count`` messages whose bodies begin with 0, 1, 2, …, all confirmed. Raises LoadError."""
    padding = b"x" * (SIZE - _NUMBER.size)
    shape = Shape(CONFIRM, AT_ONCE, SIZE, (queue,))
    batches = [
        b"".join(publish_bytes(queue, _NUMBER.pack(number) + padding) for number in range(at, at + AT_ONCE))
        for at in range(0, count, AT_ONCE)
    ]
    loader = await connected(port, shape, Result(), batches, left=len(batches))
    loader.begin()
    try:
        await loader.ended
    finally:
        loader.close()


async def drain(port: int, queue: str, count: int, consumers: int) -> float:
    """Messages a second, delivered and acknowledged, from the first consumer's begin to the last message. LoadError."""
    taken = Taken(count)
    loop, clients = asyncio.get_running_loop(), []
    for _ in range(consumers):
        _, client = await loop.create_connection(lambda: Consumer(queue, taken), "127.0.0.1", port)
        clients.append(client)
    await asyncio.gather(*(client.ready for client in clients))
    began = time.perf_counter()
    for client in clients:
        client.consume()
    try:
        await asyncio.wait_for(taken.done, DRAIN_SECONDS)
        return count / (time.perf_counter() - began)
    except TimeoutError:
        raise LoadError(f"{taken.left} messages were not delivered within {DRAIN_SECONDS:.0f} s") from None
    finally:
        await asyncio.sleep(0.2)  # the last acknowledgements are on their way
        for client in clients:
            client.close()
