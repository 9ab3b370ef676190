"""The coordination file behind a process: no node that hangs keeps it locked."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from broker_plugin.coordination import coordination_process
from broker_plugin.coordination.coordination_process import ANSWER_SECONDS, START_SECONDS, CoordinationProcess, Request
from broker_plugin.coordination.sqlite_coordination import BUSY_SECONDS, SqliteCoordination
from ha.membership.record import CasConflict, CoordinationError, Record
from tests.broker_plugin.coordination.test_sqlite_coordination import ROOT, A, B, record


def test_it_answers_as_the_file_does(tmp_path: Path) -> None:
    store = CoordinationProcess(tmp_path / "r", "c")
    assert store.read() is None
    with pytest.raises(CasConflict):
        store.compare_and_set(0, record())
    first = SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record(1, A, B))
    assert first.version == 1 and store.read() == first == SqliteCoordination(tmp_path / "r", "c").read()
    with pytest.raises(CasConflict) as conflict:
        store.compare_and_set(0, record())
    assert conflict.value.current == first
    with pytest.raises(CoordinationError, match="belongs to cluster c, not to cluster d"):
        CoordinationProcess(tmp_path / "r", "d").read()
    store.close()


def test_it_ends_with_its_node_and_is_started_again_when_it_ends_alone(tmp_path: Path) -> None:
    SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record())
    store = CoordinationProcess(tmp_path / "r", "c")
    store.read()
    child = store._child
    assert child is not None
    child.kill()
    child.wait()
    with pytest.raises(CoordinationError, match="started again"):
        store.compare_and_set(1, record())
    found = store.read()
    assert found is not None and found.version == 1
    child = store._child
    assert child is not None
    pipes = child.stdin, child.stdout
    store.close()
    assert child.returncode == 0 and all(pipe is not None and pipe.closed for pipe in pipes)


def test_it_gets_no_secret_of_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one of another program: it is given the variables that an interpreter needs."""
    for name in ("TXHA_PEER__SECRET", "TXHA_AMQP__USERS", "PGPASSWORD", "TXHA_READ_SECRET"):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("LC_TIME", "C")
    store = CoordinationProcess(tmp_path / "r", "c")
    assert store.read() is None and store._child is not None
    found = Path(f"/proc/{store._child.pid}/environ").read_bytes().split(b"\0")
    store.close()
    assert b"LC_TIME=C" in found and not [each for each in found if b"hidden" in each]


def test_it_confirms_what_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P10: its writer may never have seen its sync succeed, and a power cut would take back what a node acted upon."""
    made: list[SqliteCoordination] = []

    def opened(*words: Any, **options: Any) -> SqliteCoordination:
        made.append(SqliteCoordination(*words, **options))
        return made[-1]

    monkeypatch.setattr(coordination_process, "SqliteCoordination", opened)
    monkeypatch.setattr(signal, "signal", lambda number, action: None)
    at_its_end, writing = os.pipe()
    os.close(writing)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: at_its_end))
    monkeypatch.setattr(coordination_process, "NAME_FILE", tmp_path / "comm")
    coordination_process.main(str(tmp_path / "r"), "c")
    os.close(at_its_end)
    (store,) = made
    assert store._confirm and not store._create, "and it makes no file"


def test_it_says_nothing_when_its_node_has_died_before_the_answer(tmp_path: Path) -> None:
    """Else its complaint would be the last line of the log of a node that was killed."""
    command = [sys.executable, "-m", "broker_plugin.coordination.coordination_process", str(tmp_path / "r"), "c"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    child.stdout.close()
    child.stdin.write(msgspec.json.encode(Request()) + b"\n")
    child.stdin.close()
    assert (child.stderr.read(), child.wait()) == (b"", 0)
    child.stderr.close()


def test_a_node_that_is_stopped_while_it_writes_locks_nobody_out(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.broker_plugin.coordination.test_coordination_process import *\n"
        "store = CoordinationProcess(Path(sys.argv[1]), 'c')\n"
        "while True:\n"
        "    try: store.compare_and_set(store.read().version, record())\n"
        "    except (CasConflict, CoordinationError): pass\n"
    )
    ours = SqliteCoordination(tmp_path / "r", "c", create=True)
    ours.compare_and_set(0, record())
    busy = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "r")], cwd=ROOT)
    chance = random.Random(1)
    try:
        for _ in range(15):
            time.sleep(chance.uniform(0.05, 0.15))
            os.kill(busy.pid, signal.SIGSTOP)
            changed(ours)
            os.kill(busy.pid, signal.SIGCONT)
    finally:
        busy.kill()
        busy.wait()


def changed(store: SqliteCoordination) -> Record:
    """Change the record; fails if a process holds the lock for several times as long as a call waits for it."""
    for _ in range(6):
        try:
            found = store.read()
            assert found is not None
            return store.compare_and_set(found.version, record())
        except (CasConflict, CoordinationError):
            continue
    raise AssertionError("the coordination file stays locked")


def test_a_locked_file_is_told_long_before_its_process_is_taken_for_hung() -> None:
    assert BUSY_SECONDS * 10 <= ANSWER_SECONDS


def test_the_interrupt_of_a_node_is_not_that_of_its_process(tmp_path: Path) -> None:
    """Ctrl-C reaches all of a terminal: the node still gives its lease up, and needs the file for that."""
    store = CoordinationProcess(tmp_path / "r", "c")
    assert store.read() is None and store._child is not None
    child = store._child
    assert os.getpgid(child.pid) != os.getpgid(0)
    child.send_signal(signal.SIGINT)
    for _ in range(20):
        assert store.read() is None
    assert store._child is child
    store.close()


def test_an_answer_that_comes_in_pieces_is_waited_for(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.write(write, b"one half, ")
    later = threading.Timer(0.3, lambda: os.write(write, b"the other\n"))
    later.start()
    assert CoordinationProcess(tmp_path / "r", "c")._answer_of(read, 60.0) == b"one half, the other\n"
    later.join()
    os.close(write)
    os.close(read)


def test_only_the_first_answer_of_each_process_may_take_as_long_as_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CoordinationProcess(tmp_path / "r", "c")
    answer_of, waited = store._answer_of, []

    def waiting(descriptor: int, seconds: float) -> bytes | None:
        waited.append(seconds)
        return answer_of(descriptor, START_SECONDS)

    monkeypatch.setattr(store, "_answer_of", waiting)
    for _ in range(3):
        store.read()
    child = store._child
    assert child is not None
    child.kill()
    child.wait()
    with pytest.raises(CoordinationError, match="has ended"):
        store.read()
    store.read()
    store.read()
    assert waited[:3] == [START_SECONDS, ANSWER_SECONDS, ANSWER_SECONDS]
    assert waited[-2:] == [START_SECONDS, ANSWER_SECONDS], "another process is started"
    store.close()
