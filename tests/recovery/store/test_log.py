"""The log: what was appended is read back as it was, or not at all."""

from __future__ import annotations

import errno
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from threading import Thread

import pytest

from recovery.reader.log_reader import LogReader
from recovery.store.files import Files
from recovery.store.groups import GROUP_HEADER_SIZE
from recovery.store.log import Log, LogReclaimed
from recovery.store.segment import encode_header, segment_firsts, segment_path
from tests.simulation.fake_files import FakeFiles
from tests.support.logs import describe, frame, grouped, open_log
from txobserver.events import Delivered
from txobserver.frames import encode_frame
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged, StoreError, StoreFull


def filled(directory: Path, frames: int = 4, segment_bytes: int = 1 << 20) -> Path:
    """A log of frames of three events; returns its last segment."""
    log, _ = open_log(directory, segment_bytes)
    for number in range(frames):
        log.append([frame(1 + 3 * number)])
    log.close()
    return segment_path(directory, segment_firsts(directory)[-1])


def test_what_is_appended_is_found_again(tmp_path: Path) -> None:
    filled(tmp_path / "log")
    log, found = open_log(tmp_path / "log")
    assert [f.first for f in found] == [1, 4, 7, 10] and log.tail == Position(1, 12)
    log.append([frame(13)])
    assert [f.first for f in log.read(7, 1)] == [7]
    assert [f.first for f in log.read(7, 1 << 20)] == [7, 10, 13]
    assert log.read(16, 1) == []


def test_segments_roll_and_are_read_across(tmp_path: Path) -> None:
    filled(tmp_path / "log", 10, segment_bytes=300)
    assert len(segment_firsts(tmp_path / "log")) > 3
    log, found = open_log(tmp_path / "log", 300)
    assert [f.first for f in found] == list(range(1, 31, 3))
    assert [f.first for f in log.read(1, 1 << 20)] == list(range(1, 31, 3))


def test_a_torn_tail_is_cut_at_every_byte(tmp_path: Path) -> None:
    last = filled(tmp_path / "log")
    whole = last.read_bytes()
    group, frames = whole.rindex(b"TXGR"), whole.rindex(b"TXHA")
    for end in range(group, len(whole)):
        last.write_bytes(whole[:end])
        for _ in range(2):
            log, found = open_log(tmp_path / "log")
            log.close()
            assert [f.first for f in found] == [1, 4, 7], f"cut at {end}"
            assert last.stat().st_size == (group if end < frames else frames + GROUP_HEADER_SIZE)
    assert open_log(tmp_path / "log")[0].tail == Position(1, 9)


def test_a_tail_of_zeros_is_torn_too(tmp_path: Path) -> None:
    last = filled(tmp_path / "log")
    whole = last.read_bytes()
    last.write_bytes(whole[:-20] + bytes(20))
    assert [f.first for f in open_log(tmp_path / "log")[1]] == [1, 4, 7]


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    """Not one is served, and none but at the very end could be taken for a torn tail."""
    last = filled(tmp_path / "log", 3)
    whole = last.read_bytes()
    for at in range(len(whole)):
        last.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises((StoreDamaged, StoreError)):
            open_log(tmp_path / "log")
        assert last.stat().st_size == len(whole), "nothing was cut"


def test_a_flipped_bit_in_a_record_that_ends_in_zeros_is_no_torn_tail(tmp_path: Path) -> None:
    """The last event is a mark, whose offset ends in zero bits; it may have been acknowledged."""
    log, _ = open_log(tmp_path / "log")
    log.append([encode_frame(1, 1, [Delivered(1, 5 << 20)], 0)])
    log.close()
    last = segment_path(tmp_path / "log", 1)
    whole = last.read_bytes()
    for at in range(whole.index(b"TXHA"), len(whole)):
        last.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises((StoreDamaged, StoreError)):
            open_log(tmp_path / "log")
        assert last.stat().st_size == len(whole)


