"""What the suite takes of tests that have many cases, and that a command takes the others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cases import some_of

ROOT = Path(__file__).parents[1]
SCRIPTS = [ROOT / "tests" / name for name in ("run_all.sh", "run_slices.sh")]


def marks(cases: list[object]) -> list[list[str]]:
    return [[mark.name for mark in case.marks] for case in cases]  # type: ignore[attr-defined]


def test_the_suite_takes_those_that_are_named() -> None:
    assert marks(some_of("abc", suite="a", slices="c")) == [[], ["every"], ["slice"]]
    assert some_of([("a", 1)], suite=[("a", 1)])[0].values == ("a", 1)


def test_a_case_that_is_not_there_cannot_be_taken() -> None:
    with pytest.raises(ValueError, match="there is no case 'd'"):
        some_of("abc", suite="a", slices="d")


def files() -> Iterator[Path]:
    for folder in ("tests", "python_tests"):
        yield from (ROOT / folder).rglob("*.py")


def test_every_case_is_found_by_its_command() -> None:
    """``make every-case`` looks for files that mark a test, or cases by the function that does."""
    recipe = (ROOT / "Makefile").read_text().partition("\nevery-case:")[2].partition("\n\n")[0]
    assert r"$$(grep -rlE --include='test_*.py' 'some_of\(|mark\.every' tests python_tests)" in recipe
    marking = {path.name for path in files() if "mark.ev" + "ery" in path.read_text()}
    assert {name for name in marking if not name.startswith("test_")} == {"cases.py"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_each_lane_names_what_is_there(script: Path) -> None:
    """Or its tests would run in another lane, where nodes wait for what computes."""
    named = [word for line in re.findall(r"^\w+=\(([^$\n]*)\)$", script.read_text(), re.M) for word in line.split()]
    assert len(named) >= 4 and all((ROOT / word).is_dir() for word in named)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_each_lane_is_waited_for(script: Path) -> None:
    """The last line waits, and ends with 1 if a lane has failed."""
    assert script.read_text().endswith("\nlanes_end\n")
