"""A line of JSON each way: who may ask, what is answered, and what happens when the other side misbehaves."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.admin import server as server_module
from broker_plugin.admin.server import AdminServer, CommandRefused
from broker_plugin.guard import Guard
from recovery.reader.node_admin import LONGEST_LINE, MAX_LINE, AdminError, AnswerLost, RequestTooLong, ask
from tests.support.guards import strict_guard


async def echo(arguments: dict[str, Any]) -> Any:
    return arguments


async def refuse(arguments: dict[str, Any]) -> Any:
    raise CommandRefused("not today")


async def fail(arguments: dict[str, Any]) -> Any:
    raise KeyError("a bug")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Path]:
    directory = tmp_path / "node-1"
    directory.mkdir()
    server = AdminServer(strict_guard(), directory, {"echo": echo, "refuse": refuse})
    await server.start()
    yield directory
    await server.stop()
    assert not (directory / "admin.json").exists()


async def told(directory: Path, command: str, arguments: dict[str, Any] | None = None) -> Any:
    return await asyncio.to_thread(ask, directory, command, arguments)


async def line(directory: Path, text: bytes) -> bytes:
    """The answer to this text, as it comes."""
    port = json.loads((directory / "admin.json").read_text())["port"]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text)
    try:
        return await reader.readline()
    finally:
        writer.close()


async def test_an_error_in_a_command_ends_the_node(tmp_path: Path) -> None:
    """It may have come up in the middle of anything; the client that asked hears of it all the same."""
    reasons: list[str] = []
    server = AdminServer(Guard(reasons.append, reasons.append), tmp_path, {"fail": fail})
    await server.start()
    with pytest.raises(AdminError, match="the node failed at fail; its log says why"):
        await told(tmp_path, "fail")
    assert len(reasons) == 1 and "wrong state" in reasons[0]
    await server.stop()


async def test_a_command_is_answered(node: Path) -> None:
    assert await told(node, "echo", {"a": [1, "é"]}) == {"a": [1, "é"]}
    assert await told(node, "echo") == {}


async def test_only_the_owner_can_read_the_token(node: Path) -> None:
    assert (node / "admin.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in node.iterdir()] == ["admin.json"]


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("refuse", "not today"),
        ("nonsense", "unknown command 'nonsense'"),
    ],
)
async def test_refusals_are_sentences(node: Path, command: str, sentence: str) -> None:
    with pytest.raises(AdminError) as found:
        await told(node, command)
    assert str(found.value) == sentence
    assert await told(node, "echo", {"still": "there"}) == {"still": "there"}


@pytest.mark.parametrize("token", ["", "wrong", "é"])
async def test_a_wrong_token(node: Path, token: str) -> None:
    where = json.loads((node / "admin.json").read_text())
    (node / "admin.json").write_text(json.dumps({**where, "token": token}))
    with pytest.raises(AdminError, match="the token is wrong"):
        await told(node, "echo")


@pytest.mark.parametrize("text", [b"[1]\n", b"\n", b"\xff\xfe\n", b'{"token": 1}\n', b'{"command": "echo"}\n'])
async def test_what_is_no_request_is_answered_as_such(node: Path, text: bytes) -> None:
    answer = json.loads(await line(node, text))
    assert answer["ok"] is False and answer["error"].startswith("not a request")


async def test_a_line_without_end_ends_the_connection_only(node: Path) -> None:
    with contextlib.suppress(ConnectionError):
        assert await line(node, b"x" * (2 * MAX_LINE)) == b""
    assert await told(node, "echo") == {}


async def test_an_operator_sends_a_line_as_long_as_an_import_needs(node: Path) -> None:
    """``the_import_that_no_line_could_hold``: of more than a megabyte it was told that the node gave no answer."""
    for size in (MAX_LINE - 200, MAX_LINE, 3 * MAX_LINE, LONGEST_LINE - 200):
        text = "x" * size
        assert (await told(node, "echo", {"a": text}))["a"] == text


async def test_a_stranger_sends_no_long_line(node: Path) -> None:
    """Nor does who has the token, before it has shown it."""
    where = json.loads((node / "admin.json").read_text())
    for token in ("none", where["token"]):
        request = {"token": token, "command": "echo", "arguments": {"a": "x" * MAX_LINE}}
        with contextlib.suppress(ConnectionError):
            assert await line(node, json.dumps(request).encode() + b"\n") == b""
    (node / "admin.json").write_text(json.dumps({**where, "token": "none"}))
    with pytest.raises(AdminError, match=r"^the token is wrong$"):
        await told(node, "echo", {"a": "x" * MAX_LINE})


async def test_a_request_that_no_node_would_read_is_refused_before_it_is_sent(node: Path) -> None:
    with pytest.raises(RequestTooLong, match=f"{LONGEST_LINE} at most may be: split it"):
        await told(node, "echo", {"a": "x" * LONGEST_LINE})


def test_a_node_that_does_not_run(tmp_path: Path) -> None:
    directory = tmp_path / "node-7"
    directory.mkdir()
    with pytest.raises(AdminError, match=r"^node-7 does not run$"):
        ask(directory, "status")
    with socket.socket() as unused:  # the file of a killed node stays
        unused.bind(("127.0.0.1", 0))
        _points_to(directory, unused.getsockname()[1])
        with pytest.raises(AdminError, match=r"^node-7 does not run$"):
            ask(directory, "status")


def test_a_node_that_hangs(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        _points_to(tmp_path, silent.getsockname()[1])
        with pytest.raises(AnswerLost, match=r"does not answer within 0\.05 s"):
            ask(tmp_path, "status", timeout=0.05)


@pytest.mark.parametrize("answer", [b"", b"AMQP\x00\x00\x09\x01\n", b"[]\n", b"{}\n"])
def test_a_port_that_somebody_else_has_now(tmp_path: Path, answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        _points_to(tmp_path, other.getsockname()[1])

        def answering() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=answering)
        thread.start()
        with pytest.raises(AdminError):
            ask(tmp_path, "status")
        thread.join()


@pytest.mark.parametrize("text", ["", "[]", '{"port": "x", "token": "y"}', '{"token": "y"}'])
def test_a_damaged_admin_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "admin.json").write_text(text)
    with pytest.raises(AdminError, match="does not answer"):
        ask(tmp_path, "status")


def _points_to(directory: Path, port: int) -> None:
    (directory / "admin.json").write_text(json.dumps({"port": port, "token": "t"}))


MUCH = 16 << 20
"""Bytes that are more than the system keeps for who does not read"""


class Connecting:
    """Those who connect to a node's port, one at a time: each is here when the next one comes.

    ``admitted``: the server's ends of their connections.
    """

    def __init__(self, server: AdminServer, directory: Path, admitted: list[Any]) -> None:
        self.server = server
        self.admitted = admitted
        self.directory = directory
        self.writers: list[asyncio.StreamWriter] = []

    async def come(self, request: dict[str, Any] | None = None, end: bytes = b"\n") -> asyncio.StreamReader:
        """Say nothing, or ask."""
        where = json.loads((self.directory / "admin.json").read_text())
        reader, writer = await asyncio.open_connection("127.0.0.1", where["port"])
        self.writers.append(writer)
        if request is not None:
            writer.write(json.dumps({"token": where["token"], **request}).encode() + end)
        return reader

    async def until(self, here: int) -> None:
        """So many are here."""
        async with asyncio.timeout(10):
            while len(self.server._here) != here:
                await asyncio.sleep(0.005)


@pytest.fixture
async def connecting(tmp_path: Path) -> AsyncIterator[Connecting]:
    async def slow(arguments: dict[str, Any]) -> Any:
        await asyncio.sleep(3 * server_module.SILENCE_SECONDS)

    async def much(arguments: dict[str, Any]) -> Any:
        return "x" * MUCH

    admitted: list[Any] = []

    def admit(transport: asyncio.BaseTransport) -> bool:
        admitted.append(transport)
        return True

    server = AdminServer(strict_guard(), tmp_path, {"echo": echo, "slow": slow, "much": much}, admit)
    connecting = Connecting(server, tmp_path, admitted)
    await connecting.server.start()
    yield connecting
    await connecting.server.stop()
    for writer in connecting.writers:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether it has been closed, and nothing been said."""
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            return await reader.read() == b""
    return True


