"""Slow and failing disks: exactly the syncs that are named are hit, in every way that the product waits for a disk."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from python_tests.harness.stress import syncs
from python_tests.harness.stress.clock import FakeClock
from python_tests.harness.stress.command import BadInput, Options, _checked
from python_tests.harness.stress.own import impossible
from python_tests.harness.stress.syncs import ALL, FOREVER, Disks, Kind, Syncs, together

PROGRAM = """
import json, os, sys, time
from pathlib import Path
import lmdb
from recovery.store.files import Files
home, files = Path(sys.argv[1]), Files()
(home / "log").mkdir()
log = files.create(home / "log" / "1.log")
state = lmdb.open(str(home / "state"), map_size=1 << 24)
other = os.open(home / "identity.json", os.O_RDWR | os.O_CREAT)
outside = os.open(home.with_name(home.name + "-2"), os.O_RDWR | os.O_CREAT)
def checkpoint():
    with state.begin(write=True) as txn:
        txn.put(b"key", os.urandom(8))
jobs = {
    "log": lambda: (files.write(log, [b"frame"]), files.sync(log)),
    "directory": lambda: files.sync_directory(home / "log"),
    "state": checkpoint,
    "other": lambda: os.fsync(other),
    "outside": lambda: os.fsync(outside),
    "sleep": lambda: time.sleep(0.3),
}
print("ready", flush=True)
for line in sys.stdin:
    began, error = time.monotonic(), ""
    try:
        jobs[line.strip()]()
    except (OSError, lmdb.Error) as failed:
        error = str(failed)
    print(json.dumps([time.monotonic() - began, error]), flush=True)
"""
NODE = "node-1"
Job = Callable[[str], tuple[float, str]]


@pytest.fixture(params=["alone", "beside libfaketime"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Disks, Job]]:
    """A process that syncs what it is told to; and its disk."""
    disks, home = Disks(tmp_path / "disks"), tmp_path / "home"
    home.mkdir()
    faked = {} if request.param == "alone" else FakeClock(tmp_path / "clocks").environment(NODE)
    environment = {**os.environ, **together(disks.environment(NODE, home), faked)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(home)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "ready\n"

    def do(job: str) -> tuple[float, str]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(job + "\n")
        process.stdin.flush()
        seconds, error = json.loads(process.stdout.readline())
        return seconds, error

    yield disks, do
    process.stdin.close()
    process.stdout.close()
    process.wait()


def since(disks: Disks, before: Syncs, kind: Kind) -> tuple[int, int, int]:
    now = disks.count(NODE, [kind])
    return now.seen - before.seen, now.delayed - before.delayed, now.failed - before.failed


@pytest.mark.parametrize(
    ("job", "kind", "count"),
    [("log", Kind.LOG, 1), ("directory", Kind.LOG, 1), ("state", Kind.STATE, 2), ("other", Kind.OTHER, 1)],
)
def test_what_is_named_is_slow_and_fails_and_nothing_else(
    node: tuple[Disks, Job], job: str, kind: Kind, count: int
) -> None:
    """LMDB waits twice for a checkpoint: fdatasync of its pages, a write of its meta page that is synced at once."""
    disks, do = node
    before = disks.count(NODE, [kind])
    assert do(job)[1] == "" and since(disks, before, kind) == (count, 0, 0)
    disks.slow(NODE, 0.2, [other for other in ALL if other != kind])
    assert do(job)[1] == "" and since(disks, before, kind) == (2 * count, 0, 0)
    disks.slow(NODE, 0.2, [kind])
    seconds, error = do(job)
    assert seconds >= 0.2 * count and not error and since(disks, before, kind) == (3 * count, count, 0)
    disks.heal(NODE)
    disks.fail(NODE, 1, [kind])
    assert os.strerror(errno.EIO) in do(job)[1] and since(disks, before, kind)[1:] == (count, 1)


def test_who_sleeps_does_so_for_as_long_as_was_said(node: tuple[Disks, Job]) -> None:
    """Also beside libfaketime, whose own version of it fails."""
    _, do = node
    seconds, error = do("sleep")
    assert seconds >= 0.3 and not error


@pytest.mark.parametrize("node", ["alone"], indirect=True)
def test_what_lies_elsewhere_is_left_alone(node: tuple[Disks, Job]) -> None:
    disks, do = node
    before = disks.count(NODE)
    disks.fail(NODE)
    assert do("outside")[1] == "" and disks.count(NODE) == before


@pytest.mark.parametrize("node", ["alone"], indirect=True)
def test_a_disk_fails_so_often_or_until_it_is_well_again(node: tuple[Disks, Job]) -> None:
    disks, do = node
    disks.fail(NODE, 2)
    assert [bool(do("log")[1]) for _ in range(4)] == [True, True, False, False]
    disks.fail(NODE, FOREVER)
    assert all(do("log")[1] for _ in range(5))
    disks.heal(NODE)
    assert not do("log")[1] and disks.count(NODE).failed == 7


@pytest.mark.parametrize("node", ["alone"], indirect=True)
@pytest.mark.parametrize("spared", [0, 1])
def test_a_checkpoint_fails_at_its_pages_or_at_its_meta_page_and_is_not_there(
    node: tuple[Disks, Job], spared: int, tmp_path: Path
) -> None:
    """The page cache holds what was not synced, as under Linux; LMDB puts its old meta page back."""
    disks, do = node
    assert not do("state")[1]
    before = value_in(tmp_path / "home" / "state")
    disks.fail(NODE, 1, [Kind.STATE], spared)
    assert os.strerror(errno.EIO) in do("state")[1]
    assert value_in(tmp_path / "home" / "state") == before


def value_in(state: Path) -> bytes:
    """As of the last checkpoint that is there."""
    with lmdb.open(str(state), readonly=True, lock=False) as env, env.begin() as txn:
        return bytes(txn.get(b"key", default=b""))


def without_a_compiler(*names: str) -> None:
    return None


def test_without_a_compiler_it_is_refused_if_named_and_left_out_if_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", without_a_compiler)
    missing = impossible(["slow-disk", "failed-sync", "kill"], "none", 3)
    assert sorted(missing) == ["failed-sync", "slow-disk"] and "a C compiler" in missing["slow-disk"]
    options = Options(tmp_path)
    with pytest.raises(BadInput, match=r"slow-disk is not possible here: .* takes a C compiler"):
        _checked(["slow-disk"], options)
    assert not {"slow-disk", "failed-sync"} & set(_checked(None, options))


def test_a_compiler_that_builds_nothing_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syncs, "_compiler", lambda: "false")
    assert "cannot be built" in (Disks.why_not() or "")
