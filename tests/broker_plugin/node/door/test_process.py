"""The process of the HTTP door: started, started again when it ends, and never there without its node."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker_plugin.cli.layout import free_ports
from broker_plugin.node.config import NodeConfig, parse_config
from broker_plugin.node.door import process as process_module
from broker_plugin.node.door.process import DoorProcess, told
from tests.support.guards import strict_guard

WAITS = "tests.support.waiting_child"


def config_in(directory: Path, port: int = 15672, metrics_port: int = 8) -> NodeConfig:
    text = f'name = "a"\ncluster = "c"\ndir = "{directory}"\ncoordination = "{directory / "r"}"\n[peer]\nport = 7\n'
    http = f"[http]\nport = {port}\nmetrics_port = {metrics_port}\n"
    return parse_config(text + http, directory / "node.toml", environment={})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(process_module, "FIRST_PAUSE", 0.02)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[4]))


@contextlib.asynccontextmanager
async def door(directory: Path, module: str, taken: dict[int, int] | None = None) -> AsyncIterator[DoorProcess]:
    """``taken``: a port in place of a free one, the operators' (0) or that for metrics (1)."""
    guard = strict_guard()
    ports = dict(enumerate(free_ports(2, set()))) | (taken or {})
    found = DoorProcess(guard, config_in(directory, ports[0], ports[1]), module)
    found.start()
    try:
        yield found
    finally:
        found.stop()
        assert not guard.errors


async def there(found: DoorProcess, other_than: int | None = None) -> int:
    """Its number, once there is one."""
    async with asyncio.timeout(30):
        while found.pid is None or found.pid == other_than:
            await asyncio.sleep(0.01)
    return found.pid


async def tried(found: DoorProcess, times: int) -> None:
    """So often it could not be started: each pause is twice as long as the one before."""
    while found._pause < process_module.FIRST_PAUSE * 2**times:
        await asyncio.sleep(0.01)


def test_it_is_told_by_its_input_where_to_listen(tmp_path: Path) -> None:
    said = json.loads(told(config_in(tmp_path)))
    assert (said["host"], said["port"], said["metrics_host"], said["metrics_port"]) == (
        ("127.0.0.1", 15672, "127.0.0.1", 8)
    )  # fmt: skip
    assert said["directory"] == str(tmp_path) and said["node"] == "a"


async def test_one_that_dies_gets_a_successor_and_none_outlives_its_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with door(tmp_path, WAITS) as found:
            first = await there(found)
            os.kill(first, 9)
            second = await there(found, first)
            command = Path(f"/proc/{second}/cmdline").read_bytes()
            assert str(found._addresses[0][1]).encode() not in command and str(tmp_path).encode() not in command
    assert f"the HTTP door (process {first}) has ended with status -9" in caplog.text
    for number in (first, second):
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


async def test_one_that_never_stays_is_started_less_and_less_often(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with door(tmp_path, "no_such_module_of_ours") as found, asyncio.timeout(60):
            while caplog.text.count("has ended with status 1") < 3:
                await asyncio.sleep(0.01)
    assert found._pause >= 8 * process_module.FIRST_PAUSE


async def test_one_that_cannot_be_started_harms_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **more: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(process_module.subprocess, "Popen", refuse)
    with caplog.at_level(logging.WARNING):
        async with door(tmp_path, WAITS) as found, asyncio.timeout(30):
            await tried(found, 3)
            assert found.complaint == "the door is not open: Too many open files"
            monkeypatch.undo()
            await there(found)
            assert found.complaint is None
    assert caplog.text.count("cannot be started (Too many open files)") == 1, "it is told once"


@pytest.mark.parametrize("which", [0, 1])
async def test_a_taken_port_is_told_once_and_the_door_opens_when_it_is_free(
    which: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The door of a node that was killed may have been stopped before, and keeps its ports."""
    with caplog.at_level(logging.WARNING), socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        why = f"cannot listen for operators on 127.0.0.1:{port}: the address is in use; choose another port"
        async with door(tmp_path, WAITS, {which: port}) as found, asyncio.timeout(30):
            await tried(found, 3)
            assert found.pid is None and found.complaint == f"the door is not open: {why}"
            taken.close()
            await there(found)
            assert found.complaint is None
    assert caplog.text.count(why) == 1 and "has ended" not in caplog.text


async def test_a_process_that_ends_is_a_reason_for_a_door_that_is_not_open(tmp_path: Path) -> None:
    async with door(tmp_path, "no_such_module_of_ours") as found, asyncio.timeout(60):
        while found.complaint is None:
            await asyncio.sleep(0.01)
        assert found.complaint == "the door is not open: its process has ended with status 1"
