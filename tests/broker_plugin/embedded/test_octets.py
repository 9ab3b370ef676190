"""Octets that need not be text: stored as text, and the same again; tables of whatever names and values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pamqp import decode, encode

from broker_plugin.embedded.field_table import FAR_TIMESTAMP, MAX_DEPTH, TooDeep, read_table
from tests.support.examples import examples
from txobserver.octets import as_sent, octets_of, text_of

PAIR, LONE = "\ufdd8\ufde0".encode(), "\ufdd0".encode()
ODD = st.sampled_from([b"\xff", b"\x80", b"\xc3", b"\xed\xa0\x80", PAIR, LONE, b".", b"a"])
OCTETS = st.binary(max_size=255) | st.lists(ODD, max_size=20).map(b"".join) | st.text(max_size=60).map(str.encode)


@examples(500)
@given(st.lists(OCTETS, min_size=2, max_size=2, unique=True))
@example([b"\x80", PAIR])
def test_octets_are_stored_as_text_and_come_out_as_they_came_in(both: list[bytes]) -> None:
    one, other = map(text_of, both)
    assert one != other
    for octets, text in zip(both, (one, other), strict=True):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(text)) == text, "it can be stored"
        assert octets_of(text) == octets
        assert as_sent(text) == octets.decode(errors="surrogateescape")
        assert text.count(".") == octets.count(b"."), "words stay words"


TEXT = st.characters(exclude_categories=["Cs", "Cn"])
"""No noncharacters"""


@given(st.text(TEXT))
def test_text_stays_what_it_is(text: str) -> None:
    assert text_of(text.encode()) == as_sent(text) == text


NAMES = st.text(TEXT, max_size=20)
STAMPS = st.integers(0, 0xFFFFFFFF).map(lambda s: datetime.datetime.fromtimestamp(s, tz=datetime.UTC))
SIMPLE = (
    st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=20) | STAMPS | st.none()
    | st.floats(allow_nan=False, width=32) | st.integers(0, 1 << 20).map(lambda n: Decimal(n) / 100)
)  # fmt: skip
VALUES = st.recursive(SIMPLE, lambda v: st.lists(v, max_size=3) | st.dictionaries(NAMES, v, max_size=3), max_leaves=12)
TABLES = st.dictionaries(NAMES, VALUES)


@examples(300)
@given(TABLES)
def test_a_table_is_read_as_pamqp_reads_it(table: dict[str, Any]) -> None:
    data = encode.field_table(table)
    assert read_table(b"before" + data + b"behind", 6) == (6 + len(data), decode.field_table(data)[1])


@examples(300)
@given(TABLES, st.data())
def test_what_is_no_whole_table_is_refused_in_order(table: dict[str, Any], drawn: st.DataObject) -> None:
    """Cut short, or with any octet bent: it is read, or refused as malformed."""
    data = bytearray(encode.field_table(table))
    at = drawn.draw(st.integers(0, len(data) - 1))
    with pytest.raises((ValueError, IndexError)):
        read_table(bytes(data[:at]))
    data[at] = drawn.draw(st.integers(0, 255))
    try:
        end, _ = read_table(bytes(data))
    except (ValueError, IndexError):
        return
    assert end == 4 + int.from_bytes(data[:4], "big") <= len(data)


def table_of(*entries: bytes) -> bytes:
    joined = b"".join(entries)
    return len(joined).to_bytes(4, "big") + joined


def stamp(seconds: int) -> bytes:
    return b"T" + seconds.to_bytes(8, "big")


def test_what_pamqp_refuses_and_rabbitmq_takes() -> None:
    far, further, near = stamp(1 << 63), stamp((1 << 63) + 1), stamp(1700000000)
    data = table_of(b"\x02\xff\xfeI\0\0\0\1", b"\x01f" + far, b"\x01g" + further, b"\x01n" + near)
    end, table = read_table(data)
    assert end == len(data) and table.pop(text_of(b"\xff\xfe")) == 1
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(table)) == table, "it can be stored"
    assert table["f"] == msgspec.msgpack.Ext(FAR_TIMESTAMP, (1 << 63).to_bytes(8, "big")) != table["g"]
    assert table["n"] == datetime.datetime.fromtimestamp(1700000000, tz=datetime.UTC)


@pytest.mark.parametrize(("depth", "fits"), [(MAX_DEPTH - 1, True), (MAX_DEPTH, False), (100_000, False)])
def test_tables_within_tables_end_somewhere(depth: int, fits: bool) -> None:
    data = b"".join((7 * (depth - at)).to_bytes(4, "big") + b"\x01tF" for at in range(depth)) + table_of()
    if fits:
        assert read_table(data)[0] == len(data)
    else:
        with pytest.raises(TooDeep):
            read_table(data)


@pytest.mark.parametrize("kind", [b"", b"F", b"A"], ids=["the table itself", "a table in it", "an array in it"])
def test_a_value_that_goes_beyond_the_end_of_its_table_is_refused(kind: bytes) -> None:
    """Also where there are octets to be read: they are of what comes behind."""
    value = b"I" if kind == b"A" else b"\x01aI"
    inner = len(value).to_bytes(4, "big") + value + bytes(4)
    whole = b"\x01t" + kind + inner
    with pytest.raises(ValueError, match="goes beyond its end"):
        read_table(len(whole).to_bytes(4, "big") + whole if kind else inner)
