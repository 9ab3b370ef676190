"""A cheap load for any AMQP 0-9-1 broker: the frames of a batch are built once, so the broker is what is measured.

Each connection publishes batches of durable messages over several queues and waits for the answer to each batch:
``tx`` ends a batch with tx.commit, ``confirm`` waits for the confirms of all its messages.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pamqp import commands, frame, header
from pamqp.base import Frame

TX, CONFIRM = "tx", "confirm"
_HEAD = struct.Struct(">BHI")
_METHOD = struct.Struct(">HH")
_ACK = struct.Struct(">HHQB")
COMMIT_OK, ACK, CLOSE, CHANNEL_CLOSE, NACK = (90, 21), (60, 80), (10, 50), (20, 40), (60, 120)


@dataclass
class Shape:
    """What a batch looks like, and how its end is told."""

    mode: str = TX
    messages: int = 10
    size: int = 256
    queues: Sequence[str] = ()


@dataclass
class Result:
    """Batches that were answered, with their latencies in seconds."""

    seconds: float
    latencies: list[float] = field(default_factory=list)

    def quantile(self, q: float) -> float:
        """Seconds; 0 without any batch."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(q * len(ordered)))] if ordered else 0.0


class LoadError(Exception):
    """The broker refused something, so no figure can be given."""


def marshalled(value: Frame, channel: int) -> bytes:
    """The bytes of one frame."""
    return bytes(frame.marshal(value, channel))


def batch_bytes(shape: Shape) -> bytes:
    """All frames of one batch."""
    properties = commands.Basic.Properties(delivery_mode=2)
    parts = []
    for number in range(shape.messages):
        queue = shape.queues[number % len(shape.queues)]
        parts.append(marshalled(commands.Basic.Publish(exchange="", routing_key=queue), 1))
        parts.append(bytes(frame.marshal(header.ContentHeader(0, shape.size, properties), 1)))
        parts.append(_HEAD.pack(3, 1, shape.size) + b"x" * shape.size + b"\xce")
    if shape.mode == TX:
        parts.append(marshalled(commands.Tx.Commit(), 1))
    return b"".join(parts)


class Loader(asyncio.Protocol):
    """One connection: a handshake, then batch after batch until told to stop."""

    def __init__(self, shape: Shape, result: Result) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.running = False
        self._shape = shape
        self._result = result
        self._batch = batch_bytes(shape)
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
        self._next()

    def stop(self) -> None:
        """No batch after the one on its way."""
        self.running = False

    def _next(self) -> None:
        self._sent_at = time.perf_counter()
        first = self._published + 1
        self._published += self._shape.messages
        self._open.update(range(first, self._published + 1))
        self._write(self._batch)

    def _answered(self) -> None:
        self._result.latencies.append(time.perf_counter() - self._sent_at)
        if self.running:
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


async def run_load(ports: Sequence[int], connections: int, shape: Shape, seconds: float) -> Result:
    """Load for so many seconds from ``connections`` connections, which go round the ports. Raises LoadError."""
    loop = asyncio.get_running_loop()
    result = Result(seconds)
    loaders = []
    for number in range(connections):
        _, loader = await loop.create_connection(lambda: Loader(shape, result), "127.0.0.1", ports[number % len(ports)])
        loaders.append(loader)
    await asyncio.gather(*(loader.ready for loader in loaders))
    began = time.perf_counter()
    for loader in loaders:
        loader.begin()
    await asyncio.sleep(seconds)
    for loader in loaders:
        loader.stop()
    await asyncio.wait_for(asyncio.gather(*(loader.ended for loader in loaders)), 30)
    result.seconds = time.perf_counter() - began
    return result
