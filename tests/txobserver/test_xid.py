"""Xids: what none can be, and their text."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from txobserver.xid import MAX_FORMAT, Bqual, FormatId, Global, Gtrid, Token, Xid, checked_xid, parse_xid

xids = st.builds(Xid, st.integers(0, MAX_FORMAT), st.binary(min_size=1, max_size=64), st.binary(max_size=64))


@given(xids)
def test_text_leads_back_to_it(xid: Xid) -> None:
    assert parse_xid(str(xid)) == xid == checked_xid(*xid)
    assert str(xid).isascii() and str(xid).isprintable() and " " not in str(xid)


@given(xids, xids)
def test_another_one_has_another_text(one: Xid, other: Xid) -> None:
    assert (str(one) == str(other)) is (one == other)


def test_what_people_read() -> None:
    assert str(Xid(7, b"order 4711", b"a:b")) == "7:order%204711:a%3Ab"
    assert str(Xid(0, b"g", b"")) == "0:g:" and str(Global(0, b"g")) == "0:g"


@pytest.mark.parametrize(
    ("format_id", "gtrid", "bqual"),
    [(-1, b"g", b""), (1 << 31, b"g", b""), (0, b"", b"b"), (0, b"g" * 65, b""), (0, b"g", b"b" * 65)],
)
def test_parts_that_none_has(format_id: int, gtrid: bytes, bqual: bytes) -> None:
    with pytest.raises(ValueError, match="of an xid"):
        checked_xid(format_id, gtrid, bqual)


@pytest.mark.parametrize(
    ("format_id", "gtrid", "bqual"),
    [(0, b"g", b""), (MAX_FORMAT, b"g", b""), (0, bytes(64), b""), (0, b"g", bytes(64))],
)
def test_the_least_and_the_most_that_one_has(format_id: int, gtrid: bytes, bqual: bytes) -> None:
    assert checked_xid(format_id, gtrid, bqual) == (format_id, gtrid, bqual)


@pytest.mark.parametrize("text", ["", "1:g", "1:g:b:x", "x:g:b", "-1:g:b", ":g:b", "²:g:b"])
def test_text_that_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="format:gtrid:bqual"):
        parse_xid(text)


@pytest.mark.parametrize(
    ("kind", "lowest", "highest"),
    [(FormatId, 0, MAX_FORMAT), (Gtrid, b"g", bytes(64)), (Bqual, b"", bytes(64)), (Token, b"t", bytes(64))],
)
def test_the_bounds_of_what_comes_from_elsewhere(kind: Any, lowest: Any, highest: Any) -> None:
    """A decoder refuses what is beyond them, whichever peer sent it."""
    for value in (lowest, highest):
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind) == value
    beyond = [-1, highest + 1] if kind is FormatId else [highest + b"x", *([lowest[:-1]] if lowest else [])]
    for value in beyond:
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
