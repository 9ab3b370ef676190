"""One client's connection to the tiny broker: so much of AMQP 0-9-1 as its transactions need."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any

from pamqp import base, body, commands, frame, header, heartbeat

from tests.support.tiny_host.channel import Refused, TinyChannel
from tests.support.tiny_host.queues import TinyBroker
from txha.spi import lease_clock

FRAME_MAX = 131072
HEARTBEAT_SECONDS = 5.0


class TinyConnection:
    """Reads frame by frame, and has carried out each before it reads the next."""

    def __init__(self, broker: TinyBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.broker = broker
        self._reader = reader
        self._writer = writer
        self._channels: dict[int, TinyChannel] = {}
        self._content: tuple[commands.Basic.Publish, header.ContentHeader | None, bytearray] | None = None

    async def run(self) -> None:
        """Until either side closes."""
        beat = asyncio.ensure_future(self._beat())
        try:
            await self._greet()
            self.broker.clients[self.abort] = None
            while await self._next():
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            beat.cancel()
            self.broker.clients.pop(self.abort, None)
            for channel in self._channels.values():
                channel.leave()
            self._channels.clear()
            self._writer.close()

    def abort(self) -> None:
        """This node is not the primary any more."""
        self._writer.transport.abort()

    def send(self, channel: int, *frames: base.Frame | header.ContentHeader | body.ContentBody) -> None:
        """Unless the lease is over: then another broker may serve, and nothing is said any more."""
        ledger = self.broker.ledger
        if ledger is None or lease_clock() >= ledger.lease_until:
            self.abort()
            return
        self._writer.write(b"".join(frame.marshal(each, channel) for each in frames))

    def content(self, channel: int, method: base.Frame, properties: bytes, data: bytes) -> None:
        """A method with a message; the content header as it was published."""
        parts = [data[at : at + FRAME_MAX - 8] for at in range(0, len(data), FRAME_MAX - 8)]
        self.send(channel, method, _header(properties, len(data)), *(body.ContentBody(part) for part in parts))

    # -- inside

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            self.send(0, heartbeat.Heartbeat())  # type: ignore[arg-type]

    async def _frame(self) -> tuple[int, Any]:
        start = await self._reader.readexactly(7)
        size = int.from_bytes(start[3:7], "big")
        data = start + await self._reader.readexactly(size + 1)
        if start[0] == 2:
            return int.from_bytes(start[1:3], "big"), (data[7:-1], frame.unmarshal(data)[2])
        _, number, value = frame.unmarshal(data)
        return number, value

    async def _greet(self) -> None:
        await self._reader.readexactly(8)
        capabilities = {"basic.nack": True, "publisher_confirms": True, "consumer_cancel_notify": True}
        properties = {"product": "tiny", "capabilities": capabilities}
        self.send(0, commands.Connection.Start(0, 9, properties, "PLAIN", "en_US"))  # type: ignore[arg-type]
        await self._frame()
        self.send(0, commands.Connection.Tune(100, FRAME_MAX, 60))
        while not isinstance((await self._frame())[1], commands.Connection.Open):
            pass
        self.send(0, commands.Connection.OpenOk())

    async def _next(self) -> bool:
        number, value = await self._frame()
        channel = self._channels.get(number)
        if isinstance(value, commands.Connection.Close):
            self.send(0, commands.Connection.CloseOk())
            return False
        if isinstance(value, commands.Channel.Open):
            self._channels[number] = TinyChannel(self.broker, self, number)
            self.send(number, commands.Channel.OpenOk())
        elif isinstance(value, commands.Channel.Close | commands.Channel.CloseOk):
            if (gone := self._channels.pop(number, None)) is not None:
                gone.leave()
            if isinstance(value, commands.Channel.Close):
                self.send(number, commands.Channel.CloseOk())
        elif channel is not None:
            await self._on_channel(channel, number, value)
        return True

    async def _on_channel(self, channel: TinyChannel, number: int, value: Any) -> None:
        work = self._work(channel, value)
        if work is None:
            return
        try:
            await work
        except Refused as refused:
            channel.leave()
            self._channels.pop(number)
            self.send(number, commands.Channel.Close(refused.code, refused.text, 0, 0))

    def _work(self, channel: TinyChannel, value: Any) -> Coroutine[Any, Any, None] | None:
        if isinstance(value, commands.Basic.Publish):
            self._content = (value, None, bytearray())
            return None
        if isinstance(value, tuple):
            raw, parsed = value
            assert self._content is not None
            self._content = (self._content[0], parsed, bytearray())
            self._raw = raw[12:]  # class, weight and size: what is kept are flags and properties
        elif isinstance(value, body.ContentBody):
            assert self._content is not None
            self._content[2].extend(value.value)
        else:
            return channel.take(value)
        publish, parsed, data = self._content
        if parsed is None or len(data) < parsed.body_size:
            return None
        self._content = None
        return channel.publish(publish, self._raw, bytes(data))


def _header(properties: bytes, size: int) -> Any:
    """A content header whose properties are written as they came."""

    class Header(header.ContentHeader):
        def marshal(self) -> bytes:
            return (60).to_bytes(2, "big") + bytes(2) + size.to_bytes(8, "big") + properties

    return Header()


async def serve(broker: TinyBroker, host: str, port: int) -> asyncio.Server:
    """Listen for clients."""
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError):
            if broker.ledger is None:
                writer.close()
            else:
                await TinyConnection(broker, reader, writer).run()
        tasks.discard(task)

    return await asyncio.start_server(accept, host, port)
