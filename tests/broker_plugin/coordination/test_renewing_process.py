"""The coordination process renews while its node's interpreter is held, and never without its node.

The node is this process, or one that is started here; what it waits for is an event in the coordination file.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from broker_plugin.coordination.coordination_process import PROCESS_NAME, CoordinationProcess, boottime
from broker_plugin.coordination.shared_watchdog import SharedWatchdog
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import CasConflict, CoordinationError, Record
from ha.membership.watchdog import Renewals
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.coordination.test_sqlite_coordination import ROOT, A, B

FOR_EVER = 3600.0
OFTEN = Renewals(0.1, FOR_EVER)
PROMOTED = Record("c", 2, 1, A, (A, B))
WITNESS = (
    "import sys, time; from pathlib import Path\n"
    "from broker_plugin.coordination.sqlite_coordination import CoordinationError, SqliteCoordination\n"
    "store, until = SqliteCoordination(Path(sys.argv[1]), 'c'), time.monotonic() + 20\n"
    "while time.monotonic() < until:\n"
    "    try:\n"
    "        if store.read().version >= int(sys.argv[2]): break\n"
    "    except CoordinationError: pass\n"
    "    time.sleep(0.05)\n"
    "print('seen', flush=True)\n"
)
"""Waits for a version of the record, in a process of its own, and says so."""
NODE = (
    "import sys, time; from pathlib import Path\n"
    "from tests.broker_plugin.coordination.test_renewing_process import *\n"
    "node = promoted(Path(sys.argv[1]))\n"
    "print(node.child.pid, flush=True)\n"
    "while True: time.sleep(60)\n"
)


class Node(NamedTuple):
    """The primary's side of a coordination store."""

    store: CoordinationProcess
    watchdog: SharedWatchdog

    @property
    def child(self) -> subprocess.Popen[bytes]:
        assert self.store._child is not None
        return self.store._child


def promoted(path: Path, renewals: Renewals = OFTEN) -> Node:
    """A node that has become primary, and whose loop has completed a turn."""
    SqliteCoordination(path, "c", create=True).compare_and_set(0, Record("c", 1, 0, None, (A, B), released=True))
    watchdog = SharedWatchdog()
    node = Node(CoordinationProcess(path, "c", FOR_EVER, watchdog, renewals), watchdog)
    assert node.store.compare_and_set(1, PROMOTED).version == 2
    watchdog.turned(1, boottime())
    return node


def version(path: Path) -> int:
    """Of the record; asked again where the file is locked, as it is while it is written."""
    store = SqliteCoordination(path, "c")
    for _ in range(60):
        with suppress(CoordinationError):
            record = store.read()
            assert record is not None
            store.close()
            return record.version
    raise AssertionError("the coordination file stays locked")


def is_renewed(path: Path) -> None:
    """Waits until it is, twice: the first may have been on its way."""
    before = version(path)
    wait_until(lambda: version(path) >= before + 2, 20, "a renewal")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r"


@pytest.fixture
def node(path: Path) -> Iterator[Node]:
    node = promoted(path)
    yield node
    node.store.close()


def test_a_call_that_holds_the_interpreter_costs_no_renewal(path: Path, node: Node) -> None:
    """No thread of this process runs in the call, which ends when another process has seen three renewals."""
    rounds: list[int] = [0]
    over = threading.Event()

    def beside() -> None:
        while not over.wait(0.001):
            rounds[0] += 1

    command = [sys.executable, "-c", WITNESS, str(path), "5"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, bufsize=0) as witness:
        assert witness.stdout is not None
        seen, read = ctypes.create_string_buffer(1), ctypes.PyDLL(None).read
        thread = threading.Thread(target=beside)
        thread.start()
        before = rounds[0]
        assert read(witness.stdout.fileno(), seen, 1) == 1
        ran = rounds[0] - before
        over.set()
        thread.join()
        assert witness.stdout.read() == b"een\n"
    assert ran <= 2, "the interpreter was not held"
    assert seen.raw == b"s" and version(path) >= 5, "no renewal was made in the call"
    assert node.watchdog.renewed_at(1) <= boottime()
    stored = node.store.compare_and_set(2, Record("c", 3, 1, A, (A,)))
    assert stored.version >= 6 and stored.ready == (A,), "what the node asks for next need not know of renewals"


def test_a_loop_that_completes_no_turn_is_renewed_no_more(path: Path) -> None:
    """Its process looks again and again, and renews when the loop goes on."""
    node = promoted(path, Renewals(0.1, 0.0))
    before = node.store.read()
    assert before is not None and before.version == 2
    node.watchdog.turned(1, boottime() + FOR_EVER)
    is_renewed(path)
    node.watchdog.turned(1, boottime())
    node.store.read()  # a renewal that was on its way has been made
    still = version(path)
    looks(node)
    assert version(path) == still
    node.store.close()


