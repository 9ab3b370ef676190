"""What a crash cut short is told from damage, whatever clients put into their messages and operators into names."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.store.segment import SegmentInfo, decode_header, encode_header, read_header, scan, segment_path
from tests.support.logs import describe, frame, old_header, open_log
from txobserver.events import Delivered, Message, Publish
from txobserver.frames import TornFrame, encode_frame
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged


@pytest.mark.parametrize("zeros", [0, 700])
@pytest.mark.parametrize("held", [1, 1 << 40])
def test_a_message_that_holds_a_log_is_torn_like_any_other(tmp_path: Path, held: int, zeros: int) -> None:
    """The records within its body are none behind it, of this log or of another."""
    log, _ = open_log(tmp_path / "log")
    body = b"".join(encode_frame(1, held + at, [Delivered(1, 5)], 0).data for at in range(3)) + b"x" * 1000
    log.append([frame(1), encode_frame(1, 4, [Publish(9, (1,), Message("", "q", b"", body))], 0)])
    log.close()
    last = segment_path(tmp_path / "log", 1)
    last.write_bytes(last.read_bytes()[:-700] + bytes(zeros))
    log, found = open_log(tmp_path / "log")
    assert [each.first for each in found] == [1] and log.tail == Position(1, 3)
    log.append([frame(4)])


def test_records_that_go_on_within_what_a_record_counts_as_its_own_are_later_ones(tmp_path: Path) -> None:
    """Its bytes are gone from the middle of the file, so that it seems to be cut short: it may have been synced."""
    log, _ = open_log(tmp_path / "log")
    lost = encode_frame(1, 4, [Publish(9, (1,), Message("", "q", b"", b"x" * 1000))], 0)
    for each in (frame(1), lost, frame(5)):
        log.append([each])
    log.close()
    last = segment_path(tmp_path / "log", 1)
    whole = last.read_bytes()
    at = whole.index(lost.data)
    last.write_bytes(whole[: at + 100] + whole[at + len(lost.data) :])
    with pytest.raises(StoreDamaged):
        open_log(tmp_path / "log")


def test_a_header_that_was_cut_short_is_torn_whatever_the_cluster_is_called(tmp_path: Path) -> None:
    whole = encode_header(SegmentInfo("TXHA", "TXHA", "i", 1, 1))
    for end in range(len(whole)):
        for data in (whole[:end], whole[:end] + bytes(len(whole) - end)):
            with pytest.raises(TornFrame):
                decode_header(data, tmp_path)
        with pytest.raises(StoreDamaged):
            decode_header(whole[:end] + bytes(len(whole) - end) + frame(1).data + bytes(9), tmp_path)


def test_what_does_not_begin_as_a_segment_is_no_torn_header(tmp_path: Path) -> None:
    """Its first bytes are of the first sector, which came whole or not at all."""
    whole = encode_header(SegmentInfo("cluster", "node", "i", 1, 77))
    for end in (len(whole), len(whole) - 1, 20):
        assert whole[end - 1] != 0
        with pytest.raises(StoreDamaged):
            decode_header(b"TXSH" + whole[4:end], tmp_path)


def test_names_of_any_length_are_read_again(tmp_path: Path) -> None:
    """A header that does not fit in what is read of it would be called torn, and its log gone."""
    info = SegmentInfo("c" * 30_000, "n" * 35_000, "i", 1, 1)
    path = segment_path(tmp_path, 1)
    path.write_bytes(encode_header(info) + frame(1).data)
    assert read_header(path)[0] == info and [each.first for _, each in scan(path)] == [1]


@pytest.mark.parametrize(("missing", "torn"), [(1, True), (40, True), (0, False)])
def test_a_tail_of_an_old_segment_that_was_never_filled_is_torn(tmp_path: Path, missing: int, torn: bool) -> None:
    """Its frames stand alone: what is missing of the last one is zeros, or it is all there and was whole once."""
    (tmp_path / "log").mkdir()
    last = bytearray(frame(4).data)
    last[len(last) - missing :] = bytes(missing)
    last[60] ^= 1
    segment_path(tmp_path / "log", 1).write_bytes(old_header(describe(1)) + frame(1).data + last)
    if torn:
        assert [each.first for each in open_log(tmp_path / "log")[1]] == [1]
    else:
        with pytest.raises(StoreDamaged):
            open_log(tmp_path / "log")
