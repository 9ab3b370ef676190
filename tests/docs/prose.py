"""The pages of the documentation, and their prose: without code, tables and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

NOT_YET = {
    "docs/audit.md",
    "docs/coordinator_tester.md",
    "docs/coordinators.md",
    "docs/dtx.md",
    "docs/dtx_clients.md",
    "docs/dtx_crashes.md",
    "docs/money.md",
    "docs/pipeline.md",
    "docs/spark_crashes.md",
    "docs/spark_drawn_crashes.md",
    "docs/spark_queues.md",
}
"""Pages that are not yet written anew, beside decisions/ and benchmarks/."""

DONE = [
    page
    for page in PAGES
    if page.parent.name not in ("decisions", "benchmarks") and str(page.relative_to(ROOT)) not in NOT_YET
]
"""The pages that the tests of prose hold."""


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
