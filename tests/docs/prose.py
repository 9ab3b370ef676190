"""The pages of the documentation, and their prose: without code, tables and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's path within the project."""
    return str(page.relative_to(ROOT))


def lines_of_text(text: str) -> Iterator[tuple[int, str]]:
    """The lines that are neither code nor of a table, with their numbers."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("|"):
            yield number, line


def words_of(text: str) -> str:
    """What a page says in words, tables too: without code, names in code, and the targets of links."""
    text = re.sub(r"^\s*```.*?^\s*```", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]+`", "", text)
    return re.sub(r"\]\([^)\s]+\)", "]", text)
