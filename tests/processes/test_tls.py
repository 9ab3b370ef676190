"""A real node with TLS: pika, aio-pika and kombu, logins by certificate, and clients that are refused."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import aio_pika
import kombu
import pika
import pytest
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError

from broker_plugin.cli.layout import free_ports
from broker_plugin.tls.files import TlsFiles
from python_tests.harness.cluster import LocalCluster, free_base_port
from python_tests.harness.waiting import wait_until
from tests.support.certificates import Authority

HEADER = b"AMQP\x00\x00\x09\x01"
PASSWORD = "horse-of-alice"


class Secured:
    """A node whose clients may come with TLS, and with a certificate if they have one."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ours")
        self.stranger = Authority(directory / "theirs", "another authority")
        self.files = self.authority.issue("node-1")
        self.port = free_ports(1, set())[0]
        for name, password in (("alice", PASSWORD), ("guest", "guest")):
            path = directory / f"{name}.password"
            path.touch(0o600)
            path.write_text(password + "\n")
        self.settings = {
            "tls.certificate": self.files.certificate,
            "tls.key": self.files.key,
            "tls.authority": self.files.authority,
            "amqp.tls_port": self.port,
            "amqp.client_certificates": "ask",
            "amqp.users.alice": f"@{directory / 'alice.password'}",
            "amqp.users.guest": f"@{directory / 'guest.password'}",
        }
        self.cluster = LocalCluster(directory / "cluster", 1, *self.options())

    def options(self) -> list[str]:
        return [word for key, value in self.settings.items() for word in ("--set", f"{key}={value}")]

    @property
    def log(self) -> str:
        return (self.cluster.directory / "node-1" / "node.log").read_text()

    def parameters(
        self, context: ssl.SSLContext, credentials: Any = None, port: int | None = None
    ) -> pika.ConnectionParameters:
        return pika.ConnectionParameters(
            "localhost",
            port or self.port,
            credentials=credentials or pika.PlainCredentials("alice", PASSWORD),
            ssl_options=pika.SSLOptions(context, "localhost"),
            socket_timeout=20,
            blocked_connection_timeout=30,
        )

    def round(self, parameters: pika.ConnectionParameters, size: int = 4) -> None:
        """A transaction with a message, which comes back."""
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.tx_select()
            channel.basic_publish("", "q", bytes(size))
            channel.tx_commit()
            found = channel.basic_get("q", auto_ack=True)
            channel.tx_commit()
            assert found[2] == bytes(size)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    node = Secured(tmp_path_factory.mktemp("tls"))
    with node.cluster:
        wait_until(node.cluster.all_ready, 60, "the node")
        yield node


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [4, 5 << 20])
def test_pika_with_a_password(secured: Secured, version: ssl.TLSVersion, size: int) -> None:
    context = secured.authority.client(maximum_version=version, minimum_version=version)
    secured.round(secured.parameters(context), size)


def test_pika_with_its_certificate(secured: Secured) -> None:
    context = secured.authority.client(secured.authority.issue("alice"))
    secured.round(secured.parameters(context, ExternalCredentials()))
    secured.round(secured.parameters(context))  # a client with a certificate may give a password


def test_a_certificate_of_no_user_is_refused_and_told(secured: Secured) -> None:
    context = secured.authority.client(secured.authority.issue("mallory"))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        secured.round(secured.parameters(context, ExternalCredentials()))
    wait_until(lambda: "the login of 'mallory' from 127.0.0.1 is refused" in secured.log, 20, "the line")
    assert "its certificate (EXTERNAL) stands for no user that there is" in secured.log


def test_without_a_certificate_external_is_not_offered(secured: Secured) -> None:
    with pytest.raises(AMQPConnectionError):
        secured.round(secured.parameters(secured.authority.client(), ExternalCredentials()))


def test_the_plain_port_goes_on(secured: Secured) -> None:
    login = pika.PlainCredentials("alice", PASSWORD)
    plain = pika.ConnectionParameters("localhost", secured.cluster.ports[0], credentials=login)
    secured.round(plain)


async def test_aio_pika_with_a_certificate_of_its_own(secured: Secured) -> None:
    files = secured.authority.issue("alice", file="aio")
    context = secured.authority.client(files)
    url = f"amqps://localhost:{secured.port}/?auth=EXTERNAL"
    connection = await aio_pika.connect(url, ssl_context=context)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("aio", durable=True)
        await channel.default_exchange.publish(aio_pika.Message(b"m"), "aio")
        found = await asyncio.wait_for(queue.get(), 20)
        assert found is not None and found.body == b"m"
        await found.ack()


