"""A sync of the decision log fails, and a process opens it: what it acts on then is on the disk."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from recovery.coordinator.decision_log import DecisionLog, read_decisions
from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown
from recovery.store.files import Files, renew_directory
from tests.support.linux_files import LinuxFiles


def failing(path: Path, files: LinuxFiles) -> DecisionLog:
    """A log with a decision that is durable, ``t0``, and one whose sync failed, ``t1``."""
    log = DecisionLog(path, files=files)
    assert log.decide("t0", True)
    files.failing = True
    with pytest.raises(DecisionUnknown, match="Input/output"):
        log.decide("t1", True)
    files.failing = False
    return log


def test_sync_failed_then_recovered(tmp_path: Path) -> None:
    """The run finds the commit and carries it out at one resource; then the power fails. It must be a commit still."""
    files = LinuxFiles()
    log = failing(tmp_path / "log", files)
    run = DecisionLog(tmp_path / "log", files=files)
    found = run.decision("t1")
    assert found is not None and found.commit
    for each in (run, log):
        each.close()
    files.power_cut()
    assert set(read_decisions(tmp_path / "log")[1]) == {"t0", "t1"}
    assert DecisionLog(tmp_path / "log").decide("t1", False) is True


def test_what_is_listed_as_unfinished_is_durable(tmp_path: Path) -> None:
    files = LinuxFiles()
    log = failing(tmp_path / "log", files)
    run = DecisionLog(tmp_path / "log", files=files)
    assert set(run.unfinished()) == {"t0", "t1"}
    for each in (run, log):
        each.close()
    files.power_cut()
    assert set(read_decisions(tmp_path / "log")[1]) == {"t0", "t1"}


def test_what_nobody_acted_on_may_be_lost(tmp_path: Path) -> None:
    files = LinuxFiles()
    failing(tmp_path / "log", files).close()
    files.power_cut()
    assert set(read_decisions(tmp_path / "log")[1]) == {"t0"}
    assert DecisionLog(tmp_path / "log").decide("t1", False) is False


def test_sync_failed_again_while_it_is_recovered(tmp_path: Path) -> None:
    files = LinuxFiles()
    log = failing(tmp_path / "log", files)
    run = DecisionLog(tmp_path / "log", files=files)
    files.failing = True
    with pytest.raises(DecisionUnknown, match="Input/output"):
        run.decision("t1")
    files.failing = False
    again = DecisionLog(tmp_path / "log", files=files)
    found = again.decision("t1")
    assert found is not None and found.commit
    for each in (run, log, again):
        each.close()
    files.power_cut()
    assert set(read_decisions(tmp_path / "log")[1]) == {"t0", "t1"}


def test_a_record_behind_a_failed_sync_is_not_believed(tmp_path: Path) -> None:
    """By the next process it is written again, and by one that had the log open before, it is not acted upon."""
    files = LinuxFiles()
    before = DecisionLog(tmp_path / "log", files=files)
    failing(tmp_path / "log", files).close()
    with pytest.raises(DecisionUnknown, match="Input/output"):
        before.decision("t1")
    with pytest.raises(DecisionRefused, match="Input/output"):
        before.decide("t2", True)
    files.failing = True
    disk_is_broken = DecisionLog(tmp_path / "log", files=files)
    with pytest.raises(DecisionUnknown, match="Input/output"):
        disk_is_broken.decision("t1")
    files.failing = False
    following = DecisionLog(tmp_path / "log", files=files)
    assert following.decision("t1") is not None
    for each in (before, disk_is_broken, following):
        each.close()
    files.power_cut()
    assert set(read_decisions(tmp_path / "log")[1]) == {"t0", "t1"}


class Watched(Files):
    """Says in which order names come, go and are synced, and files are opened."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.failing = False

    def open(self, path: Path) -> int:
        self.steps.append("opened")
        return super().open(path)

    def remove(self, path: Path) -> None:
        self.steps.append("removed")
        super().remove(path)

    def sync(self, descriptor: int) -> None:
        self.steps.append("synced")
        super().sync(descriptor)

    def sync_directory(self, directory: Path) -> None:
        self.steps.append(f"{directory} synced")
        if self.failing:
            raise OSError(errno.EIO, "Input/output error")
        super().sync_directory(directory)


