"""The decision log: what was told is there, what a crash cut short is not, and what is damaged is said to be."""

from __future__ import annotations

import errno
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from recovery.coordinator import log_lines
from recovery.coordinator.decision_log import DecisionLog, read_decisions
from recovery.coordinator.decisions import ABORT_KEPT, ENDED_KEPT, Decision, DecisionRefused, DecisionUnknown
from recovery.coordinator.log_lines import decode_lines, encode_line, encode_lines
from recovery.coordinator.resources import Participant
from recovery.store.files import Files
from txobserver.ports.store import StoreDamaged, StoreError

WHO = [Participant("postgresql:1/bank", "database", "77"), Participant("amqp:c", "broker")]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.log"


def without_time(found: Decision | None) -> tuple[Any, ...]:
    assert found is not None
    return found.commit, found.participants


def test_a_decision_is_there_for_whoever_opens_the_log(path: Path) -> None:
    first = DecisionLog(path)
    assert first.decide("t1", True, WHO) is True
    assert first.decide("t2", False) is False
    second = DecisionLog(path)
    assert second.whose == first.whose
    assert without_time(second.decision("t1")) == (True, tuple(WHO))
    assert without_time(second.decision("t2")) == (False, ())
    assert second.decision("t3") is None
    assert list(second.unfinished()) == ["t1"]


def test_the_first_decision_stands(path: Path) -> None:
    coordinator, run = DecisionLog(path), DecisionLog(path)
    assert run.decide("t1", False) is False
    assert coordinator.decide("t1", True, WHO) is False
    assert coordinator.decide("t2", True, WHO) is True
    assert run.decide("t2", False) is True
    assert without_time(run.decision("t2")) == (True, tuple(WHO)), "read from what the other one has appended"


def test_the_log_s_own_ended_line_is_believed(path: Path) -> None:
    """A database goes on with a standby that has the prepare, and not the commit that was answered."""
    log = DecisionLog(path)
    log.decide("t1", True, WHO)
    log.finish("t1")
    log.finish("t1")
    for each in (log, DecisionLog(path)):
        assert each.unfinished() == {}
        assert each.decide("t1", False) is True
        assert without_time(each.decision("t1")) == (True, tuple(WHO))


def test_an_abort_behind_an_end_changes_nothing(path: Path) -> None:
    """Earlier versions wrote one when a branch came back."""
    lines = [{"log": "x", "version": 1}, {"commit": "t1", "at": 1.0, "participants": WHO}, {"end": "t1"}]
    path.write_bytes(b"".join(encode_lines([*lines, {"abort": "t1", "at": 2.0}])))
    assert without_time(DecisionLog(path).decision("t1")) == (True, tuple(WHO))
    assert [set(each) for each in read_decisions(path)[1:]] == [set(), {"t1"}]


def test_a_tail_that_a_crash_cut_short_is_cut_at_every_byte(path: Path) -> None:
    log = DecisionLog(path)
    log.decide("t1", True, WHO)
    whole = path.read_bytes()
    log.decide("t2", True, WHO)
    longer = path.read_bytes()
    for size in {*range(len(whole), len(longer), 7), len(whole) + 1, len(longer) - 1}:
        for hole in (b"", b"\0" * (len(longer) - size)):
            if len(hole) == 1:
                continue  # one changed byte is damage, not a page that was never written
            path.write_bytes(longer[:size] + hole)
            opened = DecisionLog(path)
            assert list(opened.unfinished()) == ["t1"]
            assert path.read_bytes() == whole
            opened.decide("t3", True, WHO)
            assert list(DecisionLog(path).unfinished()) == ["t1", "t3"]


