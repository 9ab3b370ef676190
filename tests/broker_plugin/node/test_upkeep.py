"""What a node looks after beside its work: its disk, and what it says of the room that clients have."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.amqp.alarms import LOW_ON_DISK, LOW_ON_MEMORY
from broker_plugin.amqp.loop_broker import embedded_broker
from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.amqp.server import AmqpServer
from broker_plugin.cli.tables import room_lines
from broker_plugin.node.config import parse_config
from broker_plugin.node.descriptors import Room, Rooms
from broker_plugin.node.disk_watch import DiskRoom, next_room
from broker_plugin.node.upkeep import Upkeep, clients_that_fit
from tests.support.guards import strict_guard

TEXT = 'name = "a"\ncluster = "c"\ndir = "/d"\ncoordination = "/r"\n[peer]\nport = 7\n[store]\ndisk_free_bytes = 100\n'
PEERS = '[[peers]]\nname = "b"\nport = 8\n'


def upkeep(leading: bool = True) -> Any:
    guard = strict_guard()
    server = AmqpServer(guard, embedded_broker(guard), AmqpSettings())
    config = parse_config(TEXT, Path("/d/node.toml"), environment={})
    return Upkeep(config, guard, server, lambda: leading, 77)


def look(node: Any, *free: int) -> None:
    for each in free:
        before = node._disk.room
        node._disk.room = next_room(before, 100, each)
        node._looked(before, node._disk.room)


def test_the_disk_of_the_store_is_an_alarm_before_it_is_full(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    node = upkeep()
    look(node, 500, 99, 98, 124)
    assert list(node._server.alarms.on) == [LOW_ON_DISK] and node._server.blocked == LOW_ON_DISK
    (said,) = caplog.records
    assert "99 bytes are free on the disk of /d" in said.getMessage() and "publishers are blocked" in said.getMessage()
    look(node, 125)
    assert not node._server.alarms.on and node._server.blocked is None and "publishers go on" in caplog.text


def test_a_backup_says_what_would_become_of_it(caplog: pytest.LogCaptureFixture) -> None:
    look(upkeep(leading=False), 5)
    assert "if this node becomes primary, publishers are blocked" in caplog.text


def test_a_disk_that_cannot_be_read_is_told_once_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    node = upkeep()
    look(node, 5)
    for problem in ("gone", "gone", ""):
        before = node._disk.room
        node._disk.room = before._replace(problem=problem)
        node._looked(before, node._disk.room)
    assert caplog.text.count("cannot be read: gone") == 1 and node._server.blocked == LOW_ON_DISK


def test_status_shows_what_clients_hold_and_what_they_may() -> None:
    node = upkeep()
    node._server.alarms.set(LOW_ON_MEMORY, True)
    node._server.broker.memory.shared.hold(3, 5 << 20)
    node._disk.room = DiskRoom(7 << 20)
    shown = node.shown()
    assert shown["alarms"] == ["low on memory"] and shown["clients"]["descriptors_for"] == 77
    assert shown["memory"]["held"] == shown["memory"]["queues"] == 5 << 20
    assert shown["open_work"]["most_bytes"] == 256 << 20 and shown["disk"]["free"] == 7 << 20
    first, second = room_lines({"state": "active", **shown})
    assert first == "memory of clients 5 MiB, blocked above 768 MiB; free on disk 7 MiB, blocked below 0 MiB"
    assert second.startswith("open in transactions 0 MiB of 1024 MiB; one has at most 256 MiB and 1048576 events")


def test_only_the_primary_s_clients_are_shown() -> None:
    shown = upkeep().shown()
    assert "free on disk not known" in room_lines({"state": "active", **shown})[0]
    assert room_lines({"state": "ready", **shown}) == [] == room_lines({"state": "active"})


@pytest.mark.parametrize(("more", "fit"), [("", 10_000), (PEERS, 5_000), ('backup_clients = "refuse"\n', 10_000)])
def test_who_passes_clients_on_needs_two_descriptors_for_each(more: str, fit: int) -> None:
    text = more + TEXT if more.startswith("backup") else TEXT + more
    config = parse_config(text, Path("/d/node.toml"), environment={})
    room = Rooms(*[Room(10_000 + 40 + 2 * len(config.peers) + 128 + 16, "clients", 40)] * 3)
    assert clients_that_fit(config, 20_000, room) == fit


def test_a_node_that_ends_looks_no_more() -> None:
    node = upkeep()
    stopped: list[str] = []
    node._disk = SimpleNamespace(stop=lambda: stopped.append("disk"))
    node._heap = SimpleNamespace(stop=lambda: stopped.append("heap"))
    node.stop()
    assert stopped == ["disk", "heap"]
