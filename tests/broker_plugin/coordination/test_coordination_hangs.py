"""``coordination_child_hangs``: the process that keeps the coordination file is stopped, or its file system hangs."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from broker_plugin.coordination import coordination_process
from broker_plugin.coordination.coordination_process import CoordinationProcess
from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from broker_plugin.node.config import Address, NodeConfig
from broker_plugin.node.main import NodeProcess
from ha.membership.record import CasConflict, CoordinationError, Record
from tests.broker_plugin.coordination.test_sqlite_coordination import A, B, record
from tests.support.guards import strict_guard

FOR_EVER = 3600.0
MUTE = (
    "import signal, sys; from broker_plugin.coordination import coordination_process as c\n"
    "c.os.write = lambda *_: signal.pause()\n"
    "c.main(*sys.argv[1:])\n"
)
"""It does what it is asked for, and never says so."""


def child_of(store: CoordinationProcess) -> subprocess.Popen[bytes]:
    assert store._child is not None
    return store._child


def with_a_stopped_child(path: Path, seconds: float) -> CoordinationProcess:
    SqliteCoordination(path, "c", create=True).compare_and_set(0, record(1, A))
    store = CoordinationProcess(path, "c", seconds)
    store.read()
    os.kill(child_of(store).pid, signal.SIGSTOP)
    return store


def test_a_stopped_child_is_replaced(tmp_path: Path) -> None:
    store = with_a_stopped_child(tmp_path / "r", 0.1)
    stopped = child_of(store)
    with pytest.raises(CoordinationError, match="gives no answer"):
        store.compare_and_set(1, record(1, A, B))
    assert stopped.returncode == -signal.SIGKILL
    store._seconds = FOR_EVER
    found = store.read()
    assert found is not None and found.version == 1
    assert store.compare_and_set(1, record(1, A, B)).version == 2
    store.close()


def test_what_a_hung_child_was_asked_for_may_have_been_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome is unknown, never a conflict and never a failure that leaves everything as it was."""
    monkeypatch.setattr(coordination_process, "START_SECONDS", 0.0)
    file = SqliteCoordination(tmp_path / "r", "c", create=True)
    file.compare_and_set(0, record(1, A))
    store = CoordinationProcess(tmp_path / "r", "c")
    command, store._command = store._command, [sys.executable, "-c", MUTE, str(tmp_path / "r"), "c"]
    monkeypatch.setattr(store, "_answer_of", until_done(store, file))
    with pytest.raises(CoordinationError, match="gives no answer"):
        store.compare_and_set(1, record(1, A, B))
    store._command = command
    monkeypatch.undo()
    with pytest.raises(CasConflict) as conflict:
        store.compare_and_set(1, record(1, A, B))
    assert conflict.value.current is not None and conflict.value.current.version == 2
    store.close()


def until_done(store: CoordinationProcess, file: SqliteCoordination) -> Any:
    """Waits in vain for an answer, but not before the change can be seen in the file."""
    wait = store._answer_of

    def waiting(descriptor: int, seconds: float) -> bytes | None:
        while (found := file.read()) is None or found.version < 2:
            time.sleep(0.01)
        return wait(descriptor, seconds)

    return waiting


async def test_the_outcome_is_told_as_unknown_and_the_thread_goes_on(tmp_path: Path) -> None:
    store = with_a_stopped_child(tmp_path / "r", 0.1)
    guard = strict_guard()
    guard.watch()
    records = RecordThread(store, guard)
    told: asyncio.Queue[str] = asyncio.Queue()
    found: asyncio.Future[Record | None] = asyncio.get_running_loop().create_future()
    records.compare_and_set(
        1,
        record(1, A, B),
        lambda stored: told.put_nowait("stored"),
        lambda current: told.put_nowait("conflict"),
        lambda: told.put_nowait("unknown"),
    )
    assert await asyncio.wait_for(told.get(), 60) == "unknown"
    records.read(found.set_result)
    current = await asyncio.wait_for(found, 60)
    assert current is not None and current.version == 1
    records.stop()
    gc.collect()
    assert guard.errors == [], "an outcome that is unknown ends no node"


