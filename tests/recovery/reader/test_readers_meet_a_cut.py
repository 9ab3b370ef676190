"""Another process reads a node's log while the node cuts it, begins it anew or reclaims what is old."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from recovery.reader import declarations
from recovery.reader.landmarks import Landmarks
from recovery.reader.log_reader import LogReader
from recovery.reader.log_reading import LogCut
from recovery.reader.node_log import NodeLog
from recovery.store.log import Log, LogReclaimed
from recovery.store.segment import SegmentInfo, encode_header, scan, segment_path
from tests.recovery.reader.test_read_while_written import ALL, Watched, nothing, opened
from tests.support.logs import describe, frame, open_log
from txobserver.configuration import queue_step
from txobserver.events import Configure
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged

FRAMES, LAST = 9, 12
Place = tuple[int, int]
OLD: list[Place] = [(1, first) for first in range(1, 3 * FRAMES, 3)]
NEW: list[Place] = [*OLD[: LAST // 3], *((2, first) for first in range(LAST + 1, 31, 3))]


def places(frames: Iterator[Frame]) -> list[Place]:
    return [(each.generation, each.first) for each in frames]


def drained(reader: Iterator[Frame], found: list[Place]) -> list[Place] | None:
    """What was found and the rest; None where the reader is told to begin again."""
    try:
        return found + places(reader)
    except LogCut:
        return None


def cut(log: Log) -> None:
    """Behind LAST, and other frames of the same length."""
    log.truncate(LAST, Position(1, LAST))
    for first in range(LAST + 1, 31, 9):
        log.append([frame(first + more, generation=2) for more in (0, 3, 6)])


def at_each_step(
    tmp_path: Path, segment_bytes: int, given: int, read: Callable[[NodeLog], Iterator[Frame]]
) -> list[list[Place] | None]:
    """What a reader finds that has been given some frames, and reads the rest at one of the steps of a cut."""
    outcomes: list[list[Place] | None] = []
    for at in count():
        log, files = opened_at(tmp_path / str(at), segment_bytes)
        reader = read(NodeLog(tmp_path / str(at)))
        found = places(islice(reader, given))
        steps = count()
        before = len(outcomes)

        def look(
            steps: Iterator[int] = steps, at: int = at, reader: Iterator[Frame] = reader, found: list[Place] = found
        ) -> None:
            if next(steps) == at:
                outcomes.append(drained(reader, found))

        files.look = look
        cut(log)
        files.look = nothing
        log.close()
        if len(outcomes) == before:
            return [*outcomes, drained(reader, found)]
    raise AssertionError


class Unsynced(Watched):
    """No reader sees a sync."""

    def sync(self, descriptor: int) -> None:
        self.look()

    def sync_directory(self, directory: Path) -> None:
        self.look()


def opened_at(directory: Path, segment_bytes: int) -> tuple[Log, Watched]:
    directory.mkdir()
    files = Unsynced()
    log, _ = open_log(directory / "log", segment_bytes, files)
    for _, first in OLD:
        log.append([frame(first)])
    return log, files


@pytest.mark.parametrize("given", [0, 4, 5, 8])
@pytest.mark.parametrize("segment_bytes", [ALL, 300])
def test_a_reader_meets_a_cut_at_each_of_its_steps(tmp_path: Path, segment_bytes: int, given: int) -> None:
    """It gives frames of one history, or says that the log was cut: it calls nothing damaged or reclaimed."""
    outcomes = at_each_step(tmp_path, segment_bytes, given, lambda log: log.frames(1))
    assert len(outcomes) > 20
    for found in outcomes:
        assert found is None or found in (OLD[: len(found)], NEW[: len(found)])
    if given <= LAST // 3:
        assert outcomes[-1] == NEW or segment_bytes == ALL, "what was given stands still"


@pytest.mark.parametrize("given", [0, 4, 5, 8])
@pytest.mark.parametrize("segment_bytes", [ALL, 300])
def test_who_reads_backwards_meets_a_cut_at_each_of_its_steps(tmp_path: Path, segment_bytes: int, given: int) -> None:
    outcomes = at_each_step(tmp_path, segment_bytes, given, lambda log: log.backwards(3 * FRAMES + 1))
    assert len(outcomes) > 20
    for found in outcomes:
        if found is not None:
            forward = found[::-1]
            assert forward in (OLD[: len(found)], NEW[: len(found)]), "down to the first, without a hole"


def test_two_histories_in_one_reading(tmp_path: Path) -> None:
    log, _ = opened(tmp_path, FRAMES, 300)
    reader = NodeLog(tmp_path).frames(1)
    assert places(islice(reader, 6)) == OLD[:6]
    cut(log)
    with pytest.raises(LogCut, match="was cut at event 18 or before, while it was read; read it again"):
        list(reader)


@pytest.mark.parametrize("backwards", [False, True])
def test_the_next_segment_is_whole_and_of_another_history(tmp_path: Path, backwards: bool) -> None:
    """Segments of the same names were made behind the cut, so that none is missing."""
    log, _ = opened(tmp_path, FRAMES, 1)
    source = NodeLog(tmp_path)
    reader = source.backwards(3 * FRAMES + 1) if backwards else source.frames(1)
    assert places(islice(reader, 3 if backwards else 6)) == (OLD[:-4:-1] if backwards else OLD[:6])
    log.truncate(LAST, Position(1, LAST))
    for _, first in NEW[LAST // 3 :]:
        log.append([frame(first, generation=2)])
    with pytest.raises(LogCut, match=f"was cut at event {21 if backwards else 18} or before, while it was read"):
        list(reader)


@pytest.mark.parametrize("behind", [3, 500])
def test_a_log_begun_anew_is_no_damage(tmp_path: Path, behind: int) -> None:
    log, _ = opened(tmp_path, FRAMES, 300)
    reader = LogReader(tmp_path).frames(1)
    assert places(islice(reader, 6)) == OLD[:6]
    log.reset(Position(3, behind))
    log.append([frame(behind + 1, generation=3)])
    with pytest.raises(LogReclaimed if behind == 500 else LogCut):
        list(reader)


def test_nothing_is_read_behind_what_was_asked_for(tmp_path: Path) -> None:
    """As the log server reads, up to the commit point, while its node writes behind that."""
    log, _ = opened(tmp_path, FRAMES, 300)
    reader = NodeLog(tmp_path).frames(1, 6)
    assert places(islice(reader, 1)) == OLD[:1]
    log.truncate(6, Position(1, 6))
    path = segment_path(tmp_path / "log", 1)
    path.write_bytes(path.read_bytes() + frame(7, generation=2).data[:60])
    assert places(reader) == OLD[1:2]


def test_a_part_that_was_planned_before_a_cut(tmp_path: Path) -> None:
    """Where its first frame began, no frame begins any more."""
    log, _ = opened(tmp_path, FRAMES, ALL)
    source = NodeLog(tmp_path)
    start = source.find(19)
    log.truncate(LAST, Position(1, LAST))
    log.append([frame(first, generation=2, size=77) for first in range(LAST + 1, 50, 3)])
    with pytest.raises(LogCut, match="was cut at event 21 or before"):
        list(source.frames(19, 24, start))
    assert places(source.frames(19, 24)) == [(2, 19), (2, 22)]


@pytest.mark.parametrize("anew", [True, False])
def test_a_landmark_in_a_segment_that_has_gone(tmp_path: Path, anew: bool) -> None:
    """One reader found the beginning once; no other could read anything again until the node was started anew."""
    log, _ = opened(tmp_path, 60, 300)
    landmarks, source = Landmarks(), NodeLog(tmp_path)
    assert landmarks.find(source, 1) is not None
    if anew:
        log.reset(Position(2, 300))
        log.append([frame(301, generation=2)])
    else:
        log.reclaim(90, float("inf"))
    assert log.first > 30
    for sequence in (log.first, log.tail.sequence):
        assert landmarks.find(source, sequence) == source.find(sequence) is not None
    with pytest.raises(LogReclaimed):
        landmarks.find(source, 1)
    assert landmarks.find(source, log.first) is not None


def damage_header(directory: Path, sequence: int) -> None:
    """One bit of the header of the frame that holds an event."""
    mark = NodeLog(directory).find(sequence)
    assert mark is not None
    path = segment_path(directory / "log", mark.segment)
    data = bytearray(path.read_bytes())
    data[mark.offset + 20] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("segment_bytes", [ALL, 500])
def test_a_damaged_header_hides_nothing(tmp_path: Path, segment_bytes: int) -> None:
    """What stands behind it in its segment cannot be found: that is said by a reader that would have had to read it."""
    log, _ = opened(tmp_path, FRAMES, segment_bytes)
    log.close()
    damage_header(tmp_path, 4)
    source = NodeLog(tmp_path)
    for first in (1, 4, 7):
        with pytest.raises(StoreDamaged, match="is damaged at offset"):
            list(source.ranges(first, 27, 100))
    assert [(a.first, b.last) for a, b in source.ranges(1, 3, 100)] == [(1, 3)]
    for before in (10, 27):
        with pytest.raises(StoreDamaged, match="is damaged at offset"):
            list(source.backwards(before))
    assert places(source.backwards(4)) == [(1, 1)]


def test_a_header_of_a_segment_with_a_long_name(tmp_path: Path) -> None:
    """Of a cluster, here. Its log was empty to a reader that looks at headers alone."""
    (tmp_path / "log").mkdir()
    log = Log(tmp_path / "log", lambda at: SegmentInfo("c" * 4200, "n", "i", at, 0), ALL, Position(0, 0))
    log.append([frame(1)])
    log.close()
    source = NodeLog(tmp_path)
    tail = source.tail()
    assert tail is not None and tail.last == 3 and source.find(2) == tail


SEARCH = """
import os, sys, threading, time
from pathlib import Path
from recovery.reader import declarations
path = Path(sys.argv[1])
size = path.stat().st_size
def cut():
    while True:
        os.truncate(path, 5000)
        os.truncate(path, size)
