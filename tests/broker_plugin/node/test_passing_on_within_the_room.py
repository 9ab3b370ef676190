"""Clients of a backup have two descriptors each there, and whatever they do none of these is of the node's reserve.

Real sockets: the node's descriptors are the lowest, and those of clients and of the primary are out of the way.
"""

from __future__ import annotations

import asyncio
import fcntl
import gc
import os
import socket
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import uvloop

from broker_plugin.amqp.protocol.codec import PROTOCOL_HEADER
from broker_plugin.amqp.protocol.logins import Logins
from broker_plugin.node.descriptors import Room
from broker_plugin.node.passing import PassOn, Verdict
from broker_plugin.node.proxy import RETRY_SECONDS, FrontDoor
from tests.support.arrivals import arrivals
from tests.support.guards import StrictGuard

LOOPBACK = "127.0.0.1"
FAR = 600
"""The first descriptor of those who are not the node"""
WORD = b"x"


def far(near: socket.socket) -> socket.socket:
    """The same with a high descriptor, before any other connection can be given the number that it had."""
    moved = socket.socket(fileno=fcntl.fcntl(near.fileno(), fcntl.F_DUPFD_CLOEXEC, FAR))
    near.close()
    moved.setblocking(False)
    return moved


def lowest() -> int:
    """The descriptor that the node would be given next."""
    number = os.open(os.devnull, os.O_RDONLY)
    os.close(number)
    return number


def is_open(number: int) -> bool:
    with suppress(OSError):
        os.fstat(number)
        return True
    return False


class Noting(StrictGuard):
    """Says when a client is to be passed on later."""

    def __init__(self) -> None:
        super().__init__()
        self.later = asyncio.Event()

    def call_later(self, seconds: float, call: Callable[[], object]) -> asyncio.TimerHandle:
        if seconds == RETRY_SECONDS:
            self.later.set()
        return super().call_later(seconds, call)


class Backup:
    """Its front door, and a primary that says its word to each client that is passed on to it."""

    def __init__(self, end: ExitStack) -> None:
        self.end = end
        self.guard = Noting()
        self.arrivals = arrivals()
        self.verdict: Verdict = None
        self.word = WORD
        self.waiting: set[FrontDoor] = set()
        self.doors: list[FrontDoor] = []
        self.room: Room
        self.passed_on: list[socket.socket] = []

    async def start(self, size: int) -> Backup:
        """With room for so many descriptors."""
        loop = asyncio.get_running_loop()
        listener = self.end.enter_context(far(socket.create_server((LOOPBACK, 0), backlog=100)))
        loop.add_reader(listener, self._accept, listener)
        self.primary = PassOn(LOOPBACK, listener.getsockname()[1], 1)
        server = await loop.create_server(self._door, LOOPBACK, 0)
        self.end.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]
        self.room = Room(lowest() + size, "clients", lowest())
        return self

    async def client(self) -> socket.socket:
        client = self.end.enter_context(far(socket.socket()))
        await asyncio.get_running_loop().sock_connect(client, (LOOPBACK, self.port))
        client.send(PROTOCOL_HEADER)
        return client

    def numbers(self) -> list[int]:
        """Descriptors of clients."""
        halves = [half for door in self.doors for half in (door._transport, door._other and door._other._transport)]
        return [half.get_extra_info("socket").fileno() for half in halves if half is not None]

    def pass_on(self) -> None:
        self.verdict = self.primary
        for door in list(self.waiting):
            door.reconsider()

    def _door(self) -> FrontDoor:
        self.doors.append(
            FrontDoor(self.guard, lambda: self.verdict, self.waiting, self.room, Logins({}), self.arrivals)
        )
        return self.doors[-1]

    def _accept(self, listener: socket.socket) -> None:
        self.passed_on.append(self.end.enter_context(far(listener.accept()[0])))
        self.passed_on[-1].send(self.word)


async def word(client: socket.socket) -> bytes:
    """What it hears; nothing where it is refused."""
    with suppress(ConnectionError):
        return await asyncio.get_running_loop().sock_recv(client, 100)
    return b""


def run(test: Callable[[ExitStack], Coroutine[Any, Any, None]]) -> None:
    """In the node's kind of loop, which accepts one connection in a turn.

    What earlier tests have left to the collector is closed first: the room counts all that is open when it is made.
    """
    gc.collect()
    with ExitStack() as end, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(end), 30))


