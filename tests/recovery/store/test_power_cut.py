"""A power cut within one sync keeps any sectors of the last group, and loses any others: it was not acknowledged."""

from __future__ import annotations

import random
from pathlib import Path
from typing import NoReturn

import pytest

from recovery.pipeline.source.log_sites import Directory
from recovery.reader.log_reader import LogReader
from recovery.reader.node_log import NodeLog
from recovery.store.files import REAL_FILES
from recovery.store.groups import GROUP_HEADER_SIZE, SECTOR, encode_group_header, zero_sectors
from recovery.store.segment import encode_header, read_header, segment_firsts, segment_path
from tests.support.logs import describe, frame, old_header, open_log
from txobserver.events import Message, Publish
from txobserver.frames import Frame, TornFrame, encode_frame
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged, StoreError

SYNCED = [frame(1), frame(4, size=300)]
NEXT = 7


def written(directory: Path, group: list[Frame]) -> tuple[Path, int]:
    """A log with two groups that were synced, and one behind it; its segment, and where the last group begins."""
    log, _ = open_log(directory)
    for each in SYNCED:
        log.append([each])
    path = segment_path(directory, 1)
    begins = path.stat().st_size
    log.append(group)
    log.close()
    return path, begins


def without(data: bytes, begins: int, sectors: set[int]) -> bytes:
    """``data`` with zeros for what was written behind ``begins`` into these sectors of the file."""
    bent = bytearray(data)
    for sector in sectors:
        since, until = max(sector * SECTOR, begins), min((sector + 1) * SECTOR, len(bent))
        bent[since:until] = bytes(max(until - since, 0))
    return bytes(bent)


