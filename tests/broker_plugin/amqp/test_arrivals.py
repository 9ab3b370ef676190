"""Sockets of clients that have not logged in, and of clients that another node passes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from pamqp import commands

from broker_plugin.amqp.protocol.introductions import ASK, Introducer, Introductions, introduction_key
from broker_plugin.amqp.protocol.logins import FREE
from broker_plugin.amqp.protocol.settings import AmqpSettings
from tests.broker_plugin.amqp.conftest import Served
from tests.broker_plugin.amqp.peer import HEADER
from tests.broker_plugin.amqp.raw_client import DEFAULT_PROPERTIES, RawClient

KEY, PRIMARY = introduction_key(b"secret", "c"), "node-1"
MOST, OF_ONE = 20, 8


@pytest.fixture
def few() -> Iterator[Served]:
    users = {"guest": "guest", "alice": "word"}
    served = Served(AmqpSettings(port=0, users=users, max_unauthenticated=MOST, max_unauthenticated_per_address=OF_ONE))
    served.server.arrivals.introductions = Introductions(PRIMARY, [KEY])
    served.start()
    yield served
    served.stop()


def idle(served: Served, count: int, end: ExitStack) -> list[socket.socket]:
    address = ("127.0.0.1", served.port)
    return [end.enter_context(socket.create_connection(address, 5)) for _ in range(count)]


def age(served: Served, seconds: float) -> None:
    """All that have not logged in have stood still for so long."""
    newcomers = served.server.arrivals.newcomers
    for key, standing in newcomers._all.items():
        newcomers._all[key] = standing._replace(since=standing.since - seconds)


def test_idle_sockets_keep_no_client_out(few: Served, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as end:
        idle(few, 3 * OF_ONE, end)
        few.wait_for(lambda: few.server.arrivals.newcomers.refused == 2 * OF_ONE)
        assert few.server.connections == OF_ONE
        few.call(age, few, 2.0)
        clients = [RawClient(few.port) for _ in range(3 * OF_ONE)]
        few.wait_for(lambda: few.server.connections >= 3 * OF_ONE)
        assert few.server.arrivals.newcomers.count <= OF_ONE
        for client in clients:
            client.close()
    assert caplog.text.count("connections that have not logged in are closed") == 1


def test_who_makes_room_is_disconnected(few: Served) -> None:
    """And not only counted no more: it has a descriptor of the node."""
    with ExitStack() as end:
        first, *_ = idle(few, OF_ONE, end)
        few.wait_for(lambda: few.server.arrivals.newcomers.count == OF_ONE)
        few.call(age, few, 2.0)
        idle(few, 1, end)
        few.wait_for(lambda: few.server.arrivals.newcomers.refused == 1)
        with suppress(ConnectionError):
            assert first.recv(1) == b""
        few.wait_for(lambda: few.server.connections == OF_ONE)


def test_bytes_that_bring_a_handshake_no_further_do_not_make_it_younger(few: Served) -> None:
    """Else one byte now and then keeps a place that others want."""
    with ExitStack() as end:
        (slow,) = idle(few, 1, end)
        since: list[float] = []
        for at in range(1, 4):
            slow.sendall(HEADER[at - 1 : at])
            few.wait_for(lambda at=at: [c.connection._partial for c in few.server._protocols] == [HEADER[:at]])
            since += [each.since for each in few.server.arrivals.newcomers._all.values()]
        assert since == since[:1] * 3
        slow.sendall(HEADER[3:])
        few.wait_for(lambda: [each.since for each in few.server.arrivals.newcomers._all.values()] > since[:1])


def introduce(client: RawClient, host: str, port: int = 4711, node: str = "node-2") -> None:
    """As a node does that passes it on."""
    client.send_bytes(ASK)
    client.send_bytes(Introducer(node, KEY).line(nonce_for(client), PRIMARY, host, port))


def nonce_for(client: RawClient) -> bytes:
    """What the server asks a node that introduces a client."""
    line = client._socket.recv(100)
    assert line.endswith(b"\r\n")
    return line.split()[-1]


def test_a_client_that_is_passed_on_counts_for_its_own_address(few: Served) -> None:
    """All that a node passes on come from that node's address."""
    clients = [RawClient(few.port, open_now=False) for _ in range(OF_ONE)]
    few.wait_for(lambda: few.server.arrivals.newcomers.count == OF_ONE)
    for number, each in enumerate(clients):
        introduce(each, f"192.0.2.{number}")
    few.wait_for(lambda: len(few.server.arrivals.newcomers._by_address) == OF_ONE)
    assert answer_to_login(clients[0], "alice", "word") == "Connection.Tune"
    names = {each.connection.peer for each in few.server._protocols if each.connection}
    assert "192.0.2.3:4711 through node-2" in names
    RawClient(few.port).close()
    for each in clients:
        each.close()


