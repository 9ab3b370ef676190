"""docs/promise_tests.md is what docs/promise_tests.py writes; each test on it exists, and each promise has one."""

from __future__ import annotations

import re

import pytest

from tests.docs.prose import ROOT
from tests.docs.scripts import script

PROMISES_PAGE = (ROOT / "docs" / "promises.md").read_text()


promise_tests = script("promise_tests")
TABLE = promise_tests.table()
TESTS = promise_tests.Tests()
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
HEADINGS = re.findall(r"^## (.+)$", PROMISES_PAGE, re.MULTILINE)


def exists(name: str) -> bool:
    """A test function, a file or folder of tests, or a target of the Makefile."""
    if name.startswith("test_"):
        return name in TESTS.files
    if name.startswith("make "):
        return name.removeprefix("make ") in TARGETS
    return name.startswith(promise_tests.FOLDERS) and (ROOT / name).exists()


def test_the_page_is_up_to_date() -> None:
    assert promise_tests.page() == promise_tests.PAGE.read_text(), "run: python docs/promise_tests.py"


@pytest.mark.parametrize("section", TABLE)
def test_every_test_exists(section: str) -> None:
    missing = {name for name in promise_tests.listed(TABLE[section]) if not exists(name)}
    assert not missing, f"tests/promises.toml names {missing}"


def test_what_is_no_test_is_noticed() -> None:
    assert not any(map(exists, ("test_of_nothing", "make nothing", "tests/nothing.py", "docs/promises.md")))


@pytest.mark.parametrize("promise", promise_tests.PROMISES)
def test_every_promise_has_a_test(promise: str) -> None:
    (section,) = [section for name, section in TABLE.items() if name.split()[0] == promise]
    assert any(name.startswith("test_") for name in promise_tests.listed(section))


@pytest.mark.parametrize("section", [name for name in TABLE if name != "The rigs themselves"])
def test_every_section_is_one_of_the_promises_page(section: str) -> None:
    assert section in HEADINGS


def test_a_promise_in_a_docstring_is_one_of_the_promises() -> None:
    assert TESTS.named and set(TESTS.named) <= set(promise_tests.PROMISES)


def test_the_promises_page_names_no_tests() -> None:
    assert not re.findall(r"`test_\w+`", PROMISES_PAGE)