@pytest.mark.parametrize("asked", [False, True], ids=["that_is_idle", "that_is_asked"])
async def test_a_node_ends_while_its_child_is_stopped(tmp_path: Path, asked: bool) -> None:
    """No caller waits for an answer that is not needed, however long answers may take."""
    store = with_a_stopped_child(tmp_path / "r", FOR_EVER)
    child = child_of(store)
    records = RecordThread(store, strict_guard())
    if asked:
        records.read(lambda found: None)
    records.stop()
    assert child.returncode == -signal.SIGKILL


def test_a_child_that_cannot_be_killed_gets_no_successor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits in the kernel for the file system, and holds the file's lock."""
    store = with_a_stopped_child(tmp_path / "r", 0.1)
    hung = child_of(store)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "kill", lambda child: None)
        patched.setattr(coordination_process, "END_SECONDS", 0.01)
        with pytest.raises(CoordinationError, match="gives no answer"):
            store.read()
        with pytest.raises(CoordinationError, match="cannot be killed"):
            store.read()
        assert store._child is None
    hung.kill()
    hung.wait()
    found = store.read()
    assert found is not None and found.version == 1
    store.close()


def test_a_node_that_was_stopped_itself_takes_the_answer_that_came_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CoordinationProcess(tmp_path / "r", "c")
    clock = [0.0]

    class Stopped:
        """The first look finds nothing; then the node stands still for a minute, in which the answer comes."""

        def __init__(self) -> None:
            self._answers = iter([[], [(reading, select.POLLIN)]])

        def register(self, descriptor: int, events: int) -> None:
            """Nothing."""

        def poll(self, milliseconds: float) -> Any:
            clock[0] += 60.0
            return next(self._answers)

    reading, writing = os.pipe()
    os.write(writing, b"the answer\n")
    monkeypatch.setattr(select, "poll", Stopped)
    monkeypatch.setattr(coordination_process.time, "monotonic", lambda: clock[0])
    assert store._answer_of(reading, 5.0) == b"the answer\n"
    os.close(reading)
    os.close(writing)


async def test_a_node_is_told_to_end_before_the_record_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nexec sleep 3600\n")
    silent.chmod(0o700)
    monkeypatch.setattr(coordination_process, "MODULE", (str(silent),))
    monkeypatch.setattr(coordination_process, "START_SECONDS", FOR_EVER)
    (tmp_path / "r").touch()
    peer = Address(port=1, secret=SecretStr("s" * 32))
    node = NodeProcess(NodeConfig(name="a", cluster="c", dir=tmp_path / "a", coordination=tmp_path / "r", peer=peer))
    node.guard.watch()
    joining = asyncio.create_task(node._join_cluster())
    while (store := getattr(node, "_coordination", None)) is None or store._child is None:
        await asyncio.sleep(0.01)
    child = child_of(store)
    node._ended.set()
    assert await joining is False
    assert child.returncode == -signal.SIGKILL and not (tmp_path / "a").exists()


def test_a_supervisor_tells_all_processes_of_a_node_to_end(tmp_path: Path) -> None:
    """``all_of_a_unit_are_told_to_end``: a node gives its lease up with this process, which so must outlast that.

    It waited for a new one instead, and was primary until its lease was over.
    """
    path = tmp_path / "r"
    SqliteCoordination(path, "c", create=True).compare_and_set(0, record(1, A))
    store = CoordinationProcess(path, "c")
    store.read()
    child = child_of(store)
    child.send_signal(signal.SIGTERM)
    assert store.compare_and_set(1, record(1, A, B)).version == 2
    assert child_of(store) is child
    store.close()
    assert child.returncode == 0


def test_a_module_in_the_directory_of_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``a_module_in_the_directory_of_the_start``: any user may write one in /tmp, and it ran with the node's rights."""
    path = tmp_path / "r"
    SqliteCoordination(path, "c", create=True).compare_and_set(0, record(1, A))
    (tmp_path / "msgspec.py").write_text("open('ran', 'w').close()")
    monkeypatch.chdir(tmp_path)
    store = CoordinationProcess(path, "c")
    found = store.read()
    store.close()
    assert found is not None and found.version == 1 and not (tmp_path / "ran").exists()