def test_damaged_before_a_torn_tail(tmp_path: Path) -> None:
    """A record that may have been acknowledged is damaged, and behind it a crash left a piece that ends in zeros."""
    last = filled(tmp_path / "log")
    whole = last.read_bytes()
    torn = frame(13).data
    for at in range(whole.rindex(b"TXHA"), len(whole)):
        for tail in (torn[:20], torn[:30] + bytes(9), torn[:60] + bytes(40)):
            last.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] + tail)
            with pytest.raises(StoreDamaged):
                open_log(tmp_path / "log")


def test_a_record_that_was_cut_short_anywhere_and_never_filled_is_torn(tmp_path: Path) -> None:
    last = filled(tmp_path / "log")
    whole = last.read_bytes()
    begin = whole.rindex(b"TXHA")
    for end in range(begin, len(whole)):
        last.write_bytes(whole[:end] + bytes(len(whole) - end))
        assert [f.first for f in open_log(tmp_path / "log")[1]] == [1, 4, 7], f"cut at {end - begin}"
        last.write_bytes(whole[:end] + bytes(5000))
        assert [f.first for f in open_log(tmp_path / "log")[1]] == [1, 4, 7], f"cut at {end - begin}"


def test_a_bit_flipped_while_it_runs_is_found_by_the_next_read(tmp_path: Path) -> None:
    last = filled(tmp_path / "log")
    log, _ = open_log(tmp_path / "log")
    whole = bytearray(last.read_bytes())
    whole[whole.index(b"TXHA") + 60] ^= 1
    last.write_bytes(whole)
    with pytest.raises(StoreDamaged, match="damaged at offset"):
        log.read(1, 1 << 20)


def test_a_hole_in_the_middle_is_found_by_every_reader(tmp_path: Path) -> None:
    """A segment that lost its last frame while the log is open, for the node itself and for another process."""
    filled(tmp_path / "log", 10, segment_bytes=300)
    log, _ = open_log(tmp_path / "log", 300)
    middle = segment_path(tmp_path / "log", segment_firsts(tmp_path / "log")[1])
    middle.write_bytes(middle.read_bytes()[: middle.read_bytes().rindex(b"TXHA")])
    with pytest.raises(StoreDamaged, match="lacks the events"):
        log.read(1, 1 << 20)
    with pytest.raises(StoreDamaged, match="lacks the events"):
        list(LogReader(tmp_path).frames(1))


def test_zeros_over_the_description_of_a_segment_are_damage(tmp_path: Path) -> None:
    """A length of zero with a checksum of zero matches, and describes nothing."""
    last = filled(tmp_path / "log")
    whole = last.read_bytes()
    last.write_bytes(whole[:6] + bytes(6) + whole[12:])
    for call in (lambda: open_log(tmp_path / "log"), LogReader(tmp_path).segments):
        with pytest.raises(StoreDamaged, match="damaged"):
            call()


def test_a_segment_that_lost_its_first_record_is_found_by_every_reader(tmp_path: Path) -> None:
    last = filled(tmp_path / "log")
    header = encode_header(describe(1))
    last.write_bytes(header + grouped(len(header), [[frame(4)], [frame(7)]]))
    for call in (lambda: open_log(tmp_path / "log"), lambda: list(LogReader(tmp_path).frames())):
        with pytest.raises(StoreDamaged, match="lacks the events 1 to 3"):
            call()


def test_a_new_segment_that_was_never_filled_is_dropped(tmp_path: Path) -> None:
    filled(tmp_path / "log")
    segment_path(tmp_path / "log", 13).write_bytes(bytes(100))
    _, found = open_log(tmp_path / "log")
    assert len(found) == 4 and segment_firsts(tmp_path / "log") == [1]


def test_a_missing_segment_is_found(tmp_path: Path) -> None:
    filled(tmp_path / "log", 10, segment_bytes=300)
    firsts = segment_firsts(tmp_path / "log")
    segment_path(tmp_path / "log", firsts[1]).unlink()
    with pytest.raises(StoreDamaged, match="lacks the events"):
        open_log(tmp_path / "log", 300)


