"""Frames: what goes in comes out, and nothing else ever does."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.txobserver.test_xid import xids
from txobserver import frames as frames_module
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Event,
    Forget,
    GenerationStart,
    GlobalDecision,
    GlobalForget,
    Message,
    Publish,
    Purge,
    Removal,
    Settle,
    Terms,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.frames import (
    HEADER_SIZE,
    DamagedFrame,
    FrameError,
    TornFrame,
    UnknownFormat,
    bytes_behind,
    decode_frame,
    encode_frame,
)
from txobserver.xid import MAX_FORMAT

number = st.integers(0, 2**63 - 1)
reasons = st.sampled_from([int(each) for each in Removal])
entries = st.lists(st.tuples(number, number), max_size=4)
queues = st.lists(number, max_size=4).map(tuple)
gtrids = st.binary(min_size=1, max_size=64)
terms = st.none() | st.builds(Terms, st.booleans(), st.lists(number, max_size=4), st.booleans())
messages = st.builds(Message, st.text(), st.text(), st.binary(), st.binary())
events = st.one_of(
    st.builds(GenerationStart, number, st.text(), st.lists(st.text(), max_size=3)),
    st.builds(Configure, number, st.text(), st.text(), st.binary(), terms),
    st.builds(Publish, number, queues, messages),
    st.builds(Settle, number, entries, reasons),
    st.builds(Delivered, number, number),
    st.builds(Purge, number, number, st.lists(number, max_size=4)),
    st.builds(TxOpen, number),
    st.builds(TxEnqueue, number, number, queues, messages),
    st.builds(TxDequeue, number, number, entries, reasons),
    st.builds(TxPrepare, number, number, st.lists(st.text(), max_size=3)),
    st.builds(TxDecision, number, st.booleans()),
    st.builds(DtxOpen, number, xids),
    st.builds(DtxPrepare, number, number, st.lists(st.text(), max_size=3), number),
    st.builds(DtxDecision, number, st.booleans(), st.booleans(), number),
    st.builds(GlobalDecision, st.integers(0, MAX_FORMAT), gtrids, st.booleans(), number),
    st.builds(Forget, xids),
    st.builds(GlobalForget, st.integers(0, MAX_FORMAT), gtrids),
    st.builds(TxToken, number, gtrids),
)


@given(st.lists(events, min_size=1, max_size=6), number, st.integers(0, 2**62), st.integers(0, 2**50))
def test_round_trip(group: list[Event], generation: int, first: int, time_ms: int) -> None:
    frame = encode_frame(generation, first, group, time_ms)
    found, end = decode_frame(b"before" + frame.data + b"behind", 6)
    assert found == frame and end == 6 + len(frame.data)
    assert found.events() == group and found.last == first + len(group) - 1


def one() -> bytes:
    return encode_frame(1, 1, [TxOpen(5), TxDecision(5, True)], 9).data


def test_every_shorter_prefix_is_torn() -> None:
    data = one()
    for end in range(len(data)):
        with pytest.raises(TornFrame):
            decode_frame(data[:end])


def test_every_flipped_bit_is_found() -> None:
    data = one()
    for at in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        with pytest.raises(FrameError) as found:
            decode_frame(bytes(flipped))
        assert found.type is DamagedFrame, "a damaged length is no torn write, a damaged version no unknown one"


@pytest.mark.fuzz
@examples(300)
@given(st.binary(max_size=120), st.booleans(), st.integers(0, (1 << 32) - 1), st.integers(0, 20))
def test_any_bytes(data: bytes, header: bool, length: int, behind: int) -> None:
    """A frame, or FrameError; a length that is made up asks for no memory, even where the checksum covers it."""
    if header:
        start = struct.pack(">4sHHIIQQIQ", b"TXHA", 1, 0, length, zlib.crc32(data), 1, 1, 1, 0)
        data = start + zlib.crc32(start).to_bytes(4, "big") + data
    try:
        frame, end = decode_frame(bytes(behind) + data, behind)
    except FrameError:
        return
    assert frame.data == data[: end - behind]


@pytest.mark.fuzz
@examples(200)
@given(st.binary(max_size=60), st.integers(0, 3))
def test_any_payload(payload: bytes, count: int) -> None:
    """A frame is what its checksum says; what stands in it is events, or ValueError."""
    start = struct.pack(">4sHHIIQQIQ", b"TXHA", 1, 0, len(payload), zlib.crc32(payload), 1, 1, count, 0)
    whole = start + zlib.crc32(start).to_bytes(4, "big") + payload + b"\xa5"
    frame, end = decode_frame(whole)
    assert end == len(whole)
    try:
        events = frame.events()
    except ValueError:
        return
    assert encode_frame(1, 1, events, 0).events() == events


def test_an_unknown_version_is_refused_in_words() -> None:
    data = bytearray(one())
    data[5] = 7
    data[44:48] = zlib.crc32(data[:44]).to_bytes(4, "big")
    with pytest.raises(UnknownFormat, match=r"format version 7 .* this version reads 1"):
        decode_frame(bytes(data))
    assert len(data) > HEADER_SIZE


def test_a_frame_of_version_1_can_be_read() -> None:
    data = bytearray(one())
    data[5] = 1
    data[44:48] = zlib.crc32(data[:44]).to_bytes(4, "big")
    assert decode_frame(bytes(data))[0].events() == [TxOpen(5), TxDecision(5, True)]


@pytest.mark.plain
def test_a_payload_has_no_more_than_the_greatest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Just that many bytes are a frame; of a length beyond them nothing is allocated."""
    frame = encode_frame(1, 1, [TxOpen(1)], 0)
    size = bytes_behind(frame.data) - 1
    monkeypatch.setattr(frames_module, "MAX_PAYLOAD", size)
    assert decode_frame(frame.data)[0] == frame
    monkeypatch.setattr(frames_module, "MAX_PAYLOAD", size - 1)
    with pytest.raises(DamagedFrame, match=f"says that it has {size} bytes"):
        decode_frame(frame.data)


def test_an_event_that_is_nested_too_deep_is_none_of_a_later_version() -> None:
    whole = encode_frame(1, 1, [TxDecision(5, False)], 0)
    end = len(whole.data) - 1
    assert whole.data[HEADER_SIZE : HEADER_SIZE + 2] == b"\x91\x93"
    longer = b"\x91\x94" + whole.data[HEADER_SIZE + 2 : end] + b"\x91" * 3900 + b"\xc0"
    frame = replace(whole, data=whole.data[:HEADER_SIZE] + longer + whole.data[end:])
    with pytest.raises(ValueError):
        frame.events()
    assert not frame.of_a_later_version()
