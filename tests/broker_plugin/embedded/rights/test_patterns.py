"""Patterns of names: as RabbitMQ matches them, in a time that no name makes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.embedded.rights.patterns import PatternRefused, fits, literal, matcher


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        (".*", ["", "q", "amq.gen-x", "\udcff"], []),
        ("", [""], ["q", " "]),
        ("^$", [""], ["q"]),
        ("a", ["a", "bab"], ["", "b", "A"]),
        ("^a|b$", ["ax", "xb"], ["xa", "bx"]),
        ("(?i)^a$", ["a", "A"], ["aa"]),
        (r"^amq\.", ["amq.gen"], ["amqx", "x.amq."]),
        ("^[[:alpha:]]+$", ["abc"], ["a1", ""]),
        ("^é$", ["é"], ["e", "É"]),
        ("^..$", ["é", "ab"], ["éa"]),
        (r"^(?!amq\.).*", ["q", "", "x.amq."], ["amq.", "amq.gen-1"]),
        (r"^(?!a|b)", ["", "xb", "cb"], ["a", "bx"]),
        (r"^(?!amq\.)", ["q"], ["amq.x"]),
        (r"^(?!a)(?!b)x?", ["", "x", "c"], ["a", "bx"]),
        ("^(?!a(b|c)[)]).*d", ["abd", "d"], ["ab)d", "ac)d", "x"]),
        ("^(?!dead$).+", ["deadly", "x"], ["dead", ""]),
        ("^(?![^])])x", [], ["x", ")x"]),
        ("^(?![^])]x).*y", ["y", ")xy", "]xy"], ["axy", "(xy"]),
        ("^(?![^](|]a)", ["(a", "|a", "]a", "b"], ["xa", ")a"]),
    ],
)
def test_a_pattern_fits_these_names(pattern: str, fitting: list[str], others: list[str]) -> None:
    assert [name for name in fitting if not fits(pattern, name)] == []
    assert [name for name in others if fits(pattern, name)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        "[",
        "*",
        "a++",
        "(?=a)",
        "(?<!a)b",
        r"(a)\1",
        "^(?!a)|b",
        "^(?!a)*b",
        "^(?!(?!a))",
        "^(?!a",
        "\ud800",
        "(a{1000}){9}",
    ],
)
def test_what_cannot_be_matched_is_refused_and_fits_nothing(pattern: str) -> None:
    with pytest.raises(PatternRefused, match="is no pattern that can be matched here"):
        matcher(pattern)
    assert not fits(pattern, "a") and not fits(pattern, "")


def test_a_literal_of_octets_that_are_no_text() -> None:
    assert fits(f"^{literal('a.' + chr(0xDCFF))}$", "a." + chr(0xDCFF))


def test_a_name_that_a_backtracking_matcher_would_take_years_for() -> None:
    assert not fits("^(a+)+$", "a" * 250 + "!")


@given(st.text(st.characters(codec="ascii"), max_size=20))
def test_a_literal_fits_its_text_and_no_other(text: str) -> None:
    assert fits(f"^{literal(text)}$", text)
    assert not fits(f"^{literal(text)}$", text + "x")


@given(st.from_regex(r"\A[ab(|).*]{0,8}\Z"), st.text("ab", max_size=6))
def test_names_that_must_not_begin_with_something_fit_as_python_has_it(rest: str, name: str) -> None:
    pattern = f"^(?!a{rest}"
    try:
        expected = re.search(pattern, name) is not None
        found = matcher(pattern)(name)
    except (re.error, PatternRefused):
        return
    assert found == expected
