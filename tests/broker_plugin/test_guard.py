"""Whatever comes up where no code handles it ends the node; nothing of it runs afterwards."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from broker_plugin.guard import BROKEN, Guard, GuardedProtocol
from txobserver.ports.store import StoreDamaged, StoreError


class Heard:
    """A guard, and what it told."""

    def __init__(self) -> None:
        self.store: list[str] = []
        self.broken: list[str] = []
        self.ran: list[str] = []
        self.told = asyncio.Event()
        self.guard = Guard(self.on_store_error, self.on_broken)
        self.guard.watch()

    def on_store_error(self, reason: str) -> None:
        self.store.append(reason)
        self.told.set()

    def on_broken(self, reason: str) -> None:
        self.broken.append(reason)
        self.told.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self.told.wait(), 10)


def fails() -> None:
    raise KeyError("a bug")


def is_damaged() -> None:
    raise StoreDamaged("page 7 is damaged")


async def fails_later() -> None:
    await asyncio.sleep(0)
    raise KeyError("a bug")


class Bad(GuardedProtocol):
    """Fails at what a client sends."""

    def __init__(self, guard: Guard) -> None:
        self.guard = guard

    def data_received(self, data: bytes) -> None:
        raise KeyError("a bug")


def soon(heard: Heard) -> None:
    heard.guard.call_soon(fails)


def later(heard: Heard) -> None:
    heard.guard.call_later(0, fails)


def from_a_thread(heard: Heard) -> None:
    threading.Thread(target=lambda: heard.guard.call_soon_threadsafe(fails)).start()


def in_a_task(heard: Heard) -> None:
    heard.guard.create_task(fails_later())


def when_a_thread_is_done(heard: Heard) -> None:
    heard.guard.run_in_executor(None, lambda: None, lambda future: fails())


def in_a_protocol(heard: Heard) -> None:
    Bad(heard.guard).data_received(b"")


def unguarded_callback(heard: Heard) -> None:
    asyncio.get_running_loop().call_soon(fails)


def unguarded_task(heard: Heard) -> None:
    asyncio.get_running_loop().create_task(fails_later())


WAYS = [
    soon,
    later,
    from_a_thread,
    in_a_task,
    when_a_thread_is_done,
    in_a_protocol,
    unguarded_callback,
    unguarded_task,
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_an_error_breaks_the_node_once_and_nothing_runs_afterwards(way: Any) -> None:
    heard = Heard()
    way(heard)
    await heard.wait()
    assert (heard.broken, heard.store) == ([BROKEN], [])
    way(heard)
    heard.guard.call_soon(lambda: heard.ran.append("a callback"))
    heard.guard.create_task(ran(heard))
    assert heard.guard.run(lambda: 1) is None
    await asyncio.sleep(0.01)
    assert (heard.broken, heard.ran) == ([BROKEN], [])


async def test_the_log_says_where_an_unexpected_error_came_up(caplog: pytest.LogCaptureFixture) -> None:
    """With its trace (docs/log.md), and once: what is a client's own fault, and a store's error, have none."""
    heard = Heard()
    soon(heard)
    await heard.wait()
    (said,) = caplog.records
    assert said.getMessage() == "KeyError: 'a bug'" and said.exc_info and said.exc_info[0] is KeyError


async def ran(heard: Heard) -> None:
    heard.ran.append("a task")


@pytest.mark.parametrize("way", ["soon", "task", "protocol", "unguarded"])
async def test_a_stores_error_is_told_and_the_node_goes_on_to_its_end_in_order(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    if way == "soon":
        heard.guard.call_soon(is_damaged)
    elif way == "task":
        heard.guard.create_task(asyncio.sleep(0, heard.guard.run(is_damaged)))
    elif way == "protocol":
        monkeypatch.setattr(Bad, "data_received", lambda self, data: self.guard.run(is_damaged))
        Bad(heard.guard).data_received(b"")
    else:
        asyncio.get_running_loop().call_soon(is_damaged)
    await heard.wait()
    assert (heard.store, heard.broken, heard.guard.broken) == (["page 7 is damaged"], [], False)
    assert heard.guard.run(lambda: 1) == 1


async def test_who_cannot_even_leave_in_order_is_broken() -> None:
    broken: list[str] = []

    def cannot(reason: str) -> None:
        raise StoreError("not now either")

    guard = Guard(cannot, broken.append)
    guard.run(is_damaged)
    assert broken == [BROKEN] and guard.broken


async def test_the_loops_own_trouble_with_a_socket_is_nobodys_end() -> None:
    heard = Heard()
    asyncio.get_running_loop().call_exception_handler(
        {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many open files")}
    )
    asyncio.get_running_loop().call_exception_handler({"message": "Unclosed transport"})
    assert not heard.guard.broken


async def test_a_factory_of_protocols_is_guarded_too() -> None:
    heard = Heard()

    def make() -> Any:
        fails()

    server = await heard.guard.create_server(make, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    await heard.wait()
    assert heard.broken == [BROKEN]
    writer.close()
    server.close()


async def test_streams_are_guarded_too() -> None:
    heard = Heard()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()
        fails()

    server = await heard.guard.start_server(serve, "127.0.0.1", 0, 100)
    _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    await heard.wait()
    assert heard.broken == [BROKEN]
    writer.close()
    server.close()


async def test_a_task_that_is_cancelled_before_it_begins_leaves_nothing_behind() -> None:
    heard = Heard()
    task = heard.guard.create_task(fails_later())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not heard.guard.broken


CALLBACKS = [name for name in dir(asyncio.Protocol) if not name.startswith("_")]


@pytest.mark.parametrize("name", CALLBACKS)
def test_every_callback_of_a_protocol_is_guarded(name: str) -> None:
    """All that asyncio has, not those that one happens to think of."""

    def fails(self: object, *arguments: object) -> None:
        raise KeyError("a bug")

    ended: list[str] = []
    protocol: Any = type("Fails", (GuardedProtocol,), {name: fails})()
    protocol.guard = Guard(ended.append, ended.append)
    getattr(protocol, name)()
    assert len(ended) == 1 and protocol.guard.broken


async def test_a_node_counts_as_broken_before_anybody_is_told() -> None:
    """Who is told ends the node, and must find that nothing of it runs any more."""
    found: list[bool] = []
    guard = Guard(lambda reason: None, lambda reason: found.append(guard.broken))
    guard.run(lambda: 1 / 0)
    assert found == [True]


async def test_a_future_that_is_cancelled_is_told_to_nobody() -> None:
    reasons: list[str] = []
    told: list[object] = []
    guard = Guard(reasons.append, reasons.append)
    cancelled, done = (asyncio.get_running_loop().create_future() for _ in range(2))
    for future in (cancelled, done):
        guard.when_done(future, told.append)
    cancelled.cancel()
    done.set_result(1)
    await asyncio.sleep(0)
    assert told == [done] and reasons == []


def test_a_thread_that_reports_to_a_loop_that_has_ended_is_not_heard() -> None:
    guard = Guard(lambda reason: None, lambda reason: None)
    called: list[int] = []

    async def watch() -> None:
        guard.watch()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(watch())
    loop.close()
    guard.call_soon_threadsafe(lambda: called.append(1))
    assert called == []
