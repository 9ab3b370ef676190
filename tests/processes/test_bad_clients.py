"""What a client or a stranger does wrong costs them their connection, and no node its life."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pika
import pytest
from pamqp import body, commands, frame, header

from python_tests.harness.cluster import LocalCluster, free_base_port

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


FILES = 96
IDLE = 150
STRANGERS = 80
"""The system keeps 100 until the node accepts them."""
SEGMENT = 4096


def few_files() -> None:
    """In the process that becomes the cluster."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


def test_idle_clients_leave_a_node_the_files_that_it_needs(tmp_path: Path) -> None:
    """They need no password, and held every descriptor when the log wanted a new segment: the node ended.

    All of them come at once, as after a pause of the node, and others to the port for nodes, who do not greet either.
    More come to the port for operators, one behind the other, and ask nothing.
    """
    port, directory = free_base_port(1), tmp_path / "c"
    command = [sys.executable, "-m", "broker_plugin.cli.main", "cluster", "--dir", str(directory), "--nodes", "1"]
    command += ["--base-port", str(port), "--set", f"store.segment_bytes={SEGMENT}"]
    with ExitStack() as end:
        cluster = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=few_files)
        end.enter_context(cluster)
        end.callback(cluster.terminate)
        assert cluster.stdout is not None and cluster.stdout.readline() == "cluster ready\n"
        (node,) = json.loads((directory / "cluster.json").read_text())["nodes"]
        client = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
        channel = client.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        os.kill(node["pid"], signal.SIGSTOP)
        (line,) = peer_lines(directory / "node-1" / "node.toml")
        admin = json.loads((directory / "node-1" / "admin.json").read_text())["port"]
        strangers = [("127.0.0.1", int(line.split("=")[1]))] * STRANGERS
        idle = [end.enter_context(socket.create_connection(("127.0.0.1", port), 5)) for _ in range(IDLE)]
        for address in strangers:
            end.enter_context(socket.create_connection(address, 5))
        os.kill(node["pid"], signal.SIGCONT)
        channel.basic_publish("", "q", b"the node goes on")
        for _ in range(STRANGERS):
            end.enter_context(socket.create_connection(("127.0.0.1", admin), 5))
        for _ in range(100):
            channel.basic_publish("", "q", b"x" * 200)
        assert len(list((directory / "node-1" / "log").iterdir())) > 3, "the log has gone on to other segments"
        gone = [each for each in idle if has_ended(each)]
        assert IDLE - FILES < len(gone) < IDLE, "some of them stay"
        log = (directory / "node-1" / "node.log").read_text()
        assert "connections that have not logged in are closed" in log and "other nodes and readers are refused" in log
        assert "Too many open files" not in log
        client.close()


def has_ended(connection: socket.socket) -> bool:
    """Whether the node has closed it; it says nothing to who says nothing."""
    connection.settimeout(0.01)
    try:
        return not connection.recv(1)
    except TimeoutError:
        return False
    except OSError:
        return True


def peer_lines(config: Path) -> list[str]:
    """The line of a node's configuration with the port for its peers."""
    section = config.read_text().split("[peer]")[1]
    return [line for line in section.splitlines() if line.startswith("port")][:1]
