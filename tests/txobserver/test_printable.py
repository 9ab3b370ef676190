"""No text of others' forges a line, moves a cursor or turns the direction of writing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txobserver.octets import text_of
from txobserver.printable import json_line, plain, printable

NAMES = st.text(max_size=40) | st.binary(max_size=40).map(text_of)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("überweisung 三", "überweisung 三"),
        ("a\nb\r\tc", r"a\nb\r\tc"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x9b2J\x7f\0", r"\x9b2J\x7f\x00"),
        ("gpj.\u202etxt\u2028\ufeff", r"gpj.\u202etxt\u2028\ufeff"),
        ("a\u00a0b", r"a\xa0b"),
        ("\U000e0001", r"\U000e0001"),
        (r"$\frac{$ [bold] :a: <b>", r"$\frac{$ [bold] :a: <b>"),
        (text_of(b"q\xff\xfe"), r"q\xff\xfe"),
        ("\ud800", r"\ud800"),
    ],
)
def test_what_cannot_be_printed_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "orders", "a b", "überweisung 三"])
def test_what_people_can_type_again(text: str) -> None:
    assert plain(text)
    for odd in (f"{text} ", f" {text}", f"a{text}\u00a0b", f"a\n{text}", f"{text}\udc80"):
        assert not plain(odd)


@given(NAMES)
def test_any_text_is_one_line_that_can_be_printed_and_stays_so(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable() and shown.splitlines() in ([shown], []) and printable(shown) == shown
    shown.encode()


@given(st.dictionaries(st.text(max_size=9), st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=3))
def test_json_tells_the_same_and_can_be_printed(value: dict[str, str]) -> None:
    line = json_line(json.dumps(value, ensure_ascii=False))
    assert line.isprintable() and json.loads(line) == value