def test_too_many_of_one_address_are_not_let_in_through_other_nodes(few: Served) -> None:
    """They come from two nodes, and count together."""
    clients = [RawClient(few.port, open_now=False) for _ in range(OF_ONE)]
    for number, each in enumerate(clients):
        introduce(each, "192.0.2.1", node=f"node-{number % 2}")
    few.wait_for(lambda: len(few.server.arrivals.newcomers._by_address.get("192.0.2.1", {})) == OF_ONE)
    late = RawClient(few.port, open_now=False)
    introduce(late, "192.0.2.1")
    assert late.next() is None
    for each in clients:
        each.close()


@pytest.mark.parametrize(("host", "may"), [("192.0.2.7", False), ("127.0.0.1", True), ("::1", True)])
def test_where_guest_comes_from_is_where_its_client_is(few: Served, host: str, may: bool) -> None:
    """``guest`` logs in from loopback only: of the node that the client has reached, not of the way between nodes."""
    client = RawClient(few.port, open_now=False)
    introduce(client, host)
    assert answer_to_login(client, "guest") == ("Connection.Tune" if may else "Connection.Close")


def test_refused_logins_are_slowed_down_by_the_client_s_own_address(few: Served) -> None:
    """One that guesses passwords through a backup costs others that come through it nothing."""
    for _ in range(FREE):
        client = RawClient(few.port, open_now=False)
        introduce(client, "192.0.2.7")
        assert answer_to_login(client, "alice", "wrong") == "Connection.Close"
    counts = few.server.logins._refusals
    assert list(counts) == ["192.0.2.7"] and counts["192.0.2.7"].count == FREE
    client = RawClient(few.port, open_now=False)
    introduce(client, "192.0.2.8")
    assert answer_to_login(client, "alice", "wrong") == "Connection.Close"
    assert few.server.logins.refused("", "192.0.2.8", "", "").delay == 0
    assert few.server.logins.refused("", "192.0.2.7", "", "").delay > 0


def answer_to_login(client: RawClient, user: str, password: str = "guest") -> str:
    client.send_bytes(HEADER)
    client.next()
    client.send(0, commands.Connection.StartOk(DEFAULT_PROPERTIES, "PLAIN", f"\0{user}\0{password}", "en_US"))
    answer = client.next()
    client.close()
    return "connection lost" if answer is None else str(answer[1].name)


def test_what_was_captured_introduces_no_other_client(few: Served, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a line that the primary has read, nor one that it never has, since it closed the connection before."""
    first, second = (RawClient(few.port, open_now=False) for _ in range(2))
    first.send_bytes(ASK)
    line = Introducer("node-2", KEY).line(nonce_for(first), PRIMARY, "127.0.0.1", 1)
    first.close()
    second.send_bytes(ASK)
    second.send_bytes(line)
    assert second.next() is None
    assert "not proved by the secret" in caplog.text and "Traceback" not in caplog.text


def test_a_client_that_introduces_itself_is_dropped(few: Served, caplog: pytest.LogCaptureFixture) -> None:
    client = RawClient(few.port, open_now=False)
    client.send_bytes(ASK)
    guess = introduction_key(b"guess", "c")
    client.send_bytes(Introducer("node-2", guess).line(nonce_for(client), PRIMARY, "127.0.0.1", 1))
    assert client.next() is None
    assert "not proved by the secret" in caplog.text and "Traceback" not in caplog.text


def test_a_server_without_a_secret_believes_no_introduction(served: Served) -> None:
    client = RawClient(served.port, open_now=False)
    client.send_bytes(ASK)
    assert client.next() is None


@pytest.mark.parametrize("said", [(b"TXH", b"O AMQP"), (b"TXHA 1 n p 127.0.0.1 1 0\r\n",)])
def test_octets_that_begin_like_an_introduction_are_a_wrong_header(served: Served, said: tuple[bytes, ...]) -> None:
    client = RawClient(served.port, open_now=False)
    for each in said:
        client.send_bytes(each)
    answer = client.next()
    assert answer is not None and answer[1] == b"AMQP\x00\x00\x09\x01"
    client.close()