def sectors_of(data: bytes, begins: int) -> range:
    return range(begins // SECTOR, -(-len(data) // SECTOR))


def of(first: int, body: bytes) -> Frame:
    """A frame of one message."""
    return encode_frame(1, first, [Publish(first, (1,), Message("", "key", b"", body))], 0)


def check_torn(directory: Path, whole: list[Frame]) -> None:
    """All that was synced is found, and of the last group what its first frames hold; the log goes on behind it."""
    readers = [each.first for each in LogReader(directory.parent).frames(1)]
    log, found = open_log(directory)
    assert found[:2] == SYNCED and found[2:] == whole[: len(found) - 2]
    assert readers == [each.first for each in found]
    more = frame(log.tail.sequence + 1)
    log.append([more])
    log.close()
    again, there = open_log(directory)
    again.close()
    assert there == [*found, more] == list(LogReader(directory.parent).frames(1))


def full(*_: object) -> NoReturn:
    raise OSError(28, "No space left on device")


GROUPS = {
    "one frame of many sectors": [of(NEXT, random.Random(1).randbytes(6000))],
    "two large frames": [of(NEXT, b"a" * 3000), of(NEXT + 1, b"b" * 3000)],
    "many small ones": [of(NEXT + at, b"c" * 70) for at in range(40)],
    "messages of zeros": [of(NEXT, bytes(4000)), of(NEXT + 1, b"d" * 2000), of(NEXT + 2, bytes(300))],
    "less than a sector": [of(NEXT, b"e")],
}


@pytest.mark.parametrize("what", GROUPS)
def test_a_power_cut_keeps_any_sectors_of_the_last_group(tmp_path: Path, what: str) -> None:
    path, begins = written(tmp_path / "log", GROUPS[what])
    data, chance = path.read_bytes(), random.Random(what)
    sectors = sectors_of(data, begins)
    choices = [{each} for each in sectors] + [set(sectors) - {each} for each in sectors]
    choices += [{each for each in sectors if chance.random() < 0.5} for _ in range(20)]
    for lost in choices:
        bent = without(data, begins, lost)
        path.write_bytes(bent if chance.random() < 0.5 else bent.rstrip(b"\0"))
        check_torn(tmp_path / "log", GROUPS[what])


def test_a_power_cut_behind_a_log_that_was_cut(tmp_path: Path) -> None:
    """A group that was cut says that it is longer than it is; another, without a frame, then says where it ends."""
    for last in (5, 6, NEXT, 9):
        directory = tmp_path / str(last) / "log"
        directory.parent.mkdir()
        log, _ = open_log(directory)
        for group in ([frame(1)], [frame(4), of(NEXT, b"x" * 2000), of(NEXT + 1, b"y" * 900), frame(NEXT + 2)]):
            log.append(group)
        log.truncate(last, Position(1, last))
        path = segment_path(directory, 1)
        before, begins = [each.first for each in open_log(directory)[1]], path.stat().st_size
        log.append([of(last + 1, b"z" * 1500)])
        log.close()
        data = path.read_bytes()
        for sector in sectors_of(data, begins):
            path.write_bytes(without(data, begins, {sector}))
            again, found = open_log(directory)
            again.close()
            assert [each.first for each in found] == before and again.tail == Position(1, last)


def test_a_group_that_another_follows_was_synced(tmp_path: Path) -> None:
    """Whatever of it is missing then is damage, also where the follower is what a power cut left."""
    path, begins = written(tmp_path / "log", GROUPS["two large frames"])
    synced = path.stat().st_size
    log, _ = open_log(tmp_path / "log")
    log.append([of(NEXT + 2, b"e" * 3000)])
    log.close()
    data = path.read_bytes()
    for lost in sectors_of(data[:synced], begins):
        for later in (set(), {-(-synced // SECTOR) + 2}):
            bent = without(data[:synced], begins, {lost}) + data[synced:]
            path.write_bytes(without(bent, synced, later))
            with pytest.raises(StoreDamaged, match="damaged at offset"):
                open_log(tmp_path / "log")
            with pytest.raises(StoreDamaged):
                list(LogReader(tmp_path).frames(1))


@pytest.mark.parametrize("what", GROUPS)
def test_a_bit_that_flipped_in_the_last_group_is_no_power_cut(tmp_path: Path, what: str) -> None:
    """Nothing of it is missing, so it may have been acknowledged."""
    path, begins = written(tmp_path / "log", GROUPS[what])
    data, chance = path.read_bytes(), random.Random(what)
    drawn = [chance.randrange(begins, len(data)) for _ in range(60)]
    for at in [begins, begins + GROUP_HEADER_SIZE, len(data) - 1, *drawn]:
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
        with pytest.raises(StoreDamaged):
            open_log(tmp_path / "log")


def test_zeros_that_were_written_are_not_missing(tmp_path: Path) -> None:
    """A group counts its own sectors of zeros, so one more of them is missing, and none more is damage."""
    path, begins = written(tmp_path / "log", [of(NEXT, bytes(4000) + b"f" * 4000)])
    data = path.read_bytes()
    assert zero_sectors(data, 0) >= 6
    body = data.index(b"f" * 4000) + 700
    path.write_bytes(data[:body] + b"g" + data[body + 1 :])
    with pytest.raises(StoreDamaged):
        open_log(tmp_path / "log")
    path.write_bytes(without(data, begins, {body // SECTOR}))
    check_torn(tmp_path / "log", [])


def test_a_message_that_holds_a_log_with_groups_is_torn_like_any_other(tmp_path: Path) -> None:
    """What looks like a group's header within it stands somewhere else than it says."""
    inner = b"".join(encode_group_header(at * 5000, [b"x"]) + frame(at + 1).data for at in range(4))
    path, begins = written(tmp_path / "log", [of(NEXT, b"g" * 700 + inner + b"g" * 3000)])
    data = path.read_bytes()
    for sector in sectors_of(data, begins):
        path.write_bytes(without(data, begins, {sector}))
        check_torn(tmp_path / "log", [])


def test_sectors_of_zeros_are_counted_as_the_file_counts_them() -> None:
    for offset in (0, 1, 511, 512, 5000):
        for length in (0, 511, 512, 1023, 1024, 4000):
            there = bytes([7]) * offset + bytes(length) + bytes([7])
            whole = sum(not there[at : at + SECTOR].strip(b"\0") for at in range(0, len(there) - SECTOR + 1, SECTOR))
            assert zero_sectors(bytes(length) + bytes([7]), offset) == whole


def test_the_header_of_a_segment_that_did_not_come(tmp_path: Path) -> None:
    """It is of one sector, and nothing stands behind it before it was synced."""
    written(tmp_path / "log", [frame(NEXT)])
    header = encode_header(describe(NEXT + 3))
    assert len(header) < SECTOR
    last = segment_path(tmp_path / "log", NEXT + 3)
    last.write_bytes(without(header, 0, {0}))
    with pytest.raises(TornFrame):
        read_header(last)
    log, found = open_log(tmp_path / "log")
    log.close()
    assert len(found) == 3 and segment_firsts(tmp_path / "log") == [1]


@pytest.mark.parametrize("size", [600, 3000, 70_000, 200_000])
@pytest.mark.parametrize("groups", [1, 5])
def test_a_sector_that_is_lost_in_front_of_synced_groups_is_damage(tmp_path: Path, size: int, groups: int) -> None:
    """It takes the segment's header, and those of the first group and its frame; nothing of the others may go."""
    for segment_bytes, first, last in ((1, 1, 1), (1, 2, 2), (1 << 30, 3, groups + 1)):
        log, _ = open_log(tmp_path / "log", segment_bytes)
        for at in range(first, last + 1):
            log.append([of(at, random.Random(at).randbytes(size) + bytes(size))])
        log.close()
    path = segment_path(tmp_path / "log", 2)
    data = without(path.read_bytes(), 0, {0})
    path.write_bytes(data)
    for call in (lambda: open_log(tmp_path / "log"), lambda: list(LogReader(tmp_path).frames(1))):
        with pytest.raises(StoreDamaged):
            call()
    assert path.read_bytes() == data


def old_log(directory: Path, frames: list[Frame]) -> Path:
    """A log as earlier versions wrote it."""
    directory.mkdir()
    path = segment_path(directory, 1)
    path.write_bytes(old_header(describe(1)) + b"".join(each.data for each in frames))
    return path


def test_an_old_segment_is_gone_on_with_in_a_new_one(tmp_path: Path) -> None:
    path = old_log(tmp_path / "log", SYNCED)
    log, found = open_log(tmp_path / "log")
    assert found == SYNCED
    old = path.read_bytes()
    log.append([frame(7)])
    log.close()
    assert path.read_bytes() == old and segment_firsts(tmp_path / "log") == [1, 7]
    assert open_log(tmp_path / "log")[1] == [*SYNCED, frame(7)] == list(LogReader(tmp_path).frames(1))


@pytest.mark.parametrize("before", [[], SYNCED])
def test_an_old_segment_without_a_frame_takes_the_present_format(tmp_path: Path, before: list[Frame]) -> None:
    """Its name is taken; without groups, what a power cut leaves of the first write might be called damage."""
    path = old_log(tmp_path / "log", before)
    log, _ = open_log(tmp_path / "log")
    if before:
        log.truncate(0, Position(0, 0))
    log.append([frame(1)])
    begins = path.stat().st_size
    log.append([of(4, b"a" * 3000), of(5, b"b" * 100)])
    log.close()
    assert segment_firsts(tmp_path / "log") == [1]
    assert open_log(tmp_path / "log")[1] == [frame(1), of(4, b"a" * 3000), of(5, b"b" * 100)]
    path.write_bytes(without(path.read_bytes(), begins, {begins // SECTOR + 2}))
    assert open_log(tmp_path / "log")[1] == [frame(1)]


def test_a_crash_while_an_old_segment_takes_the_present_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = old_log(tmp_path / "log", [])
    for step in ("copy", "write", "sync", "replace", "sync_directory"):
        log, found = open_log(tmp_path / "log")
        assert not found
        with monkeypatch.context() as patch, pytest.raises(StoreError):
            patch.setattr(REAL_FILES, step, full)
            log.append([frame(1)])
        log.close()
        assert segment_firsts(tmp_path / "log") == [1] and read_header(path)[0] == describe(1)
    log, found = open_log(tmp_path / "log")
    log.append([frame(1)])
    log.close()
    assert not found and open_log(tmp_path / "log")[1] == [frame(1)]
    assert [each.name for each in (tmp_path / "log").iterdir()] == [path.name]


def test_an_old_segment_is_cut_without_a_word_of_groups(tmp_path: Path) -> None:
    path = old_log(tmp_path / "log", [*SYNCED, frame(7)])
    log, _ = open_log(tmp_path / "log")
    log.append([frame(10)])
    log.truncate(5, Position(1, 5))
    log.append([frame(6)])
    log.close()
    assert b"TXGR" not in path.read_bytes() and segment_firsts(tmp_path / "log") == [1, 6]
    assert [(each.first, each.last) for each in open_log(tmp_path / "log")[1]] == [(1, 3), (4, 5), (6, 8)]


def test_places_of_frames_are_found_between_the_headers_of_groups(tmp_path: Path) -> None:
    path, begins = written(tmp_path / "log", GROUPS["many small ones"])
    log = NodeLog(tmp_path)
    marks = list(log.segments.marks(1))
    assert [each.first for each in marks] == [1, 4, *range(NEXT, NEXT + 40)]
    data = path.read_bytes()
    assert all(data[each.offset : each.offset + 4] == b"TXHA" for each in marks) and marks[2].offset > begins
    assert log.find(NEXT + 5, marks[2]) == marks[7] and log.tail() == marks[-1]


def test_a_log_ends_where_a_start_would_end_it(tmp_path: Path) -> None:
    """Behind a torn frame a whole one may be left of the same group: no start takes it, and no reader counts it."""
    path, begins = written(tmp_path / "log", GROUPS["two large frames"])
    log = NodeLog(tmp_path)
    near = log.find(2)
    assert (whole := log.end()) == log.end(near) == log.tail() and whole is not None and whole.last == NEXT + 1
    path.write_bytes(without(path.read_bytes(), begins, {begins // SECTOR + 2}))
    assert (tail := log.tail()) is not None and tail.last == NEXT + 1, "by its header alone"
    site = Directory("node", str(tmp_path))
    for end in (log.end(), log.end(near), log.end(log.find(4))):
        assert end == log.find(4)
    for _ in range(2):
        extent = site.extent("log")
        assert (extent.first, extent.last, extent.tail) == (1, NEXT - 1, NEXT - 1)
    log_of_node, found = open_log(tmp_path / "log")
    assert found == SYNCED
    log_of_node.append(GROUPS["less than a sector"])
    log_of_node.close()
    assert site.extent("log").last == NEXT


def test_a_log_whose_first_group_was_torn_has_no_end(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path / "log")
    log.begin(Position(0, 0))
    path = segment_path(tmp_path / "log", 1)
    begins = path.stat().st_size
    log.append([of(1, b"a" * 3000), of(2, b"b" * 100)])
    log.close()
    path.write_bytes(without(path.read_bytes(), begins, {begins // SECTOR + 2}))
    assert NodeLog(tmp_path).end() is None and NodeLog(tmp_path).tail() is not None
    assert Directory("node", str(tmp_path)).extent("log").last == 0


def test_a_log_that_is_damaged_ends_behind_the_damage(tmp_path: Path) -> None:
    """Who reads it says so: what ends in front of the damage would look whole."""
    path, begins = written(tmp_path / "log", GROUPS["less than a sector"])
    data = bytearray(path.read_bytes())
    data[begins - 3] ^= 1
    path.write_bytes(data)
    end = NodeLog(tmp_path).end()
    assert end is not None and end.last == NEXT
    with pytest.raises(StoreDamaged):
        list(NodeLog(tmp_path).frames(1, end.last))
