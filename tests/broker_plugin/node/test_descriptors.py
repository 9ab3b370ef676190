"""What clients leave of a process's descriptors to the node itself."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.node.descriptors import RESERVED, Needs, Room, compare, raise_limit, rooms
from broker_plugin.node.proxy import FrontDoor
from tests.support.arrivals import arrivals
from tests.support.guards import strict_guard


def connected(number: int) -> Any:
    """A transport over a socket with this descriptor."""
    return SimpleNamespace(get_extra_info={"socket": SimpleNamespace(fileno=lambda: number)}.get)


def test_a_node_may_open_as_many_files_as_its_process_is_allowed_at_all() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        assert raise_limit() == hard == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        assert raise_limit() == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_clients_leave_the_reserve_and_who_else_connects_leaves_half_of_it() -> None:
    clients, others, operators = rooms(1024)
    assert (clients.end, others.end, operators.end) == (1024 - RESERVED, 1024 - RESERVED // 2, 1024 - RESERVED // 2)
    assert [room.end for room in rooms(64)] == [48, 56, 56], "of few, a quarter"


def test_who_has_a_descriptor_of_the_reserve_is_refused_and_that_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    room = Room(40, "clients")
    assert room.admit(connected(39)) and not caplog.records
    assert not room.admit(connected(40)) and not room.admit(connected(41))
    assert room.admit(connected(38)) and not room.admit(connected(40))
    (said,) = caplog.records
    assert said.levelno == logging.WARNING and "clients are refused: 40 files" in said.getMessage()
    assert room.admit(connected(35)) and not room.admit(connected(40))
    assert len(caplog.records) == 2, "there was room meanwhile"


@pytest.mark.parametrize(
    ("clients", "peers", "readers", "passes_on", "fit"),
    [
        (100, 2, 4, True, 100),
        (200, 2, 4, True, 139),
        (200, 2, 4, False, 200),
        (500, 2, 4, False, 278),
        (10, 0, 500, True, 0),
    ],
)
def test_a_node_says_at_its_start_if_it_cannot_have_all_its_clients(
    clients: int, peers: int, readers: int, passes_on: bool, fit: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Of 500 files 128 are a quarter less three; a client of a backup has two, and so have a peer and a reader."""
    needs, room = Needs(clients, peers, readers, passes_on), Room(500 - 125, "clients", 69)
    assert compare(needs, 500, room) >= clients if fit == clients else compare(needs, 500, room) == fit
    assert ("clients fit in the limit of 500 open files" in caplog.text) == (fit < clients)


def test_as_many_files_as_a_node_asks_for_are_enough(caplog: pytest.LogCaptureFixture) -> None:
    needs = Needs(10_000, 2, 64)
    compare(needs, 1024, Room(1024 - RESERVED, "clients", 40))
    (said,) = caplog.records
    needed = int(said.getMessage().partition("allow ")[2].partition(" ")[0])
    caplog.clear()
    assert needed == 20_316
    assert compare(needs, needed, Room(needed - RESERVED, "clients", 40)) == 10_000 and not caplog.records
    assert compare(needs, needed - 1, Room(needed - 1 - RESERVED, "clients", 40)) == 9_999 and caplog.records


def test_room_is_left_for_what_others_are_about_to_open() -> None:
    room = Room(40, "clients")
    room.owed = 10
    assert room.admit(connected(29)) and not room.admit(connected(30))


def test_a_transport_without_a_socket_takes_no_descriptor() -> None:
    room = Room(40, "clients")
    room.owed = 1000
    assert room.admit(asyncio.Transport())


async def test_clients_that_wait_for_a_primary_leave_room_to_pass_all_of_them_on() -> None:
    """Each of them takes a second descriptor, all at once, when a primary is known."""
    loop = asyncio.get_running_loop()
    waiting: set[FrontDoor] = set()
    newcomers = arrivals()
    with socket.socket() as probe:
        room = Room(probe.fileno() + 12, "clients")
    server = await loop.create_server(
        lambda: FrontDoor(strict_guard(), lambda: None, waiting, room, Logins({}), newcomers), "127.0.0.1", 0
    )
    writers = []
    try:
        for _ in range(12):
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writers.append(writer)  # this end has a descriptor as well
            await asyncio.sleep(0.01)
        numbers = [door._transport.get_extra_info("socket").fileno() for door in waiting if door._transport]
        assert 1 < len(numbers) == len(waiting) < 6
        assert max(numbers) + len(numbers) <= room.end
    finally:
        server.close()
        for writer in writers:
            writer.close()
