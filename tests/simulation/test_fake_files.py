"""The fake disk loses what a real one may lose, and nothing else."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from recovery.log import Log
from recovery.store import StoreError
from tests.recovery.helpers import describe, frame
from tests.simulation.fake_files import Crashed, FakeFiles
from txobserver.ids import Position

DIRECTORY = Path("log")


def opened(files: FakeFiles) -> tuple[Log, list[int]]:
    log = Log(DIRECTORY, describe, 300, Position(0, 0), files)
    return log, [each.last for each in log.recover(Position(0, 0))]


def test_a_crash_keeps_what_was_synced_and_any_prefix_of_the_rest() -> None:
    lengths = set()
    for seed in range(200):
        files = FakeFiles(lambda: 0.0)
        descriptor = files.create(DIRECTORY / "f")
        files.sync_directory(DIRECTORY)
        files.write(descriptor, [b"synced"])
        files.sync(descriptor)
        files.write(descriptor, [b"not yet"])
        files.crash(random.Random(seed))
        data = bytes(files.entries["f"].data)
        assert data[:6] == b"synced" and b"synced" + b"not yet"[: len(data.rstrip(b"\0")) - 6] == data.rstrip(b"\0")
        lengths.add(len(data))
    assert len(lengths) == 8


def test_a_name_that_was_not_synced_may_be_gone() -> None:
    found = set()
    for seed in range(50):
        files = FakeFiles(lambda: 0.0)
        files.sync(files.create(DIRECTORY / "f"))
        files.crash(random.Random(seed))
        found.add("f" in files.entries)
    assert found == {True, False}


def test_the_log_survives_a_crash_at_every_step() -> None:
    """Whatever step of an append or of a new segment the process dies in: what was returned from is there."""
    for steps in range(30):
        for seed in range(20):
            files = FakeFiles(lambda: 0.0)
            log, _ = opened(files)
            kept = died_within(files, log, steps)
            files.crash(random.Random(seed))
            _, found = opened(files)
            assert found[: len(kept)] == kept and len(found) <= len(kept) + 1


def died_within(files: FakeFiles, log: Log, steps: int) -> list[int]:
    """Append until the process dies after so many file operations; returns what was acknowledged."""
    files.steps_to_crash = steps
    kept = []
    try:
        for first in range(1, 30, 3):
            log.append([frame(first)])
            kept.append(first + 2)
    except Crashed:
        return kept
    return kept


def test_full_and_failing() -> None:
    files = FakeFiles(lambda: 0.0)
    log, _ = opened(files)
    log.append([frame(1)])
    files.full = True
    with pytest.raises(StoreError, match="no space is left"):
        log.append([frame(4)])
    files.full, files.sync_fails = False, True
    with pytest.raises(OSError, match="Input/output") as failed:
        files.sync_directory(DIRECTORY)
    assert failed.value.errno == errno.EIO


def test_the_account_of_frames_is_what_the_log_reads_after_half_a_write() -> None:
    """Half of a write of several frames holds some of them whole; once found and synced they count."""
    for count in range(1, 6):
        files = FakeFiles(lambda: 0.0)
        log, _ = opened(files)
        log.append([frame(1)])
        files.steps_to_crash = 0
        with pytest.raises(Crashed):
            log.append([frame(4 + 3 * number) for number in range(count)])
        files.steps_to_crash = None
        _, found = opened(files)
        assert files.last_durable() == (1, found[-1]) and len(found) == 1 + count // 2