def test_kombu_with_a_password_and_with_a_certificate(secured: Secured) -> None:
    files = secured.authority.issue("alice", file="kombu")
    known = {"ca_certs": str(secured.authority.file), "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "localhost"}
    own = {"certfile": str(files.certificate), "keyfile": str(files.key)}
    ways = [(known, {"userid": "alice", "password": PASSWORD}), ({**known, **own}, {"login_method": "EXTERNAL"})]
    for options, login in ways:
        with kombu.Connection(
            hostname="localhost", port=secured.port, transport="pyamqp", ssl=options, **login
        ) as connection:
            queue = connection.SimpleQueue("kombu")
            queue.put("m")
            found = queue.get(timeout=20)
            assert found.payload == "m"
            found.ack()
            queue.close()


def bad(secured: Secured, name: str) -> TlsFiles:
    if name == "expired":
        return secured.authority.issue("alice", until=timedelta(hours=-1), file="expired")
    return secured.stranger.issue("alice", file="stranger")


@pytest.mark.parametrize("name", ["expired", "of another authority"])
def test_a_bad_certificate_is_refused_also_with_a_password(secured: Secured, name: str) -> None:
    context = secured.authority.client(bad(secured, name))
    with pytest.raises((AMQPConnectionError, ssl.SSLError, OSError)):
        secured.round(secured.parameters(context))
    wait_until(lambda: "its certificate is not accepted" in secured.log, 20, "the line")


def test_plain_amqp_at_the_port_of_tls_has_a_clear_end(secured: Secured) -> None:
    with socket.create_connection(("127.0.0.1", secured.port), 20) as client:
        client.sendall(HEADER)
        while client.recv(1000):
            pass


def test_tls_at_the_plain_port_has_a_clear_end(secured: Secured) -> None:
    with pytest.raises((AMQPConnectionError, ssl.SSLError, OSError)):
        secured.round(secured.parameters(secured.authority.client(), port=secured.cluster.ports[0]))


# -- three nodes whose operators come with TLS


class Doors:
    """Three nodes with one certificate, and HTTPS for their operators."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "ours")
        self.files = self.authority.issue("localhost", file="nodes")
        self.base = free_base_port(3)
        given = {"tls.certificate": self.files.certificate, "tls.key": self.files.key, "http.tls": "true"}
        given |= {"tls.authority": self.files.authority, "timing.call_retry": "0.2"}
        options = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
        self.cluster = LocalCluster(directory / "cluster", 3, "--http-port", str(self.base), *options)

    def renew(self, days: int) -> None:
        self.authority.issue("localhost", until=timedelta(days=days), file="nodes")

    def call(self) -> subprocess.CompletedProcess[str]:
        where = ("--dir", str(self.cluster.directory), "--node", "node-2", "--timeout", "20")
        words = [sys.executable, "-m", "broker_plugin.cli.main", "calls", "call", "certificates", *where]
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    def served(self, node: int) -> str:
        """When the certificate expires by which this node answers; empty where it answers a request with none."""
        context = self.authority.client()
        try:
            with (
                socket.create_connection(("127.0.0.1", self.base + node), 20) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as client,
            ):
                client.sendall(b"GET /health/live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
                found = client.getpeercert()
                return str(found["notAfter"]) if found and b"200" in client.recv(1000) else ""
        except OSError:
            return ""

    def expiries(self) -> set[str]:
        return {each["certificate"]["not_after"] for each in self.cluster.status()}


def test_other_certificates_are_in_force_at_all_nodes_after_one_call(tmp_path: Path) -> None:
    doors = Doors(tmp_path)
    with doors.cluster as cluster:
        wait_until(cluster.all_ready, 60, "all nodes")
        wait_until(lambda: all(map(doors.served, range(3))), 60, "the doors")
        (first,), before = doors.expiries(), [doors.served(node) for node in range(3)]
        doors.renew(9)
        assert doors.call().returncode == 0
        wait_until(lambda: first not in doors.expiries() and len(doors.expiries()) == 1, 30, "the other certificate")
        wait_until(lambda: all(doors.served(node) not in ("", before[node]) for node in range(3)), 30, "at the doors")
        (second,) = doors.expiries()
        doors.renew(-1)
        done = doors.call()
        assert done.returncode != 0 and "has expired" in done.stdout + done.stderr
        assert doors.expiries() == {second}
