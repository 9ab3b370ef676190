"""A cheap load for any AMQP 0-9-1 broker: the frames of a batch are built once, so the broker is what is measured.

Each connection publishes batches of durable messages over several queues and waits for the answer to each batch:
``tx`` ends a batch with tx.commit, ``confirm`` waits for the confirms of all its messages.
"""

from __future__ import annotations

import asyncio
import math
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

from pamqp import commands, frame, header
from pamqp.base import Frame

TX, CONFIRM = "tx", "confirm"
_HEAD = struct.Struct(">BHI")
_METHOD = struct.Struct(">HH")
_ACK = struct.Struct(">HHQB")
FRAME_BODY = 131072 - 8
"""Bytes of a body in one frame, with the frame size that both brokers propose."""
END_SECONDS = 60.0
COMMIT_OK, ACK, CLOSE, CHANNEL_CLOSE, NACK = (90, 21), (60, 80), (10, 50), (20, 40), (60, 120)


@dataclass
class Shape:
    """What a batch looks like, and how its end is told. Batches go round the queues, message by message."""

    mode: str = TX
    messages: int = 10
    size: int = 256
    queues: Sequence[str] = ()

    @property
    def period(self) -> int:
        """After so many batches the queues come round again."""
        return len(self.queues) // math.gcd(len(self.queues), self.messages)

    def queues_of(self, batch: int) -> list[str]:
        """Where the messages of a batch go."""
        first = batch * self.messages
        return [self.queues[number % len(self.queues)] for number in range(first, first + self.messages)]


@dataclass
class Result:
    """Batches that were answered: their latencies in seconds, and how often each batch of the period was."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    answered: Counter[int] = field(default_factory=Counter)

    def messages(self, shape: Shape) -> Counter[str]:
        """How many messages each queue was given."""
        found: Counter[str] = Counter()
        for batch, times in self.answered.items():
            for queue in shape.queues_of(batch):
                found[queue] += times
        return found

    def quantile(self, q: float) -> float:
        """Seconds; 0 without any batch."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


class LoadError(Exception):
    """The broker refused something, so no figure can be given."""


def marshalled(value: Frame, channel: int) -> bytes:
    """The bytes of one frame."""
    return bytes(frame.marshal(value, channel))


def publish_bytes(queue: str, body: bytes) -> bytes:
    """All frames of one durable message."""
    properties = commands.Basic.Properties(delivery_mode=2)
    parts = [
        marshalled(commands.Basic.Publish(exchange="", routing_key=queue), 1),
        bytes(frame.marshal(header.ContentHeader(0, len(body), properties), 1)),
    ]
    for at in range(0, len(body), FRAME_BODY):
        piece = body[at : at + FRAME_BODY]
        parts.append(_HEAD.pack(3, 1, len(piece)) + piece + b"\xce")
    return b"".join(parts)


def batch_bytes(shape: Shape, batch: int = 0) -> bytes:
    """All frames of one batch."""
    body = b"x" * shape.size
    known = {queue: publish_bytes(queue, body) for queue in set(shape.queues_of(batch))}
    end = marshalled(commands.Tx.Commit(), 1) if shape.mode == TX else b""
    return b"".join([known[queue] for queue in shape.queues_of(batch)]) + end