async def test_who_connects_to_the_port_for_operators_and_says_nothing_does_not_stay(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need no token, and held every descriptor of the node. Nor does a part of a request make them stay."""
    monkeypatch.setattr(server_module, "SILENCE_SECONDS", 0.05)
    for reader in [await connecting.come(), await connecting.come({"command": "echo"}, end=b"")]:
        assert await ended(reader)
    await connecting.until(0)


async def test_an_answer_that_nobody_takes_is_not_kept(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one who has gone silent, and of one who has said that nothing more comes."""
    monkeypatch.setattr(server_module, "SILENCE_SECONDS", 0.05)
    large = {"command": "echo", "arguments": {"a": "x" * (MAX_LINE - 200)}}
    for says_no_more in (False, True):
        reader = await connecting.come(large)
        writer = connecting.writers[-1]
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            writer.write(json.dumps({"token": connecting.server._token, **large}).encode() + b"\n")
        if says_no_more:
            writer.write_eof()
        await connecting.until(1)
        await connecting.until(0)


async def test_an_answer_that_nobody_takes_waits_in_no_buffer(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system does not take is dropped with the connection."""
    monkeypatch.setattr(server_module, "SILENCE_SECONDS", 0.05)
    reader = await connecting.come({"command": "much"})
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    await connecting.until(1)
    await connecting.until(0)
    assert [transport.get_write_buffer_size() for transport in connecting.admitted] == [0]


async def test_few_are_at_the_port_for_operators_at_a_time(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 2)
    readers = []
    for here in (1, 2):
        readers.append(await connecting.come())
        await connecting.until(here)
    await connecting.come()
    assert await ended(readers[0])
    await connecting.until(2)


async def test_another_user_of_the_machine_keeps_no_operator_out(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``the_port_for_operators_is_full``: who held its 32 connections had every node shown as down. Who has shown the
    token stays."""
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 2)
    strangers = [await connecting.come({"command": "echo", "token": "none"})]
    await connecting.until(1)
    operator = await connecting.come({"command": "echo", "arguments": {"a": 1}})
    async with asyncio.timeout(10):
        assert json.loads(await operator.readline())["ok"]
    for _ in range(3):
        strangers.append(await connecting.come())
        assert await told(connecting.directory, "echo", {"a": 2}) == {"a": 2}
    connecting.writers[1].write(json.dumps({"token": connecting.server._token, "command": "echo"}).encode() + b"\n")
    async with asyncio.timeout(10):
        assert json.loads(await operator.readline())["ok"]


async def test_operators_alone_leave_no_room(connecting: Connecting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 2)
    for _ in range(2):
        operator = await connecting.come({"command": "echo"})
        async with asyncio.timeout(10):
            assert json.loads(await operator.readline())["ok"]
    assert await ended(await connecting.come())


async def test_who_has_none_of_the_node_s_descriptors_to_have_is_refused_at_the_port_for_operators(
    connecting: Connecting,
) -> None:
    asked: list[asyncio.BaseTransport] = []
    connecting.server._admit = lambda transport: bool(asked.append(transport))
    assert await ended(await connecting.come({"command": "echo"}))
    assert len(asked) == 1 and asked[0].get_extra_info("socket") is not None


async def test_a_command_that_takes_long_is_waited_for(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node is silent then, and not who asks."""
    monkeypatch.setattr(server_module, "SILENCE_SECONDS", 0.05)
    assert await told(connecting.directory, "slow") is None


@pytest.mark.parametrize(
    "text",
    [b"[" * 100_000, b'{"a":' * 50_000, b'{"token": "x", "command": "c", "arguments": {"a": ' + b"[" * 90_000 + b"\n"],
    ids=["arrays", "objects", "arguments"],
)
async def test_a_request_that_is_nested_deep_is_none(node: Path, text: bytes) -> None:
    answer = json.loads(await line(node, text.rstrip(b"\n") + b"\n"))
    assert not answer["ok"] and answer["error"].startswith("not a request")


async def test_an_answer_that_is_nested_deep_is_none(tmp_path: Path) -> None:
    """Whatever has the port now may be no node."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"[" * 100_000 + b"\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (tmp_path / "admin.json").write_text(json.dumps({"port": port, "token": "x"}))
    with pytest.raises(AdminError, match="nested too deep"):
        await told(tmp_path, "status")
    server.close()
