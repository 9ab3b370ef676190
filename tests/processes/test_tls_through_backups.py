"""Two real nodes with certificates: clients of the backup are passed on by TLS, and log in as at the primary."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.credentials import ExternalCredentials
from pika.exceptions import AMQPConnectionError, ProbableAuthenticationError

from broker_plugin.amqp.protocol.introductions import ASK, ClientWay, Introducer
from broker_plugin.cli.asking import node_status
from broker_plugin.cli.layout import NodeEntry, free_ports
from python_tests.harness.waiting import wait_until
from recovery.certificate_names import CLIENT, NODE
from recovery.secret_file import make_link_secret
from tests.support.cluster_certificates import ClusterAuthority

TXHA = (sys.executable, "-m", "broker_plugin.cli.main")
HEADER = b"AMQP\x00\x00\x09\x01"
PASSWORD = "horse-of-alice"
NAMES = ("node-1", "node-2")


class Pair:
    """``node-1`` founds the cluster and is the primary, ``node-2`` follows it. ``certified``: they have no secret."""

    def __init__(self, directory: Path, certified: bool = False) -> None:
        self.directory = directory
        self._certified = certified
        self.authority = ClusterAuthority(directory, "c")
        ports = free_ports(6, set())
        self.plain, self.secured = (dict(zip(NAMES, ports[at : at + 2], strict=True)) for at in (0, 2))
        self._peers = dict(zip(NAMES, ports[4:], strict=True))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        if not certified:
            make_link_secret(directory / "cluster.secret")
        for user in ("alice", "bob", "node-2"):
            path = directory / f"{user}.password"
            path.touch(0o600)
            path.write_text(PASSWORD + "\n")
        for name in NAMES:
            self._write(name)
        subprocess.run([*TXHA, "init", "--config", str(self.file("node-1"))], check=True, timeout=60)

    def file(self, name: str) -> Path:
        return self.directory / f"{name}.toml"

    def log(self, name: str) -> str:
        return (self.directory / f"{name}.log").read_text()

    def start(self, name: str) -> None:
        with (self.directory / f"{name}.log").open("ab") as log:
            command = [*TXHA, "node", "--config", str(self.file(name))]
            self._processes[name] = subprocess.Popen(command, stderr=log, stdout=log)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait(30)

    def stop(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def state(self, name: str) -> str:
        return str(node_status(NodeEntry(name, None, 0, self.directory / name))["state"])

    def _write(self, name: str) -> None:
        other, holder = NAMES[1 - NAMES.index(name)], self.authority.holder(NODE, name)
        users = "\n".join(f'{user} = "@{user}.password"' for user in ("alice", "bob", "node-2"))
        asks, tls = ("", "tls = true") if self._certified else ('client_certificates = "ask"', "")
        self.file(name).write_text(f"""
