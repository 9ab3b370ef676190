"""Connections of operators, and of strangers, that end while their lines are answered: the node goes on.

In the node's own event loop: asyncio's takes what is written to a connection that is closed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker_plugin.admin import server as server_module
from broker_plugin.admin.server import AdminServer
from broker_plugin.guard import Guard

MANY = 20_000
Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def run() -> Run:
    def in_time(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test, 30))

    return in_time


async def status(arguments: dict[str, Any]) -> Any:
    return "well"


def test_a_stranger_makes_room_in_the_middle_of_its_lines(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needed no token to end the node: what it had said before was answered on a connection that was closed
    (``stranger_answered_after_making_room``)."""
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 1)
    wrong: list[str] = []

    async def story() -> None:
        server = AdminServer(Guard(wrong.append, wrong.append), tmp_path, {"status": status})
        await server.start()
        where = json.loads((tmp_path / "admin.json").read_text())
        stranger, says = await asyncio.open_connection("127.0.0.1", where["port"])
        says.write(b"\n" * MANY)
        assert b"not a request" in await stranger.readline()
        operator, asks = await asyncio.open_connection("127.0.0.1", where["port"])
        asks.write(json.dumps({"token": where["token"], "command": "status"}).encode() + b"\n")
        assert json.loads(await operator.readline()) == {"ok": True, "result": "well"}
        assert (await stranger.read()).count(b"\n") < MANY - 1, "it was answered to the end: nothing was shown"
        for writer in (says, asks):
            writer.close()
        await server.stop()

    run(story())
    assert wrong == []


def test_a_node_that_stops_says_nothing_of_those_who_are_served(run: Run, tmp_path: Path) -> None:
    """Their tasks are cancelled: that is no error, and has no trace (``admin_served_while_stopping``)."""
    reported: list[dict[str, Any]] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        server = AdminServer(Guard(lambda _: None, lambda _: None), tmp_path, {"status": status})
        await server.start()
        where = json.loads((tmp_path / "admin.json").read_text())
        before = asyncio.all_tasks()
        reader, writer = await asyncio.open_connection("127.0.0.1", where["port"])
        writer.write(b"\n")
        await reader.readline()
        served = asyncio.all_tasks() - before
        assert served, "it is served by a task"
        while not all(task.done() for task in served):  # wait_for may swallow one
            for task in served:
                task.cancel()
            await asyncio.sleep(0)
        writer.close()
        await server.stop()

    run(story())
    assert reported == []
