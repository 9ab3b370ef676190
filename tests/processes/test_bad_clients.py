"""What a client or a stranger does wrong costs them their connection, and no node its life."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pamqp import body, commands, frame, header

from python_tests.processes import LocalCluster

HELLO = b"AMQP\x00\x00\x09\x01"
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path / "cluster") as running:
        yield running


def conversation() -> list[bytes]:
    """What a client says from its first byte on, without waiting for answers, which it may do up to the deliveries."""
    basic, queue = commands.Basic, commands.Queue
    content = (header.ContentHeader(0, 3000, basic.Properties()), body.ContentBody(b"m" * 3000))
    message = (basic.Publish(0, "", "q"), *content)
    opening = [
        (0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US")),
        (0, commands.Connection.TuneOk(2047, 131072, 0)),
        (0, commands.Connection.Open("/")),
        (1, commands.Channel.Open()),
        (1, queue.Declare(queue="q", durable=True)),
    ]
    working = [*message * 5, basic.Consume(queue="q"), commands.Tx.Select(), *message, basic.Get(queue="q")]
    said = [(1, each) for each in (*working, commands.Tx.Commit(), commands.Channel.Close(200, "", 0, 0))]
    return [HELLO, *(frame.marshal(each, channel) for channel, each in opening + said)]


def spoilt(chance: random.Random, words: list[bytes]) -> bytes:
    """A beginning of it, cut anywhere, and maybe with a few other bytes in it."""
    data = bytearray(b"".join(words[: chance.randrange(1, len(words) + 1)]))
    for _ in range(chance.choice((0, 0, 1, 3, 10))):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data[: chance.randrange(len(data) + 1)])


def say(chance: random.Random, port: int, data: bytes) -> None:
    """Say it in pieces, listen for a moment or not, and go in one of the ways in which clients go."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.settimeout(chance.choice((0.001, 0.02)))
        try:
            for at in range(0, len(data), step := chance.choice((7, 100, 5000, 1 << 20))):
                connection.sendall(data[at : at + step])
                if step == 7 and at > 700:
                    break
            if chance.random() < 0.3:
                connection.shutdown(socket.SHUT_WR)
            while chance.random() < 0.7 and connection.recv(1 << 16):
                pass
        except OSError:
            pass
        if chance.random() < 0.5:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)


def test_no_client_ends_a_node(cluster: LocalCluster) -> None:
    """At the primary, through the backups, and at the ports that only nodes and readers should use."""
    chance, words = random.Random(14), conversation()
    nodes = [f"node-{number}" for number in range(1, cluster.count + 1)]
    before = [cluster.pid(node) for node in nodes]
    peers = [int(line.split("=")[1]) for node in nodes for line in peer_lines(cluster.directory / node / "node.toml")]
    for _ in range(600):
        say(chance, chance.choice(cluster.ports), spoilt(chance, words))
    for _ in range(150):
        say(chance, chance.choice(peers), chance.randbytes(chance.randrange(1, 300)))
    assert [cluster.pid(node) for node in nodes] == before
    assert cluster.all_ready()
    for node in nodes:
        log = (cluster.directory / node / "node.log").read_text()
        assert "txha.guard" not in log and "Traceback" not in log


def peer_lines(config: Path) -> list[str]:
    """The line of a node's configuration with the port for its peers."""
    section = config.read_text().split("[peer]")[1]
    return [line for line in section.splitlines() if line.startswith("port")][:1]