name = "{name}"
cluster = "c"
dir = "{self.directory / name}"
coordination = "sqlite://{self.directory}/record.sqlite"
[amqp]
port = {self.plain[name]}
tls_port = {self.secured[name]}
{asks}
[amqp.users]
{users}
[peer]
port = {self._peers[name]}
{tls}
[[peers]]
name = "{other}"
port = {self._peers[other]}
[tls]
certificate = "{holder}/certificate.pem"
key = "{holder}/key.pem"
authority = "{holder}/authority.pem"
""")

    def context(self, kind: str = "", name: str = "", cluster: str | None = None) -> ssl.SSLContext:
        """What a client uses, with this certificate if it has one."""
        found = ssl.create_default_context(cafile=str(self.directory / "ca/authority.pem"))
        if kind:
            holder = self.authority.holder(kind, name, cluster)
            found.load_cert_chain(holder / "certificate.pem", holder / "key.pem")
        return found

    def parameters(self, node: str, context: ssl.SSLContext | None, credentials: Any = None) -> Any:
        return pika.ConnectionParameters(
            "localhost",
            self.plain[node] if context is None else self.secured[node],
            credentials=credentials or pika.PlainCredentials("alice", PASSWORD),
            ssl_options=None if context is None else pika.SSLOptions(context, "localhost"),
            socket_timeout=60,
            stack_timeout=120,
            blocked_connection_timeout=120,
            heartbeat=0,
        )


@contextmanager
def running(found: Pair) -> Iterator[Pair]:
    try:
        found.start("node-1")
        wait_until(lambda: found.state("node-1") == "active", 120, "the primary")
        found.start("node-2")
        wait_until(lambda: found.state("node-2") == "ready", 120, "the backup")
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with running(Pair(tmp_path_factory.mktemp("pair"))) as found:
        yield found


def committed(parameters: Any, body: bytes) -> None:
    """A transaction with a message, which comes back."""
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.tx_select()
        channel.basic_publish("", "q", body)
        channel.tx_commit()
        _, _, found = channel.basic_get("q", auto_ack=True)
        channel.tx_commit()
        assert found == body


def offered(pair: Pair, node: str, context: ssl.SSLContext | None) -> str:
    """The mechanisms in connection.start."""
    port = pair.plain[node] if context is None else pair.secured[node]
    with ExitStack() as end:
        client: Any = end.enter_context(socket.create_connection(("localhost", port), 60))
        if context is not None:
            client = end.enter_context(context.wrap_socket(client, server_hostname="localhost"))
        client.sendall(HEADER)
        said = b""
        while not said.endswith(b"\xce"):
            said += client.recv(4096)
        at = said.index(b"AMQPLAIN PLAIN")
        return said[at : said.index(b"\x00\x00\x00\x05en_US")].decode()


def test_mechanisms_are_offered_through_a_backup_as_at_the_primary(pair: Pair) -> None:
    """A name is that of a client's certificate of this cluster, and never that of the node that passes it on."""
    all_of_them = "AMQPLAIN PLAIN EXTERNAL"
    for node in NAMES:
        assert offered(pair, node, pair.context(CLIENT, "bob")) == all_of_them
        for context in (
            None,
            pair.context(),
            pair.context(NODE, "node-2"),
            pair.context("reader", "bob"),
            pair.context(CLIENT, "bob", "another"),
        ):
            assert offered(pair, node, context) == "AMQPLAIN PLAIN"


@pytest.mark.parametrize("node", NAMES)
def test_logins_with_a_password_and_with_a_certificate(pair: Pair, node: str) -> None:
    committed(pair.parameters(node, pair.context()), b"with a password")
    committed(pair.parameters(node, pair.context(CLIENT, "bob"), ExternalCredentials()), b"with a certificate")
    committed(pair.parameters(node, None), b"in clear")
    with pytest.raises(ProbableAuthenticationError):
        committed(pair.parameters(node, pair.context(CLIENT, "mallory"), ExternalCredentials()), b"")
    with pytest.raises(AMQPConnectionError):
        committed(pair.parameters(node, pair.context(), ExternalCredentials()), b"")


@pytest.mark.parametrize("secured", [True, False], ids=["by TLS", "in clear"])
def test_the_way_between_the_nodes_is_encrypted(pair: Pair, secured: bool) -> None:
    """Also that of a client that comes in clear, where both nodes can."""
    connection = pika.BlockingConnection(pair.parameters("node-2", pair.context() if secured else None))
    found = peers_of(pair, "node-2")
    connection.close()
    assert (pair.secured["node-1"] in found, pair.plain["node-1"] in found) == (True, False)


def peers_of(pair: Pair, node: str) -> set[int]:
    """The ports to which the process of a node is connected."""
    process = pair._processes[node].pid
    inodes = set()
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        target = str(descriptor.readlink()) if descriptor.is_symlink() else ""
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    lines = [line.split() for line in Path(f"/proc/{process}/net/tcp").read_text().splitlines()[1:]]
    return {int(line[2].split(":")[1], 16) for line in lines if line[3] == "01" and line[9] in inodes}


