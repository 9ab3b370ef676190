"""Bytes that no proper client sends: any bytes, and conversations with bits flipped, pieces lost and lengths made up.

Whatever comes, the broker answers in frames, ends in a proper error or goes on, and keeps nothing beyond its limits.
"""

from __future__ import annotations

from itertools import pairwise
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp.commands import Basic, Queue

from tests.broker_plugin.amqp.conversation import CLOSE, HANDSHAKE, SESSION, finish, frames_of, one, raw, sound
from tests.broker_plugin.amqp.peer import HEADER, Peer
from tests.support.examples import examples

pytestmark = pytest.mark.fuzz

CONVERSATION = [*HANDSHAKE, *SESSION]
STREAM = b"".join(CONVERSATION)
CUTS = st.lists(st.integers(0, 1 << 16), max_size=12)


def play(pieces: list[bytes], in_step: bool = False) -> bytes:
    """Everything that the broker answers to these pieces."""
    peer, output = Peer(), b""
    for piece in pieces:
        peer.connection.receive(piece)
        output += peer.connection.take_output()
        sound(peer, output)
    peer.settle()
    output += peer.connection.take_output()
    sound(peer, output)
    finish(peer, in_step)
    return output


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(each % (len(data) + 1) for each in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@examples(300)
@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from([[], [HEADER], HANDSHAKE, CONVERSATION]))
def test_any_bytes(pieces: list[bytes], before: list[bytes]) -> None:
    play([*before, *pieces])


@examples(100)
@given(st.data(), CUTS)
def test_frames_of_any_bytes(data: st.DataObject, cuts: list[int]) -> None:
    """The frames are whole; what is in them is not."""
    kinds, channels = st.sampled_from([1, 2, 3, 8, 0, 4, 255]), st.sampled_from([0, 1, 2, 3, 4, 2047, 65535])
    frames = st.builds(lambda k, c, p: bytes((k,)) + c.to_bytes(2, "big") + len(p).to_bytes(4, "big") + p + b"\xce",
                       kinds, channels, METHODS | st.binary(max_size=40))  # fmt: skip
    bent = b"".join([*HANDSHAKE, *SESSION[:3], *data.draw(st.lists(frames, max_size=8))])
    assert play(cut(bent, cuts)) == play([bent], in_step=True)


IDS = [(10, n) for n in (10, 11, 20, 21, 30, 31, 40, 41, 50, 51, 60, 61, 70)]
IDS += [(20, n) for n in (10, 11, 20, 21, 40, 41)] + [(40, n) for n in (10, 11, 20, 30, 40)] + [(30, 10)]
IDS += [(50, n) for n in (10, 11, 20, 30, 40, 50)] + [(60, n) for n in range(10, 130, 10)] + [(60, 72), (60, 111)]
IDS += [(85, 10), (90, 10), (90, 20), (90, 30), (0, 0), (65535, 65535)]
METHODS = st.builds(
    lambda number, rest: number[0].to_bytes(2, "big") + number[1].to_bytes(2, "big") + rest,
    st.sampled_from(IDS),
    st.binary(max_size=40) | st.binary(max_size=12).map(lambda data: b"\0\0" + data),
)


class Reading:
    """What a channel must make of frames of content, in the fewest words: the sizes of whole messages, or an error."""

    def __init__(self) -> None:
        self.missing: dict[int, int | None] = {}
        self.whole: list[int] = []
        self.sizes: dict[int, int] = {}
        self.error = 0

    def take(self, what: str, channel: int, size: int, class_id: int) -> None:
        if self.error:
            return
        waits = channel in self.missing
        missing = self.missing.get(channel)
        if what in ("publish", "method") and waits:
            self.error = 505
        elif what == "publish":
            self.missing[channel] = None
        elif what == "header":
            self.error = 505 if not waits or missing is not None or class_id != 60 else 0
            self.missing[channel] = self.sizes[channel] = size
        elif what == "body":
            self.missing[channel] = (missing or 0) - size
            self.error = 505 if missing is None or missing < size else 0
        if not self.error and waits and self.missing.get(channel) == 0:
            del self.missing[channel]
            self.whole.append(self.sizes[channel])


def encoded(what: str, channel: int, size: int, class_id: int) -> bytes:
    if what == "publish":
        return one(Basic.Publish(0, "", "q"), channel)
    if what == "header":
        return raw(2, channel, pack(">HHQH", class_id, 0, size, 0))
    return raw(3, channel, b"x" * size) if what == "body" else one(Basic.Qos(0, 1), channel)