def test_a_missing_newest_segment_is_found_by_a_checkpoint_behind_it(tmp_path: Path) -> None:
    """Else the node would go on from the checkpoint, and forget what it had acknowledged behind it."""
    last = filled(tmp_path / "log", 10, segment_bytes=300)
    lost = int(last.stem) + 2
    last.unlink()
    log = Log(tmp_path / "log", describe, 300, Position(1, lost))
    with pytest.raises(StoreDamaged, match=rf"lacks the events \d+ to {lost}; "):
        list(log.recover(Position(1, lost)))


def test_a_header_that_is_cut_short_is_damage_unless_it_is_the_last(tmp_path: Path) -> None:
    filled(tmp_path / "log", 10, segment_bytes=300)
    middle = segment_path(tmp_path / "log", segment_firsts(tmp_path / "log")[1])
    middle.write_bytes(middle.read_bytes()[:5])
    with pytest.raises(StoreDamaged, match="ends within its header"):
        open_log(tmp_path / "log")
    with pytest.raises(StoreDamaged, match="ends within its header"):
        list(LogReader(tmp_path).frames())


def test_to_inspect_is_to_read_what_a_start_reads_and_to_change_nothing(tmp_path: Path) -> None:
    last = filled(tmp_path / "log", 10, segment_bytes=300)
    last.write_bytes(last.read_bytes()[:-3])
    segment_path(tmp_path / "log", 31).touch()
    before = {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()}
    inspected = list(Log(tmp_path / "log", describe, 300, Position(1, 5)).inspect(Position(1, 5)))
    assert {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()} == before
    started = list(Log(tmp_path / "log", describe, 300, Position(1, 5)).recover(Position(1, 5)))
    assert inspected == started and [f.first for f in started] == list(range(4, 28, 3))
    assert {path.name: path.read_bytes() for path in (tmp_path / "log").iterdir()} != before


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    last = filled(tmp_path / "log")
    data = bytearray(last.read_bytes())
    data[5] = 9
    last.write_bytes(data)
    with pytest.raises(StoreDamaged, match=r"the header of .* is damaged"):
        open_log(tmp_path / "log")
    length = int.from_bytes(data[6:8], "big")
    data[8:12] = zlib.crc32(data[12 : 12 + length], zlib.crc32(data[:8])).to_bytes(4, "big")
    last.write_bytes(data)
    with pytest.raises(StoreError, match="format version 9; this version of txha reads 1"):
        open_log(tmp_path / "log")


@pytest.mark.parametrize("last", [0, 3, 6, 9, 12, 15, 21, 27])
def test_truncate_is_durable_and_the_log_goes_on(tmp_path: Path, last: int) -> None:
    filled(tmp_path / "log", 9, segment_bytes=300)
    log, _ = open_log(tmp_path / "log", 300)
    log.truncate(last, Position(1, last))
    log.append([frame(last + 1, generation=2)])
    log.close()
    log, found = open_log(tmp_path / "log", 300)
    assert [f.first for f in found] == [*range(1, last, 3), last + 1]
    assert log.tail == Position(2, last + 3)


def test_reset_begins_anew(tmp_path: Path) -> None:
    filled(tmp_path / "log", 9, segment_bytes=300)
    log, _ = open_log(tmp_path / "log", 300)
    log.reset(Position(3, 100))
    log.append([frame(101, generation=3)])
    assert log.first == 101 and segment_firsts(tmp_path / "log") == [101]


def test_a_frame_that_does_not_continue_is_refused(tmp_path: Path) -> None:
    log, _ = open_log(tmp_path / "log")
    log.append([frame(1)])
    with pytest.raises(StoreError, match="does not continue"):
        log.append([frame(5)])


@pytest.mark.parametrize("applied", [9, 10, 11, 20])
def test_a_log_that_ends_before_what_the_checkpoint_holds_is_damaged(tmp_path: Path, applied: int) -> None:
    """Also if only its last event is missing: what is written behind the gap could not be read back."""
    filled(tmp_path / "log", frames=3)
    at = Position(1, applied)
    log = Log(tmp_path / "log", describe, 1 << 20, Position(0, 0))
    if applied == 9:
        assert list(log.recover(at, begun=True)) == [] and log.tail == at
        log.close()
        return
    with pytest.raises(StoreDamaged, match=f"lacks the events 10 to {applied};"):
        list(log.recover(at, begun=True))


