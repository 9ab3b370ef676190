"""Frames that wait for the disk are written and synced together, and each is reported for what became of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from recovery.store.files import Files
from recovery.store.log import Log
from recovery.store.store import Store
from recovery.store.worker import Report
from tests.support.logs import describe, frame
from txobserver.ids import Member, Position
from txobserver.ports.store import MemoryBase, StoreError


class CountingFiles(Files):
    """Real files; counts the syncs of segments, and fails them when it is told to."""

    def __init__(self) -> None:
        self.syncs = 0
        self.full = False

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        if self.full:
            raise OSError(28, "No space left on device")
        super().sync(descriptor)


class LateJobs:
    """Does what was submitted when the test says so; remembers each outcome."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], None], Report]] = []

    def submit(self, job: Callable[[], None], done: Report) -> None:
        self._waiting.append((job, done))

    def run(self) -> None:
        waiting, self._waiting = self._waiting, []
        for job, done in waiting:
            try:
                job()
                done(None)
            except StoreError as error:
                done(error)


class Disk:
    """A store whose writer is late."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.files, self.jobs = CountingFiles(), LateJobs()
        self.outcomes: list[StoreError | None] = []
        self.store = Store(
            Member("n", "i"),
            MemoryBase(),
            lambda applied: Log(directory, describe, 1 << 20, applied, self.files),
            self.jobs,
            self.jobs,
            self.jobs,
            lambda: 0.0,
        )
        assert list(self.store.suffix()) == []

    def append(self, *firsts: int) -> None:
        for first in firsts:
            self.store.append(frame(first), self.outcomes.append)


def test_frames_that_wait_share_one_sync(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "log")
    disk.append(1)
    disk.jobs.run()
    before = disk.files.syncs
    disk.append(4, 7, 10)
    disk.jobs.run()
    assert disk.files.syncs == before + 1 and disk.outcomes == [None] * 4
    assert [each.first for each in disk.store.read(1, 1 << 20)] == [1, 4, 7, 10]


def test_what_waits_behind_a_cut_is_not_written_before_it(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "log")
    disk.append(1, 4)
    disk.store.truncate(3, Position(1, 3), disk.outcomes.append)
    disk.append(4, 7)
    disk.jobs.run()
    assert disk.outcomes == [None] * 5
    assert [each.first for each in disk.store.read(1, 1 << 20)] == [1, 4, 7]
    disk.store.reset(Position(1, 20), disk.outcomes.append)
    disk.append(21)
    disk.jobs.run()
    assert disk.outcomes == [None] * 7 and disk.store.first == 21


def test_none_of_those_that_share_a_failed_sync_is_reported_as_written(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "log")
    disk.append(1)
    disk.jobs.run()
    disk.files.full = True
    disk.append(4, 7)
    disk.jobs.run()
    disk.files.full = False
    disk.append(10)
    disk.jobs.run()
    assert disk.outcomes[0] is None and all(isinstance(each, StoreError) for each in disk.outcomes[1:])


def test_a_frame_that_does_not_follow_spoils_all_that_share_its_write(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "log")
    disk.append(1, 7, 4)
    disk.jobs.run()
    assert len(disk.outcomes) == 3 and all(isinstance(each, StoreError) for each in disk.outcomes)
