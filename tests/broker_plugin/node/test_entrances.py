"""Clients that come with TLS are newcomers from their first moment, as those without."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.cli.layout import free_ports
from broker_plugin.node.amqp_config import Amqp
from broker_plugin.node.descriptors import Room
from broker_plugin.node.entrances import Entrances
from broker_plugin.tls.contexts import Contexts
from tests.broker_plugin.amqp.conftest import Served
from tests.broker_plugin.amqp.peer import HEADER
from tests.broker_plugin.amqp.test_arrivals import age
from tests.support.certificates import Authority

MOST, OF_ONE = 20, 8


class Entered(Served):
    """A broker behind a listener with TLS."""

    def __init__(self, directory: Path, room: int = 10_000) -> None:
        users = {"guest": "guest"}
        bounds = {"max_unauthenticated": MOST, "max_unauthenticated_per_address": OF_ONE}
        super().__init__(AmqpSettings(port=0, users=users, **bounds))
        self.authority = Authority(directory)
        self.tls_port = free_ports(1, set())[0]
        self.entrances = Entrances(
            self.guard,
            Amqp(plain=False, tls_port=self.tls_port, client_certificates="ask"),
            Contexts(self.authority.issue("node-1")),
            self.server.arrivals,
            Room(room, "clients"),
            self.server.connection_factory,
        )

    async def _start(self) -> None:
        await super()._start()
        await self.entrances.listen()

    def silent(self, count: int, end: ExitStack) -> list[socket.socket]:
        address = ("127.0.0.1", self.tls_port)
        return [end.enter_context(socket.create_connection(address, 20)) for _ in range(count)]

    def greeted(self) -> bytes:
        """How the broker begins with one more client."""
        with self.client() as client:
            client.sendall(HEADER)
            return client.recv(1000)

    def client(self) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.tls_port), 20)
        return self.authority.client().wrap_socket(plain, server_hostname="localhost")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Entered]:
    found = Entered(tmp_path)
    found.start()
    yield found
    found.call(found.entrances.close)
    found.stop()


def test_silent_and_half_handshakes_keep_no_client_out(served: Entered, caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as end:
        for each in served.silent(3 * OF_ONE, end):
            each.sendall(b"\x16\x03\x01\x02\x00\x01")
        served.wait_for(lambda: served.server.arrivals.newcomers.refused == 2 * OF_ONE)
        assert served.server.arrivals.newcomers.count == OF_ONE
        with pytest.raises((OSError, ssl.SSLError)):
            served.greeted()
        served.call(age, served, 2.0)
        assert b"PLAIN" in served.greeted()
    served.wait_for(lambda: served.server.arrivals.newcomers.count == 0)
    assert caplog.text.count("connections that have not logged in are closed") == 1


def test_one_that_is_encrypted_counts_on_until_it_has_logged_in(served: Entered) -> None:
    with served.client() as client:
        client.sendall(HEADER)
        assert client.recv(1000)
        assert served.server.arrivals.newcomers.count == 1 and served.server.connections == 1
    served.wait_for(lambda: served.server.arrivals.newcomers.count == 0)


def test_one_for_which_no_descriptor_is_left_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    served = Entered(tmp_path, room=1)
    served.start()
    try:
        with ExitStack() as end:
            (one,) = served.silent(1, end)
            assert one.recv(10) == b""
        assert "clients are refused" in caplog.text
    finally:
        served.call(served.entrances.close)
        served.stop()