def test_every_flipped_bit_is_found(path: Path) -> None:
    log = DecisionLog(path)
    for name in ("t1", "t2"):
        log.decide(name, True, WHO)
    log.finish("t2")
    whole = path.read_bytes()
    assert len(list(decode_lines(whole, 0, path, 0))) == 4
    for at in range(len(whole)):
        for bit in range(8):
            with pytest.raises(StoreDamaged):
                list(decode_lines(flipped(whole, at, bit), 0, path, 0))
    path.write_bytes(flipped(whole, len(whole) - 1, 0))
    with pytest.raises(StoreDamaged):
        DecisionLog(path)


def flipped(data: bytes, at: int, bit: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 1 << bit,)) + data[at + 1 :]


def test_a_missing_line_is_found(path: Path) -> None:
    log = DecisionLog(path)
    for name in ("t1", "t2", "t3"):
        log.decide(name, True, WHO)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], *lines[3:]]))
    with pytest.raises(StoreDamaged):
        DecisionLog(path)


def test_another_version_and_another_file_are_refused(path: Path) -> None:
    path.write_bytes(encode_line({"log": "x", "version": 99}, 0)[0])
    with pytest.raises(StoreError, match="version 99"):
        DecisionLog(path)
    path.write_bytes(b"")
    with pytest.raises(StoreDamaged):
        DecisionLog(path)