def test_the_name_of_the_log_is_durable_before_it_is_used(tmp_path: Path) -> None:
    """The process that made it, or put a smaller one in its place, may have been killed before the sync of its
    directory."""
    DecisionLog(tmp_path / "log").close()
    files = Watched()
    log = DecisionLog(tmp_path / "log", files=files)
    above = [f"{each} synced" for each in tmp_path.parents if each.stat().st_dev == tmp_path.stat().st_dev]
    expected = ["opened", "removed", f"{tmp_path} synced", *above]
    assert files.steps == expected
    log.decide("t1", True)
    assert files.steps[len(expected) :] == ["synced"]
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_directories_that_another_process_has_just_made(tmp_path: Path) -> None:
    """They are synced by a process that finds them, too: it decides in a log that is nowhere if a power cut takes one
    away."""
    files = Watched()
    log = DecisionLog(tmp_path / "new" / "deep" / "log", files=files)
    names = [f"{each} synced" for each in (tmp_path / "new" / "deep", tmp_path / "new", tmp_path)]
    assert set(names) <= set(files.steps)
    other = Watched()
    assert DecisionLog(tmp_path / "new" / "deep" / "log", files=other).decide("t1", True)
    assert [step for step in other.steps if step in (*names, "synced")] == [*names, "synced"]
    log.close()


def test_a_name_that_could_not_be_made_durable_is_not_relied_on(tmp_path: Path) -> None:
    """Another process has put a smaller file in the place of the log. The first question fails, the second one too."""
    files = Watched()
    log = DecisionLog(tmp_path / "log", files=files)
    (tmp_path / "smaller").write_bytes(log.path.read_bytes())
    (tmp_path / "smaller").rename(log.path)
    files.failing = True
    for _ in range(2):
        with pytest.raises(DecisionRefused, match="Input/output"):
            log.decide("t1", True)
    files.failing = False
    del files.steps[:]
    assert log.decide("t1", True) is True
    assert f"{tmp_path} synced" in files.steps


class Moving(Watched):
    """Says also when a new file is made, and when the old one is told that the log goes on in it."""

    def create(self, path: Path) -> int:
        self.steps.append("made")
        return super().create(path)

    def write(self, descriptor: int, buffers: Sequence[bytes]) -> None:
        if b'"moved"' in b"".join(buffers):
            self.steps.append("moved")
        super().write(descriptor, buffers)


def test_the_old_file_says_that_the_log_moved_when_the_new_name_is_durable(tmp_path: Path) -> None:
    """After a power cut the old file has its name again otherwise, and is refused: nothing would be decided."""
    files = Moving()
    log = DecisionLog(tmp_path / "log", compact_bytes=0, files=files)
    for number in range(100):
        log.decide(f"t{number}", False)
        log.finish(f"t{number}")
        if "moved" in files.steps:
            break
    assert files.steps[-3:] == ["synced", f"{tmp_path} synced", "moved"]


class Counting(Files):
    """Counts the syncs of files; ``during`` happens in the middle of the next one."""

    def __init__(self) -> None:
        self.syncs = 0
        self.during: Callable[[], None] | None = None

    def sync(self, descriptor: int) -> None:
        self.syncs += 1
        super().sync(descriptor)
        during, self.during = self.during, None
        if during is not None:
            during()


def test_what_is_written_while_a_sync_runs_needs_another_one(tmp_path: Path) -> None:
    """That one began before it was written, so it says nothing of it."""
    files, written = Counting(), threading.Event()

    def reached(step: str) -> None:
        if step == "decision written" and threading.current_thread() is thread:
            written.set()

    def write() -> None:
        thread.start()
        assert written.wait(60)

    log = DecisionLog(tmp_path / "log", files=files, reached=reached)
    thread = threading.Thread(target=log.decide, args=("t2", True))
    log.decide("t0", True)
    before, files.during = files.syncs, write
    log.decide("t1", True)
    thread.join(60)
    assert files.syncs == before + 2


def test_the_name_of_a_link_is_durable_before_the_log_is_used(tmp_path: Path) -> None:
    """Without it, a process that opens the log by it would begin another one."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "log").symlink_to(tmp_path / "data" / "log")
    DecisionLog(tmp_path / "data" / "log").close()
    files = Watched()
    DecisionLog(tmp_path / "etc" / "log", files=files).close()
    assert {f"{tmp_path / 'data'} synced", f"{tmp_path / 'etc'} synced"} <= set(files.steps)
    assert list((tmp_path / "etc").iterdir()) == [tmp_path / "etc" / "log"]


def test_a_directory_that_is_renewed_holds_what_it_held(tmp_path: Path) -> None:
    """Also where it was cut short before."""
    (tmp_path / "kept").touch()
    (tmp_path / ".renewed").touch()
    renew_directory(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
