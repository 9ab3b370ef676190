"""Readers that know the secret for readers and say nonsense: closed, and they do not fill the node's log."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.reader.log_wire import MAX_PORTION, READ_VERSION, AskFrames, NotThere, ReadHello
from tests.broker_plugin.node.served_log import END, Node
from tests.broker_plugin.node.served_log import running_node as running_node

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
