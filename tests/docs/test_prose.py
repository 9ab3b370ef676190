"""How pages are written: lines of 100 columns, and a beginning that says what the page is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.prose import PAGES, lines_of_text, name_of

WIDTH = 100


def too_long(text: str) -> list[int]:
    """Lines beyond the width that could have been wrapped: they hold more than one name in code, link or word."""
    found = []
    for number, line in lines_of_text(text):
        inner = re.sub(r"^\s*(?:[-*]|\d+\.) ", "", re.sub(r"`[^`]+`", lambda each: each[0].replace(" ", "_"), line))
        if len(line) > WIDTH and len(inner.split()) > 1 and not line.startswith("#"):
            found.append(number)
    return found


def beginning(text: str) -> str:
    """The first paragraph below the title; empty if there is no title, or something else comes first."""
    found = re.match(r"# [^\n]+\n\n([^\s#|<>!-][^\n]*(?:\n[^\n]+)*)\n\n", text)
    return " ".join(found[1].split()) if found and not found[1].startswith("```") else ""


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_wrap(page: Path) -> None:
    assert not too_long(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_begins_with_what_it_is_for(page: Path) -> None:
    text = beginning(page.read_text())
    assert len(text.split()) >= 6 and text.endswith((".", ":")), "a title, and then a sentence on what the page is for"


def test_what_may_be_long() -> None:
    long = "word " * 30
    assert too_long(f"{long}\n- {long}\n") == [1, 2]
    assert not too_long(f"```\n{long}\n```\n| {long} |\n## {long}\n- https://{'x' * 120}\n`{long}`\n")


@pytest.mark.parametrize(
    "text", ["Words.\n\n", "# A\n\n| a table |\n\n", "# A\n\n## B\n\nWords.\n\n", "# A\n\n```\na\n```\n\n"]
)
def test_what_is_no_beginning(text: str) -> None:
    assert not beginning(text)
