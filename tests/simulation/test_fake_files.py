"""The fake disk loses what a real one may lose, and nothing else."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest

from recovery.store.files import Files, renew_directory
from recovery.store.groups import GROUP_HEADER_SIZE
from recovery.store.log import Log
from recovery.store.store import StoreError
from tests.simulation.fake_files import Crashed, FakeFiles
from tests.support.logs import describe, frame
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
        group = [frame(4 + 3 * number) for number in range(count)]
        with pytest.raises(Crashed):
            log.append(group)
        files.steps_to_crash = None
        _, found = opened(files)
        sizes = [GROUP_HEADER_SIZE, *(len(each.data) for each in group)]
        whole = [end for end in list(accumulate(sizes))[1:] if end <= sum(sizes) // 2]
        assert files.last_durable() == (1, found[-1]) and len(found) == 1 + len(whole)


def written(files: FakeFiles, *parts: bytes) -> int:
    descriptor = files.create(DIRECTORY / "f")
    files.sync_directory(DIRECTORY)
    for part in parts:
        files.write(descriptor, [part])
        files.sync(descriptor)
    return descriptor


def failed(files: FakeFiles, descriptor: int) -> None:
    """A sync that fails, once."""
    files.sync_fails = True
    with pytest.raises(OSError, match="Input/output"):
        files.sync(descriptor)
    files.sync_fails = False


def after_a_crash(make: Callable[[FakeFiles], object], seeds: int = 60) -> set[bytes | None]:
    """What the file may hold then; None if it is not there."""
    found = set()
    for seed in range(seeds):
        files = FakeFiles(lambda: 0.0)
        make(files)
        files.crash(random.Random(seed))
        found.add(bytes(files.entries["f"].data) if "f" in files.entries else None)
    return found


def test_what_a_failed_sync_was_to_write_is_clean_and_may_be_lost() -> None:
    """Until the power cut it is read; a later sync that succeeds does not write it."""

    def make(files: FakeFiles) -> None:
        descriptor = written(files, b"old")
        files.write(descriptor, [b"new"])
        failed(files, descriptor)
        files.sync(descriptor)
        assert files.reader(DIRECTORY / "f").read() == b"oldnew"
        files.write(descriptor, [b"behind"])
        files.sync(descriptor)

    found = after_a_crash(make)
    assert found == {b"oldnewbehind", b"oldne\0behind", b"oldn\0\0behind", b"old\0\0\0behind"}


def test_what_is_written_again_is_synced_again() -> None:
    def make(files: FakeFiles) -> None:
        descriptor = written(files, b"old")
        files.write(descriptor, [b"new"])
        failed(files, descriptor)
        files.rewrite(DIRECTORY / "f", 3)
        files.sync(descriptor)

    assert after_a_crash(make) == {b"oldnew"}


def test_a_cut_whose_sync_failed_may_come_undone_until_the_length_is_written_again() -> None:
    def make(files: FakeFiles, again: bool = False) -> None:
        descriptor = written(files, b"old", b"gone")
        files.truncate(descriptor, 3)
        failed(files, descriptor)
        if again:
            files.rewrite(DIRECTORY / "f", 3)
        files.sync(descriptor)

    assert after_a_crash(make) == {b"old", b"oldgone"}
    assert after_a_crash(lambda files: make(files, again=True)) == {b"old"}


def test_a_directory_whose_sync_failed_is_clean_until_a_name_changes() -> None:
    def make(files: FakeFiles, again: bool = False) -> None:
        files.sync(files.create(DIRECTORY / "f"))
        files.sync_fails = True
        with pytest.raises(OSError, match="Input/output"):
            files.sync_directory(DIRECTORY)
        files.sync_fails = False
        if again:
            renew_directory(DIRECTORY, files)
        files.sync_directory(DIRECTORY)

    assert after_a_crash(make) == {b"", None}
    assert after_a_crash(lambda files: make(files, again=True)) == {b""}


def test_a_name_that_was_removed_comes_back_until_the_directory_is_synced() -> None:
    def make(files: FakeFiles, synced: bool = False) -> None:
        written(files, b"old")
        files.remove(DIRECTORY / "f")
        if synced:
            files.sync_directory(DIRECTORY)

    assert after_a_crash(make) == {b"old", None}
    assert after_a_crash(lambda files: make(files, synced=True)) == {None}


def test_what_is_under_no_synced_name_is_not_durable() -> None:
    files = FakeFiles(lambda: 0.0)
    descriptor = files.create(DIRECTORY / "f")
    files.write(descriptor, [frame(1).data])
    files.sync(descriptor)
    assert files.last_durable() == (0, 0) and files.generation_at(1) is None
    files.sync_directory(DIRECTORY)
    assert files.last_durable() == (1, 3) and files.generation_at(1) == 1


def test_what_stands_behind_a_hole_is_not_durable() -> None:
    files = FakeFiles(lambda: 0.0)
    descriptor = written(files, frame(1).data)
    files.write(descriptor, [frame(4).data])
    failed(files, descriptor)
    files.write(descriptor, [frame(7).data])
    files.sync(descriptor)
    assert files.last_durable() == (1, 3)
    assert [files.generation_at(sequence) for sequence in (3, 5, 8)] == [1, None, 1]


CHANGES: dict[str, Callable[[Files, int, Path], None]] = {
    "write": lambda files, descriptor, path: files.write(descriptor, [b"more"]),
    "truncate": lambda files, descriptor, path: files.truncate(descriptor, 2),
    "rewrite": lambda files, descriptor, path: files.rewrite(path, 0),
    "sync": lambda files, descriptor, path: files.sync(descriptor),
    "open": lambda files, descriptor, path: files.close(files.open(path)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_makes_a_real_file_new_makes_a_fake_one_new(tmp_path: Path, change: str) -> None:
    """Retention goes by that, and a start writes the end of the log again."""

    def made_new(files: Files, directory: Path, age: Callable[[Path], None]) -> bool:
        path = directory / "f"
        descriptor = files.create(path)
        files.write(descriptor, [b"data"])
        age(path)
        before = files.modified(path)
        CHANGES[change](files, descriptor, path)
        files.close(descriptor)
        return files.modified(path) > before

    fakes = FakeFiles(lambda: 1000.0)

    def age(path: Path) -> None:
        fakes.entries[path.name].modified = 10.0

    real = made_new(Files(), tmp_path, lambda path: os.utime(path, (10.0, 10.0)))
    assert made_new(fakes, DIRECTORY, age) == real == (change in ("write", "truncate", "rewrite"))