def looks(node: Node) -> None:
    """Waits until the process has looked at the watchdog a few times: it sleeps in between."""

    def switches() -> int:
        status = Path(f"/proc/{node.child.pid}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    before = switches()
    wait_until(lambda: switches() >= before + 5, 20, "five looks")


@pytest.mark.parametrize("stop", [lambda node: node.watchdog.rest(), lambda node: node.watchdog.turned(2, boottime())])
def test_a_node_that_gives_its_lease_up_is_renewed_no_more(
    path: Path, node: Node, stop: Callable[[Node], None]
) -> None:
    is_renewed(path)
    stop(node)
    node.store.read()
    still = version(path)
    looks(node)
    assert version(path) == still


@contextmanager
def killed(code: str, path: Path) -> Iterator[list[int]]:
    """A process that runs this, and is killed in the end; it tells the process ids that it has started."""
    with subprocess.Popen([sys.executable, "-c", code, str(path)], cwd=ROOT, stdout=subprocess.PIPE) as node:
        try:
            assert node.stdout is not None
            yield [int(word) for word in node.stdout.readline().split()]
        finally:
            node.kill()


def is_gone(pid: int) -> bool:
    """Whether this process has ended, be it that its parent has not looked yet."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


def test_a_node_that_is_killed_leaves_no_renewing_process(path: Path) -> None:
    """P10: also one of a group of its own."""
    with killed(NODE, path) as (child,):
        is_renewed(path)
    wait_until(lambda: is_gone(child), 20, "the end of the renewing process")
    last = version(path)
    assert SqliteCoordination(path, "c").compare_and_set(last, PROMOTED).version == last + 1, "nothing renews meanwhile"


def test_a_process_whose_node_is_gone_renews_nothing_though_its_input_is_open(path: Path) -> None:
    """Another process may have got hold of the other end."""
    code = (
        "import os, subprocess, sys, time; from pathlib import Path\n"
        "from tests.broker_plugin.coordination.test_renewing_process import *\n"
        "node = promoted(Path(sys.argv[1]))\n"
        "os.set_inheritable(node.child.stdin.fileno(), True)\n"
        "holder = subprocess.Popen(['sleep', '3600'], close_fds=False, stdout=subprocess.DEVNULL)\n"
        "print(node.child.pid, holder.pid, flush=True)\n"
        "while True: time.sleep(60)\n"
    )
    with killed(code, path) as (child, holder):
        is_renewed(path)
    try:
        wait_until(lambda: is_gone(child), 20, "the end of the renewing process")
    finally:
        os.kill(holder, signal.SIGKILL)


def test_a_renewing_process_that_is_killed_is_replaced(path: Path, node: Node) -> None:
    """What it has renewed is met as a conflict, once, and the node goes on from there."""
    is_renewed(path)
    node.child.kill()
    node.child.wait()
    with pytest.raises(CoordinationError, match="has ended"):
        node.store.compare_and_set(2, PROMOTED)
    with pytest.raises(CasConflict) as conflict:
        node.store.compare_and_set(2, PROMOTED)
    current = conflict.value.current
    assert current is not None and (current.primary, current.generation) == (A, 1)
    node.store.compare_and_set(current.version, PROMOTED)
    node.watchdog.turned(1, boottime())
    is_renewed(path)


def test_a_renewing_process_that_is_stopped_tells_of_no_renewal(path: Path, node: Node) -> None:
    is_renewed(path)
    os.kill(node.child.pid, signal.SIGSTOP)
    wait_until(lambda: ") T " in Path(f"/proc/{node.child.pid}/stat").read_text(), 20, "the stop")
    told, stored = node.watchdog.renewed_at(1), version(path)
    node.watchdog.turned(1, boottime())
    assert (node.watchdog.renewed_at(1), version(path)) == (told, stored)
    os.kill(node.child.pid, signal.SIGCONT)
    is_renewed(path)
    assert node.watchdog.renewed_at(1) > told


def test_what_the_system_shows_of_it(path: Path, node: Node) -> None:
    """A plain name, no secret, and no descriptor but those that it was given and the file's."""
    process = Path(f"/proc/{node.child.pid}")
    assert (process / "comm").read_text().strip() == PROCESS_NAME
    words = (process / "cmdline").read_text().rstrip("\0").split("\0")
    given = ["broker_plugin.coordination.coordination_process", str(path), "c", str(node.watchdog.descriptor)]
    assert words[3:] == [*given, "0.1", "3600.0"]
    opened = {os.readlink(each) for each in (process / "fd").iterdir()}
    ours = {f"pipe:[{os.fstat(pipe.fileno()).st_ino}]" for pipe in (node.child.stdin, node.child.stdout) if pipe}
    errors = os.readlink("/proc/self/fd/2")
    kept = {each for each in opened if not each.startswith("anon_inode:")}
    assert kept - {errors, "/memfd:txha-watchdog (deleted)", str(path), f"{path}-journal"} == ours


def test_a_process_that_cannot_be_started_is_an_outcome_like_others(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    store = CoordinationProcess(path, "c")
    monkeypatch.setattr(subprocess, "Popen", refused)
    with pytest.raises(CoordinationError, match=r"cannot be started \(Resource temporarily unavailable\)"):
        store.read()
    monkeypatch.undo()
    assert store.read() is None
    store.close()