def test_big_messages_both_ways_wait_for_who_reads_slowly(pair: Pair) -> None:
    body, count = bytes(range(256)) * (1 << 14), 24
    context = pair.context(CLIENT, "bob")
    with pika.BlockingConnection(pair.parameters("node-2", context, ExternalCredentials())) as connection:
        channel = connection.channel()
        channel.queue_declare("big", durable=True)
        channel.confirm_delivery()
        for _ in range(count):
            channel.basic_publish("", "big", body)
        consumed = channel.consume("big", auto_ack=False, inactivity_timeout=120)
        for _, (method, _, found) in zip(range(count), consumed, strict=False):
            assert method is not None and found == body
            channel.basic_ack(method.delivery_tag)
            connection.sleep(0.02)
        channel.cancel()


def said_to(pair: Pair, node: str, context: ssl.SSLContext, introducer: Introducer, way: ClientWay | None) -> bytes:
    """What a client is answered that introduces itself."""
    with (
        socket.create_connection(("localhost", pair.secured[node]), 60) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as client,
    ):
        client.sendall(ASK)
        nonce = client.recv(4096).split()[-1]
        client.sendall(introducer.line(nonce, node, "127.0.0.1", 1, way) + HEADER)
        try:
            return client.recv(4096)
        except (ConnectionResetError, ssl.SSLError):
            return b""


@pytest.mark.parametrize("node", NAMES)
def test_a_client_cannot_introduce_itself(pair: Pair, node: str) -> None:
    """Not by the certificate of a client, nor by that of a node without the cluster's secret."""
    ways = (ClientWay(True, "alice"), None)
    for kind, name in ((CLIENT, "node-2"), (CLIENT, "bob"), (NODE, "node-2")):
        context = pair.context(kind, name)
        for way in ways:
            assert said_to(pair, node, context, Introducer("node-2", b"a guess"), way) == b""
        assert said_to(pair, node, context, Introducer("node-2", None), ways[0]) == b""
    wait_until(lambda: "introduction is not proved" in pair.log(node), 60, "the line")


def test_a_client_of_the_backup_outlives_its_primary(pair: Pair) -> None:
    """The last test of these: what waits at the backup is served when that is the primary."""
    pair.kill("node-1")
    done: list[str] = []

    def comes() -> None:
        committed(pair.parameters("node-2", pair.context(CLIENT, "bob"), ExternalCredentials()), b"afterwards")
        done.append("bob")

    def retried() -> bool:
        try:
            comes()
        except AMQPConnectionError:
            return False
        return True

    thread = threading.Thread(target=lambda: wait_until(retried, 120, "a login"))
    thread.start()
    wait_until(lambda: pair.state("node-2") == "active", 120, "the take-over")
    thread.join(120)
    assert done == ["bob"]
    assert "is not passed on" not in pair.log("node-2")


def test_nodes_that_have_no_secret_introduce_clients_by_their_certificates(tmp_path: Path) -> None:
    """Also where the certificates of clients are not asked for: then none is offered EXTERNAL."""
    with running(Pair(tmp_path, certified=True)) as pair:
        for node in NAMES:
            for context in (None, pair.context(), pair.context(CLIENT, "bob")):
                assert offered(pair, node, context) == "AMQPLAIN PLAIN"
        for context in (None, pair.context()):
            with pika.BlockingConnection(pair.parameters("node-2", context)):
                found = peers_of(pair, "node-2")
                assert (pair.secured["node-1"] in found, pair.plain["node-1"] in found) == (True, False)
            committed(pair.parameters("node-2", context), b"a message")
        for kind, name in ((CLIENT, "node-2"), (NODE, "node-1")):
            forged = Introducer("node-2", None)
            assert said_to(pair, "node-1", pair.context(kind, name), forged, ClientWay(True, "alice")) == b""
        assert not (tmp_path / "cluster.secret").exists()
