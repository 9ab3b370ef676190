"""Bytes that no proper client sends: any bytes, and conversations with bits flipped, pieces lost and lengths made up.

Whatever comes, the broker answers in frames, ends in a proper error or goes on, and keeps nothing beyond its limits.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.amqp.conversation import HANDSHAKE, SESSION, finish, sound
from tests.amqp.peer import HEADER, Peer
from tests.examples import examples

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


@examples(250)
@given(st.integers(0, len(STREAM) * 8 - 1), CUTS)
def test_a_flipped_bit(bit: int, cuts: list[int]) -> None:
    """It may mean something else then; but it means the same in whatever pieces it comes."""
    bent = bytearray(STREAM)
    bent[bit // 8] ^= 1 << bit % 8
    assert play(cut(bytes(bent), cuts)) == play([bytes(bent)])


@examples(150)
@given(st.lists(st.tuples(st.integers(0, len(CONVERSATION) - 1), st.integers(0, 3)), min_size=1, max_size=4), CUTS)
def test_frames_lost_doubled_and_swapped(changes: list[tuple[int, int]], cuts: list[int]) -> None:
    frames = list(CONVERSATION)
    for at, change in changes:
        at %= len(frames)
        if change == 0:
            del frames[at]
        elif change == 1:
            frames.insert(at, frames[at])
        else:
            frames[at], frames[at - 1] = frames[at - 1], frames[at]
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


def test_the_conversation_is_proper() -> None:
    """What is bent above is worth bending: nothing in it is refused."""
    answer = play([STREAM], in_step=True)
    assert b"\x00\x0a\x00\x32" not in answer and b"\x00\x14\x00\x28" not in answer
    assert answer == play([STREAM[at : at + 1] for at in range(len(STREAM))], in_step=True)
