"""Sockets that say nothing: they keep no client out, and no node from its files."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pika
from pamqp import commands, frame

from python_tests.harness.cluster import free_base_port
from recovery.reader.node_admin import ask
from tests.broker_plugin.amqp.peer import HEADER

FILES = 160
FILES_OF_A_BACKUP = 320
IDLE = 400
CLIENTS = 12
SEGMENT = 4096


def few_files(files: int = FILES) -> None:
    """In the process that becomes the cluster."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))


def test_idle_sockets_keep_out_no_client_and_end_no_node(tmp_path: Path) -> None:
    """More than twice as many as the node may open files, from the address that clients come from as well.

    The node ended at the next segment of its log, and no client could log in.
    """
    port, directory = free_base_port(1), tmp_path / "c"
    command = [sys.executable, "-m", "broker_plugin.cli.main", "cluster", "--dir", str(directory), "--nodes", "1"]
    command += ["--base-port", str(port), "--set", f"store.segment_bytes={SEGMENT}"]
    with ExitStack() as end:
        cluster = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=few_files)
        end.enter_context(cluster)
        end.callback(cluster.terminate)
        assert cluster.stdout is not None and cluster.stdout.readline() == "cluster ready\n"
        (before,) = json.loads((directory / "cluster.json").read_text())["nodes"]
        for _ in range(IDLE):
            end.enter_context(socket.create_connection(("127.0.0.1", port), 5))
        clients = [connect(port) for _ in range(CLIENTS)]
        for number, client in enumerate(clients):
            channel = client.channel()
            channel.queue_declare("q", durable=True)
            channel.tx_select()
            for _ in range(10):
                channel.basic_publish("", "q", b"x" * 200)
            channel.tx_commit()
            assert channel.queue_declare("q", passive=True).method.message_count == 10 * (number + 1)
        assert len(list((directory / "node-1" / "log").iterdir())) > 5, "the log has gone on to other segments"
        (after,) = json.loads((directory / "cluster.json").read_text())["nodes"]
        log = (directory / "node-1" / "node.log").read_text()
        assert after["pid"] == before["pid"] and cluster.poll() is None
        assert "Too many open files" not in log and "Traceback" not in log
        assert "connections that have not logged in are closed" in log
        assert f"clients fit in the limit of {FILES} open files, and amqp.max_connections is 10000" in log
        for client in clients:
            client.close()


def test_idle_sockets_at_a_backup_keep_no_client_out(tmp_path: Path) -> None:
    """More than the backup may open files. ``idle_sockets_at_a_backup``: it dialled the primary for each of them, so
    that they filled both, and clients waited for a quarter of a minute at the one and at the other.

    The primary is not told of them, and what it is told of a client that does speak is the client's own address.
    """
    base, directory = free_base_port(3), tmp_path / "c"
    command = [sys.executable, "-m", "broker_plugin.cli.main", "cluster", "--dir", str(directory), "--nodes", "3"]
    command += ["--base-port", str(base)]
    with ExitStack() as end:
        limit = partial(few_files, FILES_OF_A_BACKUP)
        cluster = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=limit)
        end.enter_context(cluster)
        end.callback(cluster.terminate)
        assert cluster.stdout is not None and cluster.stdout.readline() == "cluster ready\n"
        nodes = {node["name"]: node for node in json.loads((directory / "cluster.json").read_text())["nodes"]}
        states = {name: ask(directory / name, "status") for name in nodes}
        (primary,) = [name for name, status in states.items() if status["state"] == "active"]
        backup = next(name for name in nodes if name != primary)
        ports = {name: node["amqp_port"] for name, node in nodes.items()}
        for _ in range(IDLE):
            end.enter_context(socket.create_connection(("127.0.0.1", ports[backup]), 5))
        clients = [connect(ports[name]) for name in (backup, primary) * 3]
        for client in clients:
            channel = client.channel()
            channel.queue_declare("q", durable=True)
            channel.tx_select()
            channel.basic_publish("", "q", b"x")
            channel.tx_commit()
        stranger = end.enter_context(
            socket.create_connection(("127.0.0.1", ports[backup]), 5, source_address=("127.0.0.2", 0))
        )
        stranger.sendall(HEADER + frame.marshal(commands.Connection.StartOk({}, "PLAIN", "\0eve\0guess", "en_US"), 0))
        while stranger.recv(1 << 16):
            pass
        logs = {name: (directory / name / "node.log").read_text() for name in nodes}
        assert "connections that have not logged in are closed" in logs[backup]
        assert "connections that have not logged in are closed" not in logs[primary], "it was told of none of them"
        (refused,) = [line for line in logs[primary].splitlines() if "eve" in line]
        assert "127.0.0.2" in refused, "it comes from there, and not from the backup"
        for name, log in logs.items():
            assert "Too many open files" not in log and "Traceback" not in log, name
        for client in clients:
            client.close()


def connect(port: int) -> pika.BlockingConnection:
    """As a client does that is refused while strangers who have just come are given their time to log in."""
    parameters = pika.ConnectionParameters("127.0.0.1", port, connection_attempts=50, retry_delay=0.2)
    return pika.BlockingConnection(parameters)
