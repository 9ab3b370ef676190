"""Readers that say nonsense are closed, and those whose read fails are answered: the node's log is not filled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker_plugin.node import log_server
from ha.catchup.throttle import LONGEST_REST, RESTS
from recovery.reader.log_wire import MAX_PORTION, READ_VERSION, AskFrames, LogFrames, NotThere, ReadHello
from tests.broker_plugin.node.served_log import END, Node
from tests.broker_plugin.node.served_log import running_node as running_node
from txobserver.frames import encode_frame
from txobserver.ports.store import StoreError

READER = ReadHello(READ_VERSION, "c")


async def test_readers_who_say_nonsense_leave_one_line(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(5):
        talk = await node.connect(READER, b"\xc1 nonsense")
        assert not talk.reader.at_eof()
        while not talk.reader.at_eof():
            await talk.reader.read(4096)
        talk.writer.close()
    lines = [each.getMessage() for each in caplog.records]
    assert len(lines) == 1 and lines[0].startswith("closing the connection with a reader at 127.0.0.1:"), lines


async def test_readers_whose_reads_fail_leave_one_line(
    node: Node, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise ZeroDivisionError("not foreseen")

    monkeypatch.setattr(type(node.server.log), "frames", fails)
    talk = await node.connect(READER)
    for _ in range(5):
        talk.say(AskFrames(1, END, MAX_PORTION))
        assert isinstance(await talk.answer(), NotThere)
    talk.writer.close()
    assert [each.getMessage() for each in caplog.records] == [
        "a reader cannot be answered: ZeroDivisionError: not foreseen"
    ]


async def test_reader_whose_read_fails_stays_mute(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """``reader_whose_read_fails_stays_mute``: its question had no answer, and the node ended for it.

    The frame is whole, and an event in it of a kind that this version does not know.
    """
    unknown: Any = [[999, 1], [999, 2]]
    last = sorted((node.directory / "log").iterdir())[-1]
    last.write_bytes(last.read_bytes() + encode_frame(1, END + 1, unknown, 0).data)
    node.commit = END + 1
    talk = await node.connect(READER)
    for first in (END + 1, 1):
        talk.say(AskFrames(first, END + 1, MAX_PORTION))
        answer = await talk.answer()
        assert isinstance(answer, NotThere) and "its log cannot be read, ValidationError" in answer.reason
        assert not answer.reclaimed
    talk.say(AskFrames(1, END, MAX_PORTION))
    assert isinstance(await talk.answer(), LogFrames), "the connection goes on"
    assert "a reader cannot be answered: ValidationError" in caplog.text
    with pytest.raises(StoreError, match="its log cannot be read"):
        await node.read(lambda log: list(log.frames(END + 1, END + 1)))
    talk.writer.close()


async def test_a_reader_rests_after_each_portion(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """For twice as long as it took, and not for ever: so readers take a third of one thread's time, and no more."""
    rests: list[float] = []
    clock = iter([100.0, 100.05, 200.0, 300.0])  # at the beginning and end of each of two portions

    class Time:
        monotonic = staticmethod(lambda: next(clock))

    async def rest(seconds: float) -> None:
        rests.append(seconds)

    class Asyncio:
        sleep = staticmethod(rest)

        def __getattr__(self, name: str) -> Any:
            return getattr(asyncio, name)

    talk = await node.connect(READER)
    monkeypatch.setattr(log_server, "time", Time)
    monkeypatch.setattr(log_server, "asyncio", Asyncio())
    for _ in range(2):
        talk.say(AskFrames(1, END, MAX_PORTION))
        assert isinstance(await talk.answer(), LogFrames)
    talk.writer.close()
    assert rests == [pytest.approx(RESTS * 0.05), LONGEST_REST]