def test_clients_that_leave_and_come_back_do_not_get_the_reserve() -> None:
    """Those that come have the low numbers of those that left, below which nothing is free, and above which much is
    taken. Then each gets a second descriptor."""

    async def test(end: ExitStack) -> None:
        backup = await Backup(end).start(60)
        backup.verdict = backup.primary
        clients = [await backup.client() for _ in range(20)]
        assert [await word(each) for each in clients] == [WORD] * 20
        before = backup.numbers()
        backup.verdict = None
        for each in clients[:15]:
            each.close()
        while sum(map(is_open, before)) > 10:
            await asyncio.sleep(0.005)
        back = await asyncio.gather(*(backup.client() for _ in range(30)))
        while len(backup.doors) < 50:
            await asyncio.sleep(0.005)
        backup.pass_on()
        heard = await asyncio.gather(*map(word, back))
        assert max(backup.numbers()) < backup.room.end == lowest()
        assert heard.count(WORD) == 25 == len(backup.passed_on) - 20, "the room is used, and the others are refused"
        assert len(backup.numbers()) == 60

    run(test)


def test_a_client_waits_where_its_second_descriptor_would_be_of_the_reserve(caplog: pytest.LogCaptureFixture) -> None:
    """The node itself has opened files since the client came; some are closed later."""

    async def test(end: ExitStack) -> None:
        backup = await Backup(end).start(12)
        client = await backup.client()
        while not backup.waiting:
            await asyncio.sleep(0.005)
        with ExitStack() as files:
            while lowest() < backup.room.end:
                files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            backup.pass_on()
            while not backup.guard.later.is_set():
                assert not backup.passed_on, "with a descriptor of the reserve"
                await asyncio.sleep(0.005)
            assert not backup.passed_on and backup.waiting and len(backup.numbers()) == 1
            assert "clients are refused" in caplog.text
        assert await word(client) == WORD
        assert len(backup.numbers()) == 2 and max(backup.numbers()) < backup.room.end

    run(test)


def test_as_many_as_there_is_room_for_are_passed_on_though_they_come_at_once() -> None:
    """One whose second descriptor is open owes none, also before the primary has said a word."""

    async def test(end: ExitStack) -> None:
        backup = await Backup(end).start(60)
        backup.verdict = backup.primary
        clients = await asyncio.gather(*(backup.client() for _ in range(50)))
        heard = await asyncio.gather(*map(word, clients))
        assert heard.count(WORD) == 30 == len(backup.passed_on)
        assert len(backup.numbers()) == 60 and max(backup.numbers()) < backup.room.end == lowest()

    run(test)


def test_a_room_is_left_as_it_was_found() -> None:
    """By clients that were passed on, that waited, and whose primary ended before its first word."""

    async def test(end: ExitStack) -> None:
        backup = await Backup(end).start(60)
        clients = [await backup.client() for _ in range(3)]
        while len(backup.waiting) < 3:
            await asyncio.sleep(0.005)
        assert (backup.room.pairs, backup.room.owed) == (3, 3)
        backup.word = b""
        backup.pass_on()
        while len(backup.passed_on) < 3 or backup.room.owed:
            await asyncio.sleep(0.005)
        backup.verdict = None
        backup.passed_on[0].close()
        while backup.room.owed != 1:
            await asyncio.sleep(0.005)
        assert backup.room.pairs == 3
        for client in clients:
            client.close()
        while backup.room.pairs:
            await asyncio.sleep(0.005)
        assert backup.room.owed == 0

    run(test)


def test_who_waits_for_the_next_primary_may_take_a_second_descriptor_again() -> None:
    """The one to the former primary is closed, and its number may be another's by then."""

    async def test(end: ExitStack) -> None:
        backup = await Backup(end).start(60)
        backup.word, backup.verdict = b"", backup.primary
        await backup.client()
        while not backup.passed_on or backup.room.owed:
            await asyncio.sleep(0.005)
        backup.verdict = None
        backup.doors[0].look(backup.primary.generation + 1)
        assert (backup.room.pairs, backup.room.owed) == (1, 1)

    run(test)


def test_a_socket_that_is_made_for_a_client_does_not_block() -> None:
    with Room(1 << 20, "clients").open_socket(socket.AF_INET, socket.SOCK_STREAM, 0) as made:
        assert not made.getblocking()
