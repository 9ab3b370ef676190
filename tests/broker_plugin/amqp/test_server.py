"""The listener: limits, slow readers, and being handed connections."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from pamqp import body, commands, frame, header
from pamqp.commands import Basic, Channel, Queue

from broker_plugin.amqp.loop_broker import embedded_broker
from broker_plugin.amqp.protocol.codec import HEARTBEAT_FRAME
from broker_plugin.amqp.protocol.connection import Connection
from broker_plugin.amqp.protocol.intake import Intake
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.amqp.server import AmqpProtocol, AmqpServer
from tests.broker_plugin.amqp.conftest import Served, ServedByCore
from tests.broker_plugin.amqp.raw_client import RawClient
from tests.broker_plugin.embedded.local_ledger import LocalLedger
from tests.support.guards import strict_guard


def test_only_loopback() -> None:
    async def start() -> None:
        await AmqpServer(strict_guard(), embedded_broker(strict_guard()), AmqpSettings(host="0.0.0.0", port=0)).start()

    with pytest.raises(ValueError, match="loopback"):
        asyncio.run(start())


def test_who_may_serve_no_more_notices_before_it_answers(core: ServedByCore) -> None:
    client = RawClient(core.port)
    client.send(1, Channel.Open(), Queue.Declare(queue="q", durable=True))
    assert [type(client.next()[1]) for _ in range(2)] == [Channel.OpenOk, Queue.DeclareOk]  # type: ignore[index]
    core.server.before_input = lambda: core.broker.on_inactive("overslept")
    client.send(1, Queue.Declare(queue="q", passive=True))
    answer = client.next()
    assert answer is not None and isinstance(answer[1], commands.Connection.Close)


def test_connection_limit(served: Served) -> None:
    served.server.settings = replace(served.settings, max_connections=2)
    first, second = RawClient(served.port), RawClient(served.port)
    third = RawClient(served.port, open_now=False)
    assert third.next() is None
    first.close()
    served.wait_for(lambda: served.server.connections == 1)
    RawClient(served.port).close()
    second.close()


@pytest.mark.plain
def test_connections_that_go_at_once_end_one_turn_after_the_other(served: Served) -> None:
    """``many_connections_with_every_channel_vanish``: 20 of them, 2,047 channels each, took one turn of 334 ms."""
    clients = [RawClient(served.port) for _ in range(3)]
    for client in clients:
        client.send_bytes(b"".join(frame.marshal(Channel.Open(), number) for number in range(1, 2001)))
        for _ in range(2000):
            client.next()

    def go() -> int:
        protocols = list(served.server._protocols)
        for protocol in protocols:
            protocol.connection_lost(None)
        return sum(protocol.connection is not None for protocol in protocols)

    assert served.call(go) == 2, "the first has used the turn up"
    served.wait_for(lambda: not served.broker._sessions)
    for client in clients:
        client.close()


def test_a_slow_reader_costs_bounded_memory(served: Served) -> None:
    """20 MiB wait for a consumer that does not read; what is buffered for it stays near the limit."""
    served.server.settings = replace(served.settings, output_bytes=100_000)
    client = RawClient(served.port)
    client.send(1, Channel.Open(), Queue.Declare(queue="q", durable=True))
    data = b"x" * 100_000
    one = (Basic.Publish(0, "", "q"), header.ContentHeader(0, len(data), Basic.Properties()), body.ContentBody(data))
    client.send(1, *(one * 200), Queue.Declare(queue="q", passive=True))
    answers = [client.next() for _ in range(3)]
    assert answers[2] is not None and answers[2][1].message_count == 200
    client.send(1, Basic.Consume(queue="q", consumer_tag="c", no_ack=True))
    served.wait_for(lambda: any(not each._reading for each in served.server._protocols))
    (protocol,) = served.server._protocols
    assert protocol._transport is not None and protocol.connection is not None
    buffered = protocol._transport.get_write_buffer_size() + protocol.connection._output_bytes
    assert buffered < 1_000_000
    received = 0
    while received < 200:
        answer = client.next()
        assert answer is not None
        received += isinstance(answer[1], body.ContentBody)
    client.send(2, Channel.Open())
    answer = client.next()
    assert answer is not None and isinstance(answer[1], Channel.OpenOk), "it is read again"
    client.close()


class FakeTransport(asyncio.Transport):
    """Remembers whether it is read."""

    def __init__(self, address: str | None = "127.0.0.1") -> None:
        super().__init__({"peername": address and (address, 5)})
        self.reading = True
        self.written = b""
        self.aborted = False

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        """What waits to be sent is not taken, so it stays open."""

    def abort(self) -> None:
        self.aborted = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data


def connected(server: AmqpServer) -> tuple[AmqpProtocol, FakeTransport, Connection]:
    """A client with one channel, and a heartbeat of two seconds."""
    LocalLedger().serve(server.broker)
    protocol, transport = AmqpProtocol(server), FakeTransport()
    protocol.connection_made(transport)
    credentials = commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")
    protocol.data_received(b"AMQP\x00\x00\x09\x01" + frame.marshal(credentials, 0))
    for method in (commands.Connection.TuneOk(2047, 131072, 2), commands.Connection.Open("/"), Channel.Open()):
        protocol.data_received(frame.marshal(method, int(isinstance(method, Channel.Open))))
    connection = protocol.connection
    assert connection is not None and not connection.ended
    return protocol, transport, connection


class TestReading:
    """When the transport is read, and that the ledger is looked after."""

    @pytest.fixture
    def activities(self) -> list[str]:
        return []

    @pytest.fixture
    def server(self, activities: list[str]) -> AmqpServer:
        guard = strict_guard()
        return AmqpServer(guard, embedded_broker(guard), AmqpSettings(), lambda: activities.append("asked"))

    async def test_not_while_the_server_is_paused(self, server: AmqpServer) -> None:
        protocol, transport = AmqpProtocol(server), FakeTransport()
        protocol.connection_made(transport)
        server.pause()
        protocol.data_received(b"AMQP")
        assert not transport.reading
        server.resume()
        assert transport.reading

    async def test_not_while_the_connection_is_congested(
        self, server: AmqpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        protocol, transport = AmqpProtocol(server), FakeTransport()
        protocol.connection_made(transport)
        congested = [True]
        monkeypatch.setattr(Intake, "congested", property(lambda intake: congested[0]))
        protocol.data_received(b"AMQP")
        assert not transport.reading
        server.pause()
        congested[0] = False
        protocol.read_on()
        assert not transport.reading, "the server is paused still"
        server.resume()
        assert transport.reading

    @pytest.mark.parametrize("state", ["hangs", "works", "has sent too much", "waits with all others"])
    async def test_a_consumer_that_hangs_is_given_up(
        self, server: AmqpServer, monkeypatch: pytest.MonkeyPatch, state: str
    ) -> None:
        """It takes no deliveries, so it was not read, and its silence was not noticed: it kept its messages for ever.

        One that takes none, but sends heartbeats, stays; so does one that is not read for what it has sent itself, or
        because no client is.
        """
        protocol, transport, connection = connected(server)
        monkeypatch.setattr(transport, "get_write_buffer_size", lambda: 1 << 24)
        if state == "has sent too much":
            monkeypatch.setattr(Intake, "overfull", True)
        protocol.pause_writing()
        if state == "waits with all others":
            server.pause()
        asked = frame.marshal(Basic.Qos(prefetch_count=1), 1)
        protocol.data_received(asked)
        for half_seconds in range(1000):
            protocol.tick(half_seconds / 2)
            if state == "works" and half_seconds % 2:
                assert transport.reading, "it is looked at again"
                protocol.data_received(HEARTBEAT_FRAME + asked)
                assert not transport.reading, "it was read once"
                await asyncio.sleep(0)  # the next turn of the event loop
        assert connection.ended == transport.aborted == (state == "hangs")
        assert connection.take_output().count(frame.marshal(Basic.QosOk(), 1)) == 0, "none is carried out meanwhile"

    async def test_what_is_returned_to_a_client_that_takes_nothing_is_bounded(self, server: AmqpServer) -> None:
        """It is read once in a while, to see whether it lives: what it publishes waits with all else that it sends."""
        protocol, transport, connection = connected(server)
        protocol.pause_writing()
        content = b"x" * 100_000
        unroutable = b"".join(
            frame.marshal(each, 1)
            for each in (
                Basic.Publish(0, "", "nobody", mandatory=True),
                header.ContentHeader(0, len(content), Basic.Properties()),
                body.ContentBody(content),
            )
        )
        sent = 0
        for half_seconds in range(1000):
            protocol.tick(half_seconds / 2)
            if transport.reading:
                protocol.data_received(unroutable)
                sent += 1
        assert content not in connection.take_output(), "none is carried out meanwhile"
        assert sent * len(content) < 2 * server.settings.waiting_bytes, "it is read no more when too much waits"
        transport.written = b""
        protocol.resume_writing()
        assert sent == (transport.written + connection.take_output()).count(content), "all are, in the end"

    async def test_the_ledger_is_looked_after(self, server: AmqpServer, activities: list[str]) -> None:
        protocol = AmqpProtocol(server)
        protocol.connection_made(FakeTransport())
        protocol.data_received(b"AMQP")
        assert activities == ["asked"]
        protocol.connection_lost(None)
        assert activities == ["asked", "asked"]


def test_a_lost_client_gives_back_what_it_held(served: Served) -> None:
    client, other = RawClient(served.port), RawClient(served.port)
    one = (Basic.Publish(0, "", "q"), header.ContentHeader(0, 1, Basic.Properties()), body.ContentBody(b"m"))
    client.send(1, Channel.Open(), Queue.Declare(queue="q", durable=True), *one, Basic.Get(queue="q"))
    answers = [client.next() for _ in range(5)]
    assert answers[2] is not None and isinstance(answers[2][1], Basic.GetOk)
    client.close()
    served.wait_for(lambda: served.server.connections == 1)
    other.send(1, Channel.Open(), Basic.Get(queue="q"))
    answers = [other.next() for _ in range(2)]
    assert answers[1] is not None and answers[1][1].redelivered is True
    other.close()


def test_paused(served: Served) -> None:
    client = RawClient(served.port)
    client.send(1, Channel.Open())
    client.next()
    served.call(served.server.pause)
    client.send(1, Basic.Qos(0, 1))
    client.send(1, Basic.Qos(0, 2))
    served.call(served.server.resume)
    assert [client.next() for _ in range(2)] and not client.closed
    client.close()


def test_clients_are_dropped_at_the_end(served: Served) -> None:
    client = RawClient(served.port)
    asyncio.run_coroutine_threadsafe(served.server.stop(), served.loop).result(10)
    assert client.next() is None


def test_blocked_and_unblocked(served: Served) -> None:
    client = RawClient(served.port)
    served.call(served.server.block, "a disk is full")
    answer = client.next()
    assert answer is not None and answer[1].reason == "a disk is full"
    served.call(served.server.block, None)
    answer = client.next()
    assert answer is not None and isinstance(answer[1], commands.Connection.Unblocked)
    client.close()


async def test_handed_over_connections() -> None:
    """A node may accept a client, keep what it sends, and hand it over later with that."""
    guard = strict_guard()
    broker = embedded_broker(guard)
    server = AmqpServer(guard, broker, AmqpSettings())

    class Door(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = transport

        def data_received(self, data: bytes) -> None:
            protocol = server.connection_factory()
            assert isinstance(self.transport, asyncio.Transport)
            self.transport.set_protocol(protocol)
            protocol.connection_made(self.transport)
            protocol.data_received(data)

    listener = await asyncio.get_running_loop().create_server(Door, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.sockets[0].getsockname()[1])
    writer.write(b"AMQP\x00\x00\x09\x01")
    _, _, value = frame.unmarshal(await reader.read(65536))
    assert isinstance(value, commands.Connection.Start)
    writer.close()
    listener.close()
    await server.stop()
