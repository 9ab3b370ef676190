"""What comes out of the seals is what was put in, in that order and that direction; anything else is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.messages.seals import ANNOUNCED, BROKEN, LONG, TAG, Sealer, Unsealer, hash_of
from tests.support.examples import examples

KEY, OTHER = b"k" * 32, b"o" * 32
LIMIT = 1 << 20
EDGES = [0, 1, LONG - 1, LONG, LONG + 1, ANNOUNCED - 1, ANNOUNCED, ANNOUNCED + 1]
SIZES = st.sampled_from(EDGES) | st.integers(0, 2 * LONG)
BODIES = st.lists(st.tuples(SIZES, st.binary(min_size=1, max_size=1)).map(lambda each: each[0] * each[1]), max_size=5)


def opened(wire: bytes, key: bytes = KEY, piece: int = 1 << 30) -> list[bytes]:
    """Everything that comes out of it, fed in pieces. Raises ValueError."""
    unsealer, buffer, found = Unsealer(key), bytearray(), []
    for at in range(0, len(wire), piece):
        buffer += wire[at : at + piece]
        while (taken := unsealer.message(buffer, 0, LIMIT)) is not None:
            found.append(taken[0])
            del buffer[: taken[1]]
    return found


def sealed(*bodies: bytes, key: bytes = KEY) -> list[bytes]:
    sealer = Sealer(key)
    return [sealer.seal(each) for each in bodies]


@examples(100)
@given(BODIES, st.integers(1, 3 * LONG))
def test_what_is_sealed_comes_out(bodies: list[bytes], piece: int) -> None:
    assert opened(b"".join(sealed(*bodies)), piece=max(piece, 7)) == bodies


@pytest.mark.parametrize("split", [0, 1, 40, LONG])
@pytest.mark.parametrize("size", [LONG, ANNOUNCED])
def test_a_long_message_in_parts_is_the_same_message(split: int, size: int) -> None:
    """A frame that goes to several peers is one of the parts, as it is, and its hash is made once."""
    head, tail = bytes(split), b"f" * size
    parts = Sealer(KEY).seal_long(head, tail, hash_of(tail))
    assert parts[1] is tail and opened(b"".join(parts)) == [head + tail]


@pytest.mark.parametrize("size", [0, 40, LONG, LONG + 9, ANNOUNCED])
def test_no_bit_of_it_can_be_changed(size: int) -> None:
    """Of the lengths, of the message and of the tags; where a length grows, no more may be waited for for ever."""
    wire = b"".join(sealed(b"before", bytes(size)))
    places = range(8 * len(wire)) if size < LONG else [*range(8 * 80), *range(8 * len(wire) - 8 * 40, 8 * len(wire))]
    for bit in places:
        spoilt = bytearray(wire)
        spoilt[bit // 8] ^= 1 << bit % 8
        try:
            assert len(opened(bytes(spoilt))) < 2
        except ValueError as error:
            assert str(error) == BROKEN or "a message of" in str(error)


def broken(wire: bytes, key: bytes = KEY) -> None:
    with pytest.raises(ValueError, match=BROKEN):
        opened(wire, key)


@pytest.mark.parametrize("size", [10, LONG, ANNOUNCED])
def test_a_message_cannot_be_repeated_left_out_turned_round_or_put_in(size: int) -> None:
    one, two, three = sealed(*(bytes([each]) * size for each in range(3)))
    broken(one + one)
    broken(one + three)
    broken(two + one)
    broken(one + two, OTHER)
    broken(one + Sealer(OTHER).seal(bytes(size)))
    broken(one + two[:-TAG] + three[-TAG:])
    assert len(opened(one + two + three)) == 3


def test_a_short_message_cannot_stand_for_a_long_one() -> None:
    """Its bytes are those over which the tag of the long one is: only the personalisation differs."""
    long = bytes(LONG)
    wire = Sealer(KEY).seal(long)
    short = Sealer(KEY).seal(wire[:8] + hash_of(long))
    assert short[-TAG:] != wire[-TAG:]
    broken(short[:-TAG] + wire[-TAG:])


@pytest.mark.parametrize("size", [LONG, ANNOUNCED])
def test_where_the_head_ends_is_sealed_too(size: int) -> None:
    """Else the bytes of a hash could be taken for the end of a head, or the other way round."""
    head, tail = b"h" * 40, b"f" * size
    wire = bytearray(b"".join(Sealer(KEY).seal_long(head, tail, hash_of(tail))))
    wire[7] = 0
    broken(bytes(wire))


def test_a_length_that_was_changed_is_noticed_before_the_bytes_come() -> None:
    """Else a changed bit could make the receiver keep up to the greatest message before it looks."""
    wire = bytearray(sealed(bytes(ANNOUNCED))[0])
    wire[2] ^= 1
    unsealer = Unsealer(KEY)
    assert unsealer.message(bytearray(wire[:23]), 0, LIMIT) is None
    with pytest.raises(ValueError, match=BROKEN):
        unsealer.message(bytearray(wire[:24]), 0, LIMIT)
    with pytest.raises(ValueError, match=f"a message of {LIMIT + 1} bytes"):
        Unsealer(KEY).message(bytearray((LIMIT + 1).to_bytes(4, "big")), 0, LIMIT)


def test_the_length_of_each_long_message_is_looked_at_before_its_bytes_come() -> None:
    """Also behind another long one, whose length was right."""
    one, two = map(bytearray, sealed(bytes(ANNOUNCED), bytes(ANNOUNCED)))
    two[2] ^= 1
    unsealer = Unsealer(KEY)
    assert unsealer.message(one, 0, LIMIT) == (bytes(ANNOUNCED), len(one))
    with pytest.raises(ValueError, match=BROKEN):
        unsealer.message(two[:24], 0, LIMIT)


def test_the_layout() -> None:
    """Of version 1: another one must not be made by accident."""
    assert sealed(b"abc")[0].hex() == "00000003616263" + VECTORS[0]
    middle, long = sealed(b"x" * LONG)[0], sealed(b"x" * ANNOUNCED)[0]
    assert middle[:8].hex() == "0000020000000000" and middle[-TAG:].hex() == VECTORS[1]
    assert long[:8].hex() == "0001000000000000" and (long[8:24] + long[-TAG:]).hex() == VECTORS[2]


VECTORS = (
    "48707faf4f363c05bb705a78351b4db5",
    "582948201cc76b9dee4acf59da517941",
    "e02cde7a03c30761a06ad400effe8b23fd14df6450591dc08f8066aa1550e567",
)