class FailingFiles(Files):
    """``fails``: the operation that fails from now on. A write that fails leaves half of what was to be written."""

    fails = ""

    def write(self, descriptor: int, buffers: Any) -> None:
        if self.fails == "write":
            super().write(descriptor, [buffers[0][: len(buffers[0]) // 2]])
            raise OSError(errno.ENOSPC, "no space")
        super().write(descriptor, buffers)

    def sync(self, descriptor: int) -> None:
        if self.fails == "sync":
            raise OSError(errno.EIO, "the disk is gone")
        super().sync(descriptor)


def test_a_write_that_fails_decides_nothing(path: Path) -> None:
    files = FailingFiles()
    log = DecisionLog(path, files=files)
    files.fails = "write"
    with pytest.raises(DecisionRefused, match="no space is left"):
        log.decide("t1", True, WHO)
    files.fails = ""
    assert log.decision("t1") is None
    assert log.decide("t1", False) is False
    assert without_time(DecisionLog(path).decision("t1")) == (False, ())


def test_a_sync_that_fails_leaves_the_decision_unknown_and_the_log_unused(path: Path) -> None:
    files = FailingFiles()
    log = DecisionLog(path, files=files)
    files.fails = "sync"
    with pytest.raises(DecisionUnknown):
        log.decide("t1", True, WHO)
    files.fails = ""
    for ask in (lambda: log.decide("t2", True, WHO), lambda: log.decision("t1"), log.unfinished):
        with pytest.raises(DecisionRefused):
            ask()


def test_nobody_is_told_a_decision_before_a_sync(path: Path) -> None:
    """Neither who wrote it nor who read it."""
    synced: list[int] = []

    class Watched(Files):
        def sync(self, descriptor: int) -> None:
            super().sync(descriptor)
            synced.append(path.stat().st_size if path.exists() else 0)

    writer = DecisionLog(path, files=Watched())
    writer.decide("t1", True, WHO)
    assert synced[-1] == path.stat().st_size
    reader = DecisionLog(path, files=Watched())
    count = len(synced)
    assert reader.decision("t1") is not None
    assert len(synced) == count + 1
    assert reader.decision("t1") is not None
    assert len(synced) == count + 1, "what has been synced once is not synced again"


class Clock:
    """The wall clock, as the test sets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.time()
        monkeypatch.setattr(time, "time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_a_log_does_not_grow_with_what_has_ended(path: Path, clock: Clock) -> None:
    log, other = DecisionLog(path, compact_bytes=5000), DecisionLog(path)
    log.decide("kept", True, WHO)
    other.decide("aborted", False)
    for number in range(200):
        clock.now += ENDED_KEPT / 10
        log.decide(f"t{number}", True, WHO)
        log.finish(f"t{number}")
    assert path.stat().st_size < 20000
    assert list(path.parent.iterdir()) == [path], "no file is left beside it"
    for each in (log, other, DecisionLog(path)):
        assert list(each.unfinished()) == ["kept"]
        assert without_time(each.decision("aborted")) == (False, ())
    assert other.decide("late", True, WHO) is True, "who had the old file open writes to the new one"
    assert without_time(log.decision("late")) == without_time(DecisionLog(path).decision("late")) == (True, tuple(WHO))


def test_what_has_ended_is_kept_for_its_time(path: Path, clock: Clock) -> None:
    """Also by a log that is made smaller meanwhile. The time begins when it has ended."""
    log = DecisionLog(path, compact_bytes=0)
    log.decide("late", True, WHO)
    clock.now += ENDED_KEPT
    work(log, "early", 40)
    clock.now += ENDED_KEPT * 3 / 4
    log.finish("late")
    clock.now += ENDED_KEPT / 2
    work_until_it_is_smaller(log)
    assert DecisionLog(path).decision("early0") is None
    assert without_time(DecisionLog(path).decision("late")) == (True, tuple(WHO))
    clock.now += ENDED_KEPT + 1
    work_until_it_is_smaller(log)
    assert DecisionLog(path).decision("late") is None


def work(log: DecisionLog, name: str, count: int) -> None:
    """Commits that end at once."""
    for number in range(count):
        log.decide(f"{name}{number}", True, WHO)
        log.finish(f"{name}{number}")


def work_until_it_is_smaller(log: DecisionLog) -> None:
    """Until another file has taken the place of the log."""
    before = log.path.stat().st_ino
    for number in range(100):
        work(log, f"{log.path.stat().st_size}-{number}-", 1)
        if log.path.stat().st_ino != before:
            return
    raise AssertionError("it stayed as it was")


def test_a_commit_that_has_not_ended_is_kept_however_old_it_is(path: Path, clock: Clock) -> None:
    """A participant that is away for long would else be told to roll back."""
    log = DecisionLog(path, compact_bytes=0)
    log.decide("old", True, WHO)
    work(log, "some", 20)
    clock.now += ABORT_KEPT + ENDED_KEPT
    work_until_it_is_smaller(log)
    assert set(DecisionLog(path).unfinished()) == {"old"}


def test_an_abort_is_forgotten_after_its_time(path: Path, clock: Clock) -> None:
    log = DecisionLog(path, compact_bytes=0)
    old = str(log.new_name())
    log.decide(old, False)
    work(log, "some", 20)
    clock.now += ABORT_KEPT - 1
    work_until_it_is_smaller(log)
    assert DecisionLog(path).decision(old) is not None
    clock.now += ENDED_KEPT + 1
    work_until_it_is_smaller(log)
    assert DecisionLog(path).decision(old) is None
    assert DecisionLog(path).new_name().began == int(clock.now), "later than what is forgotten, and no earlier than now"


@pytest.mark.parametrize("back", [0.0, 2 * ABORT_KEPT])
def test_a_clock_set_forward_decides_no_commit_that_was_aborted(path: Path, clock: Clock, back: float) -> None:
    """The log forgets the abort, and a slow coordinator would commit. Also if the clock is set back before it does."""
    log, slow = DecisionLog(path, compact_bytes=0), DecisionLog(path)
    aborted, other = str(slow.new_name()), str(slow.new_name())
    log.decide(aborted, False)
    work(log, "some", 20)
    clock.now += 2 * ABORT_KEPT
    work_until_it_is_smaller(log)
    clock.now -= back
    assert log.decision(aborted) is None
    for name in (aborted, other):
        with pytest.raises(DecisionRefused, match="begin it again"):
            slow.decide(name, True, WHO)
        assert slow.decision(name) is None
    assert slow.decide(str(slow.new_name()), True, WHO) is True, "whatever its clock says"
    assert slow.decide(aborted, False) is False
    work(log, "more", 20)
    clock.now += back + ENDED_KEPT + 1
    work_until_it_is_smaller(log)
    with pytest.raises(DecisionRefused):
        DecisionLog(path).decide(other, True, WHO)


@pytest.mark.parametrize("between", [False, True], ids=["together", "one by one"])
def test_what_is_forgotten_later_may_have_begun_earlier(path: Path, clock: Clock, between: bool) -> None:
    """The first line tells of the last beginning of them all, in whatever order they were aborted."""
    log, slow = DecisionLog(path, compact_bytes=0), DecisionLog(path)
    early = str(log.new_name())
    clock.now += 1000
    late = str(log.new_name())
    log.decide(late, False)
    clock.now += ABORT_KEPT / 2 if between else 0
    log.decide(early, False)
    for _ in range(2):
        work(log, f"some{path.stat().st_size}-", 20)
        clock.now += ABORT_KEPT - 1000
        work_until_it_is_smaller(log)
    assert log.decision(early) is log.decision(late) is None
    for name in (early, late):
        with pytest.raises(DecisionRefused, match="begin it again"):
            slow.decide(name, True, WHO)


def test_an_abort_of_what_seems_to_begin_later_is_kept(path: Path, clock: Clock) -> None:
    """A coordinator's clock is far ahead. To forget it would refuse what others begin until then."""
    log = DecisionLog(path, compact_bytes=0)
    clock.now += 3 * ABORT_KEPT
    aborted = str(log.new_name())
    clock.now -= 3 * ABORT_KEPT
    log.decide(aborted, False)
    work(log, "some", 20)
    clock.now += 2 * ABORT_KEPT
    work_until_it_is_smaller(log)
    found = DecisionLog(path)
    assert found.decision(aborted) is not None
    assert found.decide(str(found.new_name()), True, WHO) is True


def test_an_abort_is_kept_for_its_time_whenever_its_transaction_began(path: Path, clock: Clock) -> None:
    """By its name, which a clock far behind may have written: its time begins when it is recorded."""
    log = DecisionLog(path, compact_bytes=0)
    aborted = str(log.new_name())
    clock.now += 3 * ABORT_KEPT
    log.decide(aborted, False)
    work(log, "some", 20)
    clock.now += ENDED_KEPT + 1
    work_until_it_is_smaller(log)
    assert without_time(DecisionLog(path).decision(aborted)) == (False, ())


def _decide_many(path: Path, start: Any, results: Any, commit: bool) -> None:
    log_lines.ENDED_KEPT = 0.0
    log = DecisionLog(path, compact_bytes=2000)
    start.wait()
    stood = []
    for number in range(30):
        stood.append(log.decide(f"t{number}", commit, WHO if commit else ()))
        log.decide(f"{commit}{number}", True, WHO)
        log.finish(f"{commit}{number}")
    results.put(stood)


def test_processes_agree(path: Path) -> None:
    """Four of them decide the same transactions at once, two each way, while the file is made smaller under them."""
    DecisionLog(path).close()
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(4), context.Queue()
    ways = (True, False, True, False)
    processes = [context.Process(target=_decide_many, args=(path, start, results, each)) for each in ways]
    for process in processes:
        process.start()
    answers = [results.get(timeout=60) for _ in processes]
    for process in processes:
        process.join(60)
    assert answers[0] == answers[1] == answers[2] == answers[3]
    log = DecisionLog(path)
    assert [found.commit for number in range(30) if (found := log.decision(f"t{number}"))] == answers[0]


def test_threads_share_one_log(path: Path) -> None:
    log = DecisionLog(path)
    stood: list[list[bool]] = []

    def decide(commit: bool) -> None:
        stood.append([log.decide(f"t{number}", commit, WHO if commit else ()) for number in range(30)])

    threads = [threading.Thread(target=decide, args=(each,)) for each in (True, False, True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert stood[0] == stood[1] == stood[2] == stood[3]
    log.close()
    with pytest.raises(DecisionRefused, match="closed"):
        log.decide("t", True, WHO)
