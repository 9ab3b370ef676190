"""What every page does with the values that it is given."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from jinja2 import UndefinedError

from recovery import pages


def shown(value: object) -> str:
    return pages._PAGES.from_string("{{ value }}").render(value=value)


def test_values_are_escaped() -> None:
    assert shown("<b>&") == "&lt;b&gt;&amp;"
    assert (shown(None), shown(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)), shown(0)) == ("", "03:04:05", "0")


def test_a_name_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        pages.render("stress.html")