STEPS = st.tuples(
    st.sampled_from(["publish", "header", "body", "method"]),
    st.sampled_from([1, 1, 1, 2]),
    st.sampled_from([0, 0, 3, 5]),
    st.sampled_from([60, 60, 60, 50]),
)
WHOLE = st.builds(
    lambda channel, size, sent, kind: [
        ("publish", channel, 0, 60),
        ("header", channel, size, kind),
        ("body", channel, sent, 60),
    ],
    st.sampled_from([1, 2]),
    st.sampled_from([3, 3, 5]),
    st.sampled_from([3, 3, 5]),
    st.sampled_from([60, 60, 60, 50]),
)


@examples(400)
@given(st.lists(WHOLE | STEPS.map(lambda step: [step]), max_size=6), st.lists(st.integers(0, 20), max_size=2), CUTS)
def test_content_out_of_order(groups: list[list[Any]], lost: list[int], cuts: list[int]) -> None:
    """Method, header and body frames in any order on two channels; the way for whole messages is no other way."""
    steps = [step for group in groups for step in group]
    steps = [step for at, step in enumerate(steps) if at not in lost]
    reading = Reading()
    for step in steps:
        reading.take(*step)
    frames = [*HANDSHAKE, *SESSION[:2], one(Queue.Declare(queue="q")), *(encoded(*step) for step in steps)]
    output = play([b"".join(frames)], in_step=True)
    assert output == play(cut(b"".join(frames), cuts)) == play(frames)
    close = next((payload for _, channel, payload in frames_of(output) if not channel and payload[:4] == CLOSE), None)
    assert (int.from_bytes(close[4:6], "big") if close else 0) == reading.error
    peer = Peer()
    peer.connection.receive(b"".join(frames))
    assert [len(body) for body in peer.harness.client().drain("q")] == reading.whole


@examples(250)
@given(st.integers(0, len(STREAM) * 8 - 1), CUTS)
def test_a_flipped_bit(bit: int, cuts: list[int]) -> None:
    """It may mean something else then; but it means the same in whatever pieces it comes."""
    bent = bytearray(STREAM)
    bent[bit // 8] ^= 1 << bit % 8
    assert play(cut(bytes(bent), cuts)) == play([bytes(bent)])


@examples(150)
@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 2)), min_size=1, max_size=4), CUTS)
def test_frames_lost_doubled_and_swapped(changes: list[tuple[int, int]], cuts: list[int]) -> None:
    frames = list(SESSION)
    for at, change in changes:
        at %= len(frames)
        if change == 0:
            del frames[at]
        elif change == 1:
            frames.insert(at, frames[at])
        else:
            frames[at], frames[at - 1] = frames[at - 1], frames[at]
    frames = [*HANDSHAKE, *frames]
    bent = b"".join(frames)
    assert play(cut(bent, cuts)) == play([bent], in_step=True)


@examples(100)
@given(
    st.integers(0, len(STREAM) - 4),
    st.sampled_from([0, 1, 12, 4088, 4089, 4096, 131072, 0x7FFFFFFF, 0xFFFFFFFF]),
    CUTS,
)
def test_lengths_that_are_made_up(at: int, length: int, cuts: list[int]) -> None:
    """Any four bytes are overwritten, lengths of frames, strings and tables among them."""
    bent = STREAM[:at] + length.to_bytes(4, "big") + STREAM[at + 4 :]
    assert play(cut(bent, cuts)) == play([bent])


@examples(100)
@given(st.integers(0, len(STREAM)), st.integers(0, 200), st.binary(max_size=200), CUTS)
def test_pieces_lost_and_made_up(at: int, lost: int, more: bytes, cuts: list[int]) -> None:
    bent = STREAM[:at] + more + STREAM[at + lost :]
    assert play(cut(bent, cuts)) == play([bent])


def test_every_end_of_a_frame_that_is_none() -> None:
    at = len(HANDSHAKE[0])
    for frame in CONVERSATION[1:]:
        at += len(frame)
        assert b"FRAME_ERROR" in play([STREAM[: at - 1] + b"\xcf" + STREAM[at:]])


def test_the_conversation_is_proper() -> None:
    """What is bent above is worth bending: nothing in it is refused."""
    answer = play([STREAM], in_step=True)
    assert b"\x00\x0a\x00\x32" not in answer and b"\x00\x14\x00\x28" not in answer
    assert answer == play([STREAM[at : at + 1] for at in range(len(STREAM))], in_step=True)