def test_reclaiming_takes_whole_old_segments_only(tmp_path: Path) -> None:
    filled(tmp_path / "log", 10, segment_bytes=300)
    log, _ = open_log(tmp_path / "log", 300)
    firsts = segment_firsts(tmp_path / "log")
    for first in firsts[:3]:
        os.utime(segment_path(tmp_path / "log", first), (1, 1))
    log.reclaim(applied=firsts[2] - 1, older_than=1000)
    assert log.first == firsts[2], "the third holds an event that is not applied"
    log.reclaim(applied=30, older_than=1000)
    assert log.first == firsts[3], "the fourth is not old"
    with pytest.raises(LogReclaimed, match="no longer holds"):
        log.read(1, 1 << 20)


def test_a_cut_while_old_segments_are_reclaimed_leaves_one(tmp_path: Path) -> None:
    """The thread of the log cuts in the moment when that of the checkpoints has looked how many segments there are."""
    filled(tmp_path / "log", 3, segment_bytes=1)
    cuts: list[Thread] = []

    class Cutting(Files):
        def modified(self, path: Path) -> float:
            if not cuts:
                cuts.append(Thread(target=lambda: log.truncate(3, Position(1, 3))))
                cuts[0].start()
                cuts[0].join(0.5)  # it waits for the reclaiming, or is done
            return 0.0

    log, _ = open_log(tmp_path / "log", files=Cutting())
    log.reclaim(applied=3, older_than=1000)
    cuts[0].join()
    assert segment_firsts(tmp_path / "log"), "the only segment that was left has been removed"
    log.append([frame(4)])
    assert [each.first for each in log.read(4, 1 << 20)] == [4]
    log.close()


class FailingFiles(Files):
    """Fails at the n-th sync or write."""

    def __init__(self, syncs: int = -1, writes: int = -1, error: int = errno.EIO) -> None:
        self.syncs, self.writes, self.error = syncs, writes, error

    def sync(self, descriptor: int) -> None:
        self.syncs -= 1
        if self.syncs == 0:
            raise OSError(self.error, os.strerror(self.error))
        super().sync(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes]) -> None:
        self.writes -= 1
        if self.writes == 0:
            raise OSError(self.error, os.strerror(self.error))
        super().write(descriptor, buffers)


def test_after_a_failed_sync_nothing_more_is_accepted(tmp_path: Path) -> None:
    files = FailingFiles(syncs=3)
    log, _ = open_log(tmp_path / "log", files=files)
    log.append([frame(1)])
    for first in (4, 7):
        with pytest.raises(StoreError, match=r"[Ii]nput/output"):
            log.append([frame(first)])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS])
def test_full_and_read_only_say_so(tmp_path: Path, error: int) -> None:
    log, _ = open_log(tmp_path / "log", files=FailingFiles(writes=2, error=error))
    with pytest.raises(StoreFull, match="start"):
        log.append([frame(1)])


def test_found_is_not_synced() -> None:
    """What a killed process had written is synced before it counts: a later power cut may not take it."""
    files = FakeFiles(lambda: 0.0)
    log = Log(Path("log"), describe, 1 << 20, Position(0, 0), files)
    log.append([frame(1)])
    files.sync_fails = True
    with pytest.raises(StoreError):
        log.append([frame(4)])
    files.sync_fails = False
    assert files.last_durable() == (1, 3), "the second frame is in the file, and the process ends here"
    again = Log(Path("log"), describe, 1 << 20, Position(0, 0), files)
    assert [each.first for each in again.recover(Position(0, 0))] == [1, 4]
    assert files.last_durable() == (1, 6)


def test_a_log_that_cannot_be_read_is_said_in_a_sentence() -> None:
    files = FakeFiles(lambda: 0.0)
    log = Log(Path("log"), describe, 1 << 20, Position(0, 0), files)
    log.append([frame(1)])
    files.read_fails = True
    with pytest.raises(StoreError, match="failed: Input/output error"):
        log.read(1, 1 << 20)
    with pytest.raises(StoreError, match="failed: Input/output error"):
        list(Log(Path("log"), describe, 1 << 20, Position(0, 0), files).recover(Position(0, 0)))
