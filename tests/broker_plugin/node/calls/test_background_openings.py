"""Listeners that are opened in the background, as at a start and in an undoing: given up, or begun anew."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from broker_plugin.guard import GuardedProtocol
from broker_plugin.node.calls.actions import ActionContext
from broker_plugin.node.calls.listeners import ListenerAddress, Listeners
from txobserver.actions import SetListener

OPEN, CLOSED = SetListener(True), SetListener(False)
MADE, UNDONE = ActionContext("0" * 32, 0, False), ActionContext("0" * 32, 0, True)


class Opened:
    """A listener that was opened."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


class SlowGuard:
    """A guard whose listeners are opened when ``goes_on`` is set, or fail with ``error``. ``tasks``: those begun."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()
        self.error: OSError | None = None
        self.servers: list[Opened] = []
        self.asked = 0
        self.tasks: list[asyncio.Task[object]] = []

    def create_task(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        self.tasks.append(asyncio.create_task(work))
        return self.tasks[-1]

    def when_done(self, task: asyncio.Task[object], call: Any) -> None:
        task.add_done_callback(call)

    async def create_server(self, make: Any, host: str, port: int, backlog: int) -> Opened:
        self.asked += 1
        await self.goes_on.wait()
        if self.error is not None:
            raise self.error
        self.servers.append(Opened())
        return self.servers[-1]


def listeners(guard: Any) -> Listeners:
    found = Listeners(guard, {"x": ListenerAddress("127.0.0.1", 7)}, 0.01)
    found.make = GuardedProtocol
    return found


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_closed_while_it_is_being_opened() -> None:
    """The close came later, so it counts."""
    guard = SlowGuard()
    ours = listeners(guard)
    await ours.run("x", OPEN, UNDONE)
    await until(lambda: guard.asked)
    await ours.run("x", CLOSED, MADE)
    guard.goes_on.set()
    await asyncio.wait(guard.tasks)
    assert ours.opened == [] and [each.closed for each in guard.servers] == [True]


async def test_closed_while_its_port_is_taken() -> None:
    """Nothing opens it by itself, once the port is free: it is not tried any more."""
    guard = SlowGuard()
    guard.error = OSError(98, "Address already in use")
    guard.goes_on.set()
    ours = listeners(guard)
    await ours.run("x", OPEN, UNDONE)
    await until(lambda: guard.asked > 1)
    await ours.run("x", CLOSED, MADE)
    await asyncio.wait(guard.tasks, timeout=10)
    assert all(task.done() for task in guard.tasks)
    assert ours.opened == [] and ours.amiss() == {}


async def test_opened_in_the_background_once_more() -> None:
    """Each undoing that wants it open opens it, not the first alone."""
    guard = SlowGuard()
    guard.goes_on.set()
    ours = listeners(guard)
    for _ in range(2):
        await ours.run("x", OPEN, UNDONE)
        await until(lambda: ours.opened == ["x"])
        await ours.run("x", CLOSED, MADE)
        assert ours.opened == []


async def test_one_task_tries_however_often_it_is_undone() -> None:
    guard = SlowGuard()
    ours = listeners(guard)
    for _ in range(3):
        await ours.run("x", OPEN, UNDONE)
    assert len(guard.tasks) == 1
    guard.goes_on.set()
    await asyncio.wait(guard.tasks)
    assert ours.opened == ["x"] and len(guard.servers) == 1