threading.Thread(target=cut, daemon=True).start()
until = time.monotonic() + 1
while time.monotonic() < until:
    declarations._declared_in.cache_clear()
    assert declarations.declared_in(path) == {}
"""


def test_a_segment_is_cut_while_it_is_searched_for_declarations(tmp_path: Path) -> None:
    """Who has mapped a file that is cut ends with SIGBUS."""
    path = segment_path(tmp_path, 1)
    path.write_bytes(encode_header(describe(1)) + bytes(8 << 20))
    ended = subprocess.run([sys.executable, "-c", SEARCH, str(path)], check=False, cwd=Path.cwd(), env=os.environ)
    assert ended.returncode == 0, f"{signal.Signals(-ended.returncode).name if ended.returncode < 0 else ended}"


def test_a_search_for_declarations_that_meets_a_cut_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = open_log(tmp_path / "log")
    step = queue_step("q", False, {})
    declares = encode_frame(1, 1, [Configure(1, step.operation, step.name, step.arguments)], 0)
    log.append([declares, frame(2, size=20_000), frame(5, size=20_000)])

    def cut_meanwhile(path: Path, **options: Any) -> Iterator[tuple[int, Frame]]:
        monkeypatch.setattr(declarations, "scan", scan)
        for at, (offset, found) in enumerate(scan(path, **options)):
            yield offset, found
            if at == 1:
                log.truncate(1, Position(1, 1))
                log.append([frame(2, generation=2, size=15_000), frame(5, generation=2, size=40_000)])
                log.append([frame(8, generation=2, size=40_000)])

    monkeypatch.setattr(declarations, "scan", cut_meanwhile)
    assert declarations.declared_in(segment_path(tmp_path / "log", 1)) == {1: "q"}
