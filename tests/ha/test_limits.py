"""The page of limits is true for ``ha``."""

from __future__ import annotations

from tests.support.limits import check


def test_every_number_and_its_value() -> None:
    check("ha")
