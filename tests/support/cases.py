"""Which cases of a test that has many the suite takes: some, by name; ``make every-case`` takes all of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some_of(cases: Iterable[Any], suite: Collection[Any], slices: Collection[Any] = ()) -> list[Any]:
    """Cases for ``parametrize``: ``suite`` of them for ``make test``, ``slices`` of them for ``make slices``.

    A tuple gives several arguments. Raises ValueError if a case that is named is none of them.
    """
    cases = [*cases]
    if unknown := [case for case in (*suite, *slices) if case not in cases]:
        raise ValueError(f"there is no case {', '.join(map(repr, unknown))}")
    return [
        pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=_marks(case, suite, slices))
        for case in cases
    ]


def _marks(case: Any, suite: Collection[Any], slices: Collection[Any]) -> tuple[pytest.MarkDecorator, ...]:
    if case in suite:
        return ()
    return (pytest.mark.slice,) if case in slices else (pytest.mark.every,)