class Loader(asyncio.Protocol):
    """One connection: a handshake, then batch after batch, from number ``first`` on, until told to stop.

    ``left``: so many batches and no more, if that is not None.
    """

    def __init__(
        self, shape: Shape, result: Result, batches: Sequence[bytes], first: int = 0, left: int | None = None
    ) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running = False
        self._shape = shape
        self._result = result
        self._batches = batches
        self._number = first % len(batches)
        self._left = left
        self._buffer = bytearray()
        self._sent_at = 0.0
        self._published = 0
        self._open: set[int] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = transport
        self._write(b"AMQP\x00\x00\x09\x01")

    def data_received(self, data: bytes) -> None:
        """Take whole frames."""
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= 8:
            kind, channel, size = _HEAD.unpack_from(self._buffer, at)
            end = at + 8 + size
            if len(self._buffer) < end:
                break
            if kind == 1:
                self._method(bytes(self._buffer[at:end]), channel)
            elif kind == 3:
                self._body(bytes(self._buffer[at + 7 : end - 1]))
            at = end
        del self._buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:
        """The connection has ended."""
        for future in (self.ready, self.ended):
            if not future.done():
                future.set_exception(LoadError(f"the connection was lost: {error}"))

    def begin(self) -> None:
        """The first batch."""
        self.running = True
        self._go_on()

    def stop(self) -> None:
        """No batch after the one on its way."""
        self.running = False

    def send(self, data: bytes) -> None:
        """Frames beside the batches, that nothing answers."""
        self._write(data)

    def close(self) -> None:
        """Let go of the connection."""
        self.ended.cancel()
        self._transport.close()  # type: ignore[attr-defined]

    def _next(self) -> None:
        self._sent_at = time.perf_counter()
        first = self._published + 1
        self._published += self._shape.messages
        self._open.update(range(first, self._published + 1))
        self._write(self._batches[self._number])

    def _answered(self) -> None:
        self._result.latencies.append(time.perf_counter() - self._sent_at)
        self._result.answered[self._number] += 1
        self._number = (self._number + 1) % len(self._batches)
        self._go_on()

    def _go_on(self) -> None:
        if self.running and self._left != 0:
            self._left = None if self._left is None else self._left - 1
            self._next()
        elif not self.ended.done():
            self.ended.set_result(None)

    def _method(self, data: bytes, channel: int) -> None:
        method = _METHOD.unpack_from(data, 7)
        if method == COMMIT_OK:
            self._answered()
        elif method == ACK:
            _, _, tag, multiple = _ACK.unpack_from(data, 7)
            self._open -= {known for known in self._open if known <= tag} if multiple else {tag}
            if not self._open:
                self._answered()
        elif method in (CLOSE, CHANNEL_CLOSE, NACK):
            self.connection_lost(LoadError(str(frame.unmarshal(data)[2])))
        else:
            self._shake_hands(frame.unmarshal(data)[2])

    def _body(self, data: bytes) -> None:
        """A piece of a delivery's body; publishers get none."""

    def _shake_hands(self, method: object) -> None:
        if isinstance(method, commands.Connection.Start):
            answer = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
            self._write(marshalled(answer, 0))
        elif isinstance(method, commands.Connection.Tune):
            tune = commands.Connection.TuneOk(method.channel_max, method.frame_max, 0)
            self._write(marshalled(tune, 0) + marshalled(commands.Connection.Open("/"), 0))
        elif isinstance(method, commands.Connection.OpenOk):
            self._write(marshalled(commands.Channel.Open(), 1))
        elif isinstance(method, commands.Channel.OpenOk):
            select = commands.Tx.Select() if self._shape.mode == TX else commands.Confirm.Select()
            self._write(marshalled(select, 1))
        elif isinstance(method, commands.Tx.SelectOk | commands.Confirm.SelectOk):
            self.ready.set_result(None)

    def _write(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


async def connected(
    port: int, shape: Shape, result: Result, batches: Sequence[bytes], kind: type[Loader] = Loader, **how: int
) -> Loader:
    """A loader that is ready to begin. Raises LoadError, OSError."""
    _, loader = await asyncio.get_running_loop().create_connection(
        lambda: kind(shape, result, batches, **how), "127.0.0.1", port
    )
    await loader.ready
    return loader


async def run_load(
    ports: Sequence[int], connections: int, shape: Shape, seconds: float, kind: type[Loader] = Loader
) -> Result:
    """Load for so many seconds from ``connections`` connections, which go round the ports. Raises LoadError."""
    result = Result()
    await run_until(ports, connections, shape, asyncio.sleep(seconds), result, kind)
    return result


async def run_until(
    ports: Sequence[int],
    connections: int,
    shape: Shape,
    end: Awaitable[object],
    result: Result,
    kind: type[Loader] = Loader,
) -> None:
    """The same until ``end``, which is awaited when the load begins; ``result`` grows meanwhile. Raises LoadError."""
    batches = [batch_bytes(shape, number) for number in range(shape.period)]
    loaders = [
        await connected(
            ports[number % len(ports)], shape, result, batches, kind, first=number * len(batches) // connections
        )
        for number in range(connections)
    ]
    began = time.perf_counter()
    for loader in loaders:
        loader.begin()
    await end
    for loader in loaders:
        loader.stop()
    await _ended(loaders)
    result.seconds = time.perf_counter() - began


async def run_batches(ports: Sequence[int], connections: int, shape: Shape, batches: int) -> Result:
    """So many batches and no more, shared out to ``connections`` connections. Raises LoadError."""
    result = Result()
    data = [batch_bytes(shape, number) for number in range(shape.period)]
    loaders = []
    for number in range(connections):
        first, end = (batches * at // connections for at in (number, number + 1))
        loaders.append(await connected(ports[number % len(ports)], shape, result, data, first=first, left=end - first))
    began = time.perf_counter()
    for loader in loaders:
        loader.begin()
    await _ended(loaders, None)
    result.seconds = time.perf_counter() - began
    return result


async def _ended(loaders: Sequence[Loader], seconds: float | None = END_SECONDS) -> None:
    try:
        await asyncio.wait_for(asyncio.gather(*(loader.ended for loader in loaders)), seconds)
    except TimeoutError:
        raise LoadError(f"a batch was not answered within {END_SECONDS:.0f} s") from None
    finally:
        for loader in loaders:
            loader.close()
