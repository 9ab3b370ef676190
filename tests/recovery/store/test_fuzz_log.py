"""A log of any bytes: what was written is served, or nothing is; the reader says what is wrong, and does not fail."""

from __future__ import annotations

import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.reader.log_reader import LogReader
from recovery.store.segment import FORMAT_VERSION, encode_header, segment_path
from tests.support.examples import examples
from tests.support.logs import describe, frame, grouped, old_header, open_log
from txobserver.frames import Frame
from txobserver.ports.store import StoreDamaged, StoreError

pytestmark = pytest.mark.fuzz

WRITTEN = [frame(1), frame(4), frame(7, size=200), frame(10)]
HEADER = encode_header(describe(1))
SEGMENT = HEADER + grouped(len(HEADER), [[each] for each in WRITTEN])
OLD_HEADER = old_header(describe(1))
OLD_SEGMENT = OLD_HEADER + b"".join(each.data for each in WRITTEN)
CUT = b"; ".join([b"TXHA", b"TXSG", bytes(9)])


def read(data: bytes) -> list[Frame] | None:
    """What a node and another process read from a segment of these bytes; None if both refuse it, in words."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        (directory / "log").mkdir()
        path = segment_path(directory / "log", 1)
        path.write_bytes(data)
        by_reader = outcome(lambda: list(LogReader(directory).frames(1)))
        by_node = outcome(lambda: open_log(directory / "log")[1])
        if by_node is None:
            assert path.read_bytes() == data, "a log that is refused is left as it is"
        else:
            assert outcome(lambda: open_log(directory / "log")[1]) == by_node, "what was cut once is whole"
        assert by_reader == by_node
        return by_node


def outcome(call: Any) -> list[Frame] | None:
    try:
        found: list[Frame] = call()
    except StoreError as error:
        assert str(error)
        return None
    return found


@examples(100)
@given(st.binary(max_size=300), st.sampled_from([b"", HEADER, HEADER + WRITTEN[0].data, SEGMENT, OLD_SEGMENT]))
def test_any_bytes(data: bytes, before: bytes) -> None:
    found = read(before + data)
    assert found is None or found == WRITTEN[: len(found)]


MADE_UP = st.binary(max_size=80) | st.builds(lambda size: bytes(size), st.integers(0, 80)) | st.just(CUT)


@examples(100)
@given(st.integers(0, len(OLD_SEGMENT)), st.integers(0, 700), MADE_UP)
def test_pieces_of_an_old_segment_lost_and_made_up(at: int, lost: int, more: bytes) -> None:
    """Nothing but a tail that was cut short is ever dropped."""
    bent = OLD_SEGMENT[:at] + more + OLD_SEGMENT[at + lost :]
    found = read(bent)
    if found is not None:
        assert found == WRITTEN[: len(found)]
        kept = len(OLD_HEADER) + sum(len(each.data) for each in found)
        assert len(found) == 4 or not any(each.data in bent[kept:] for each in WRITTEN), "a whole record was dropped"


@examples(100)
@given(st.integers(0, len(SEGMENT)), st.integers(0, 700), MADE_UP)
def test_pieces_lost_and_made_up(at: int, lost: int, more: bytes) -> None:
    found = read(SEGMENT[:at] + more + SEGMENT[at + lost :])
    assert found is None or found == WRITTEN[: len(found)]


@examples(200)
@given(st.integers(0, len(SEGMENT)), MADE_UP | st.builds(lambda size: bytes(size), st.integers(0, 600)))
def test_pieces_overwritten(at: int, more: bytes) -> None:
    """Nothing but the last group is ever dropped: every other one was synced before the next was begun."""
    found = read((SEGMENT[:at] + more + SEGMENT[at + len(more) :])[: len(SEGMENT)])
    last = len(SEGMENT) - len(grouped(0, [WRITTEN[3:]]))
    if at + len(more) <= last:
        assert found in (None, WRITTEN)
    assert found is None or found == WRITTEN[: len(found)]


@examples(60)
@given(st.lists(st.integers(0, 3), max_size=6))
def test_records_lost_doubled_and_swapped(order: list[int]) -> None:
    """Each is whole, and together they are no log unless they follow each other."""
    found = read(OLD_HEADER + b"".join(WRITTEN[each].data for each in order))
    assert (found is not None) == (order == list(range(len(order))))
    found = read(HEADER + grouped(len(HEADER), [[WRITTEN[each]] for each in order]))
    assert (found is not None) == (order == list(range(len(order))))


@examples(100)
@given(st.binary(max_size=60))
def test_a_description_of_any_bytes(description: bytes) -> None:
    """Its checksum matches, and it says nothing that can be understood."""
    start = struct.pack(">4sHH", b"TXSG", FORMAT_VERSION, len(description))
    header = start + zlib.crc32(start + description).to_bytes(4, "big") + description
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "log").mkdir()
        segment_path(Path(folder) / "log", 1).write_bytes(header + WRITTEN[0].data)
        for call in (lambda: open_log(Path(folder) / "log"), LogReader(Path(folder)).segments):
            with pytest.raises(StoreDamaged, match="damaged"):
                call()
