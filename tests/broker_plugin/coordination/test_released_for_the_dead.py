"""The lease of a node whose process is certainly gone is given up by its coordination process, and of no other one."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from broker_plugin.coordination import node_life
from broker_plugin.coordination.node_life import NodeLife, open_own_life
from broker_plugin.coordination.renewer import Renewer
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import CoordinationError, Record
from ha.membership.watchdog import Renewals
from python_tests.harness.waiting import wait_until
from tests.broker_plugin.coordination.test_renewer import Rig
from tests.broker_plugin.coordination.test_renewing_process import FOR_EVER, is_gone, killed, promoted
from tests.broker_plugin.coordination.test_sqlite_coordination import A, B

RELEASING = Renewals(FOR_EVER, FOR_EVER, released_for=True)
KEEPING = Renewals(FOR_EVER, FOR_EVER)
NODE = (
    "import sys, threading, time; from pathlib import Path\n"
    "from tests.broker_plugin.coordination.test_released_for_the_dead import *\n"
    "node = promoted(Path(sys.argv[1]), {renewals})\n"
    "print(node.child.pid, flush=True)\n"
    "{then}\n"
    "while True: time.sleep(60)\n"
)


def code(renewals: str = "RELEASING", then: str = "") -> str:
    return NODE.format(renewals=renewals, then=then)


def record(path: Path) -> Record:
    """Asked again where the file is locked, as it is while it is written."""
    for _ in range(60):
        with suppress(CoordinationError):
            store = SqliteCoordination(path, "c")
            found = store.read()
            store.close()
            assert found is not None
            return found
    raise AssertionError("the coordination file stays locked")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r"


def test_the_lease_of_a_node_that_was_killed_is_given_up(path: Path) -> None:
    """For any successor, in the same generation, with the same ready set: as if it had run out, and sooner."""
    with killed(code(), path) as (child,):
        before = record(path)
    wait_until(lambda: is_gone(child), 20, "the end of the coordination process")
    assert not before.released
    assert record(path) == msgspec.structs.replace(before, version=before.version + 1, released=True)
    assert record(path).preferred == "" and set(record(path).ready) == {A, B}


def test_not_where_another_process_speaks_to_clients_too(path: Path) -> None:
    """A host broker, which may be stopped with the end of the lease still before it."""
    with killed(code("KEEPING"), path) as (child,):
        before = record(path)
    wait_until(lambda: is_gone(child), 20, "the end of the coordination process")
    assert record(path) == before


def test_not_when_the_node_ends_in_order(path: Path) -> None:
    """It gives its lease up by itself, or knows why not."""
    node = promoted(path, RELEASING)
    before, child = record(path), node.child
    node.store.close()
    assert child.returncode == 0 and record(path) == before


def test_not_over_a_change_that_another_one_has_made_since(path: Path) -> None:
    with killed(code(), path) as (child,):
        os.kill(child, signal.SIGSTOP)
        before = record(path)
        other = msgspec.structs.replace(before, generation=2, primary=B)
        SqliteCoordination(path, "c").compare_and_set(before.version, other)
    os.kill(child, signal.SIGCONT)
    wait_until(lambda: is_gone(child), 20, "the end of the coordination process")
    assert record(path).primary == B and not record(path).released


@pytest.mark.parametrize("ends", ["node.child.stdin.close()"])
def test_not_while_the_node_lives_though_its_input_has_ended(path: Path, ends: str) -> None:
    with killed(code(then=ends), path) as (child,):
        wait_until(lambda: is_gone(child), 20, "the end of the coordination process")
        assert not record(path).released, "it has waited for the node's end, and that has not come"


def test_a_process_is_gone_when_all_of_its_threads_are() -> None:
    """``released_while_a_thread_lives``: the first thread has ended, and another one could still write."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        import ctypes
        import threading

        threading.Thread(target=lambda: os.read(reading, 1)).start()
        ctypes.CDLL(None).syscall(60, 0)  # exit of this thread alone
        os._exit(1)
    life = NodeLife(os.pidfd_open(pid))
    wait_until(
        lambda: Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0] == "Z", 20, "its first thread's end"
    )
    assert not life.gone(0.2)
    os.write(writing, b"x")
    assert life.gone(20)
    os.waitpid(pid, 0)


def test_its_end_is_waited_for_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is killed with much memory takes a part of one to be gone; polls count in milliseconds."""
    waited: list[float] = []

    class Poll:
        def register(self, *what: object) -> None:
            assert what == (7, select.POLLIN)

        def poll(self, milliseconds: float) -> list[tuple[int, int]]:
            waited.append(milliseconds)
            return []

    monkeypatch.setattr(select, "poll", Poll)
    assert not NodeLife(7).gone(1.5) and waited == [1500]


def test_where_the_system_gives_no_such_descriptor_no_lease_is_given_up(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(pid: int) -> int:
        raise OSError("seccomp")

    monkeypatch.setattr(os, "pidfd_open", none)
    assert open_own_life() is None
    monkeypatch.delattr(os, "pidfd_open")
    assert node_life.open_own_life() is None


# -- what the renewer gives up


def test_the_version_of_the_last_renewal_is_given_up() -> None:
    rig = Rig()
    rig.turned = {3: 1e9}
    rig.wait()
    rig.renewer.release()
    assert rig.store.record == Record("c", 7, 3, rig.store.record.primary, rig.store.record.ready, released=True)  # type: ignore[union-attr]
    rig.renewer.release()
    assert rig.store.version == 7 and rig.renewer.due_in() is None


def test_a_change_whose_outcome_is_unknown_is_behind_no_release() -> None:
    rig = Rig()
    rig.fails = True
    with suppress(CoordinationError):
        rig.renewer.compare_and_set(5, rig.store.record)  # type: ignore[arg-type]
    rig.fails = False
    rig.renewer.release()
    assert rig.store.version == 5


def test_a_store_that_does_not_answer_lets_the_lease_run_out() -> None:
    rig = Rig()
    rig.fails = True
    rig.renewer.release()
    assert rig.store.version == 5


def test_who_has_given_its_lease_up_has_none() -> None:
    rig = Rig()
    assert rig.store.record is not None
    rig.renewer.compare_and_set(5, msgspec.structs.replace(rig.store.record, released=True, preferred="b"))
    rig.renewer.release()
    assert rig.store.version == 6 and rig.store.record.preferred == "b"


def test_a_node_that_has_never_led_has_none() -> None:
    rig = Rig()
    renewer = Renewer(rig.store, rig, KEEPING, lambda: 0.0)
    renewer.release()
    assert rig.store.version == 5
