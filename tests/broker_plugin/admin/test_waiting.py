"""Requests that wait for what others do, and askers that go before the answer: neither takes a place from who asks for
what is answered at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.admin.lines import PIECE
from broker_plugin.admin.places import MAX_LASTING, MAX_WAITING, Waits
from broker_plugin.admin.server import MAX_CONNECTIONS, AdminServer
from broker_plugin.node.waits import WAITS
from recovery.reader.node_admin import ask
from tests.mutants.scope import ROOT
from tests.support.guards import strict_guard

MANY = MAX_CONNECTIONS + 8


class Waiting:
    """A node two of whose commands wait until ``answering``: ``call`` for as long as its asker says, ``change`` not."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.answering = asyncio.Event()
        self.begun = self.cancelled = self.ended = 0
        self.writers: list[asyncio.StreamWriter] = []
        handlers = {"call": self._wait, "change": self._wait, "status": self._status}
        waits = Waits(frozenset({"status"}), frozenset({"call"}))
        self.server = AdminServer(strict_guard(), directory, handlers, waits=waits)

    async def _wait(self, arguments: dict[str, Any]) -> Any:
        self.begun += 1
        try:
            await self.answering.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1
        return "done"

    async def _status(self, arguments: dict[str, Any]) -> Any:
        return "well"

    async def come(self, *commands: str, after: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        where = json.loads((self.directory / "admin.json").read_text())
        reader, writer = await asyncio.open_connection("127.0.0.1", where["port"])
        self.writers.append(writer)
        for each in commands:
            writer.write(json.dumps({"token": where["token"], "command": each}).encode() + b"\n")
        writer.write(after)
        return reader, writer

    async def begin(self, command: str) -> asyncio.StreamWriter:
        """Who asks for it, once it has begun."""
        before = self.begun
        _, writer = await self.come(command)
        await until(lambda: self.begun == before + 1)
        return writer

    async def refusal(self, command: str) -> str:
        """What one is told who asks for it, and goes."""
        reader, writer = await self.come(command)
        async with asyncio.timeout(10):
            answer = json.loads(await reader.readline())
        writer.close()
        return str(answer["error"])

    async def status(self) -> Any:
        return await asyncio.to_thread(ask, self.directory, "status")


async def until(what: Any) -> None:
    async with asyncio.timeout(10):
        while not what():
            await asyncio.sleep(0.002)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Waiting]:
    node = Waiting(tmp_path)
    await node.server.start()
    yield node
    node.answering.set()
    for writer in node.writers:
        writer.close()
    await until(lambda: not node.server._here and not node.server._places._taken.total())
    await node.server.stop()


async def test_calls_whose_askers_have_gone_keep_nobody_out(node: Waiting) -> None:
    """``the_node_deaf_to_every_operator``: 32 of them held all places for as long as they had said."""
    for gone in range(MANY):
        writer = await node.begin("call")
        writer.close() if gone % 2 else writer.transport.abort()
        await until(lambda: not node.server._here)
    await until(lambda: node.cancelled == MANY)
    assert await node.status() == "well"


async def test_a_change_whose_asker_has_gone_gives_its_place_back_and_comes_to_its_end(node: Waiting) -> None:
    for begun in range(1, MAX_WAITING + 1):
        (await node.begin("change")).close()
        await until(lambda: not node.server._here)
        assert node.server._places._taken.total() == begun, "it is counted as long as it runs"
    assert f"{MAX_WAITING} requests wait at this node already" in await node.refusal("change")
    assert await node.status() == "well"
    node.answering.set()
    await until(lambda: node.ended == MAX_WAITING)
    assert node.cancelled == 0


async def test_those_who_wait_leave_places_for_what_is_answered_at_once(node: Waiting) -> None:
    for _ in range(MAX_WAITING):
        await node.begin("change")
    for _ in range(MANY):
        assert await node.refusal("change") == (
            f"{MAX_WAITING} requests wait at this node already; ask again when one is answered"
        )
    assert await node.status() == "well"
    assert MAX_WAITING < MAX_CONNECTIONS


async def test_calls_that_wait_leave_places_for_changes(node: Waiting) -> None:
    for _ in range(MAX_LASTING):
        await node.begin("call")
    assert f"{MAX_LASTING} requests of this kind wait at this node already" in await node.refusal("call")
    for _ in range(MAX_WAITING - MAX_LASTING):
        await node.begin("change")
    assert f"{MAX_WAITING} requests wait" in await node.refusal("change")
    assert await node.status() == "well"


async def test_who_asks_again_meanwhile_is_answered_in_that_order(node: Waiting) -> None:
    """Also where more has come than is read ahead."""
    reader, _ = await node.come("change", "status", after=b"x" * 3 * PIECE + b"\n")
    await until(lambda: node.begun == 1)
    assert await node.status() == "well"
    node.answering.set()
    async with asyncio.timeout(30):
        answers = [json.loads(await reader.readline()) for _ in range(3)]
    assert [each.get("result") for each in answers[:2]] == ["done", "well"]
    assert "not a request" in answers[2]["error"]


def test_the_commands_that_do_not_wait_are_commands_of_the_node() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "broker_plugin" / "node").rglob("*.py"))
    assert [name for name in WAITS.at_once | WAITS.lasting if f'"{name}": ' not in sources] == []
