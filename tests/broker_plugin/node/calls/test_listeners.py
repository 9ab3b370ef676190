"""Listeners that calls open and close: a real socket, which takes clients or does not; and again after a restart."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_plugin.cli.layout import free_ports
from broker_plugin.guard import GuardedProtocol
from broker_plugin.node.calls.listeners import ListenerAddress
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.node.calls.one_node import CallsNode


class Greets(GuardedProtocol):
    """Says ``hello`` to a client."""

    def __init__(self, node: CallsNode) -> None:
        self.guard = node.guard

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(b"hello")


def started(
    directory: Path, port: int, open_at_once: bool = True, former: CallsNode | None = None
) -> Iterator[CallsNode]:
    node = CallsNode(directory, {"x": ListenerAddress("127.0.0.1", port)})
    if former is not None:
        node.after(former)
    if open_at_once:
        node.listeners.make = lambda: Greets(node)
    node.start()
    node.call(node.listeners.start)
    yield node
    node.stop()


def connected(port: int) -> socket.socket | None:
    """One that was greeted; None if it was refused."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), 10)
    except OSError:
        return None
    connection.settimeout(10)
    assert connection.recv(5) == b"hello"
    return connection


def test_it_is_opened_closed_and_opened_by_calls(tmp_path: Path) -> None:
    (port,) = free_ports(1, set())
    run = started(tmp_path / "a", port)
    node = next(run)
    assert connected(port) is None
    for state, opened in (("true", ["x"]), ("true", ["x"]), ("false", []), ("false", []), ("true", ["x"])):
        assert node.make("listener", name="x", open=state)["result"] == "done"
        assert node.listeners.opened == opened
        connection = connected(port)
        assert (connection is not None) == bool(opened)
        if connection is not None:
            connection.close()
    list(run)


def test_those_that_are_connected_stay(tmp_path: Path) -> None:
    (port,) = free_ports(1, set())
    run = started(tmp_path / "a", port)
    node = next(run)
    node.make("listener", name="x", open="true")
    connection = connected(port)
    assert connection is not None
    node.make("listener", name="x", open="false")
    connection.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.recv(1)
    connection.close()
    list(run)


def test_it_is_open_again_after_a_restart_as_soon_as_the_port_is_free(tmp_path: Path) -> None:
    (port,) = free_ports(1, set())
    first = started(tmp_path / "a", port)
    former = next(first)
    former.make("listener", name="x", open="true")
    list(first)
    with socket.create_server(("127.0.0.1", port)) as other:
        second = started(tmp_path / "a", port, former=former)
        node = next(second)
        assert node.listeners.opened == []
        wait_until(lambda: list(node.ask("status")["amiss"]) == ["listener x"], 10, "the reason")
        assert f"cannot be opened at 127.0.0.1:{port}" in node.ask("status")["amiss"]["listener x"]
        other.close()
        wait_until(lambda: node.listeners.opened == ["x"], 10, "the port")
        wait_until(lambda: node.ask("status")["amiss"] == {}, 10, "the end of it")
    connection = connected(port)
    assert connection is not None
    connection.close()
    list(second)


def test_what_cannot_be_opened_is_refused_with_the_reason(tmp_path: Path) -> None:
    (port,) = free_ports(1, set())
    run = started(tmp_path / "a", port)
    node = next(run)
    with socket.create_server(("127.0.0.1", port)):
        answer = node.make("listener", name="x", open="true")
        assert answer["result"] == "not made" and f"cannot be opened at 127.0.0.1:{port}" in answer["reason"]
        assert "listeners.x" in answer["reason"] and node.listeners.opened == []
    answer = node.make("listener", name="y", open="true")
    assert answer["result"] == "not made" and "has no listener 'y'" in answer["reason"]
    list(run)


def test_a_node_that_takes_no_clients_opens_none(tmp_path: Path) -> None:
    (port,) = free_ports(1, set())
    run = started(tmp_path / "a", port, open_at_once=False)
    answer = next(run).make("listener", name="x", open="true")
    assert answer["result"] == "not made" and "takes no clients at the moment" in answer["reason"]
    list(run)


def test_a_host_that_is_no_name_is_a_failure_of_the_action(tmp_path: Path) -> None:
    node = CallsNode(tmp_path / "a", {"x": ListenerAddress("a..b", 7)})
    node.listeners.make = lambda: Greets(node)
    node.start()
    answer = node.make("listener", name="x", open="true")
    assert answer["result"] == "not made" and "cannot be opened at a..b:7" in answer["reason"]
    node.stop()


def test_undone_where_the_port_is_taken(tmp_path: Path) -> None:
    """It was in force and could not be opened again: one more call that cannot open it leaves things as they were."""
    (port,) = free_ports(1, set())
    run = started(tmp_path / "a", port)
    node = next(run)
    assert node.make("listener", name="x", open="true")["result"] == "done"
    list(run)
    with socket.create_server(("127.0.0.1", port)):
        again = started(tmp_path / "a", port, former=node)
        node = next(again)
        for _ in range(2):
            answer = node.make("listener", name="x", open="true")
            assert answer["result"] == "not made" and "undone" not in answer["reason"]
        found = node.ask("status")
        assert found["own"]["begun"] is None and "listener x" in found["amiss"]
        assert node.make("log_level", level="error")["result"] == "done", "the node runs other calls"
    wait_until(lambda: node.listeners.opened == ["x"], 20, "the listener, once its port is free")
    found = connected(port)
    assert found is not None
    found.close()
    list(again)


def test_a_name_is_taken_out_of_the_nodes_file(tmp_path: Path) -> None:
    """What was in force of it could not be brought back: the call is refused before anything is run."""
    (port,) = free_ports(1, set())
    run = started(tmp_path / "a", port)
    node = next(run)
    assert node.make("listener", name="x", open="true")["result"] == "done"
    list(run)
    without = CallsNode(tmp_path / "a", {}).after(node)
    without.start()
    answer = without.make("listener", name="x", open="false")
    assert answer["result"] == "not made" and without.ask("status")["own"]["begun"] is None
    assert without.make("log_level", level="error")["result"] == "done"
    without.stop()
