"""The documents and their examples use the public name, and nothing else of ours."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.txha.names import MODULES

ROOT = Path(__file__).parents[2]
FLOORS = ("txobserver", "ha", "recovery", "broker_plugin", "python_tests", "tests")
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def programs() -> Iterator[tuple[str, str]]:
    """Every program that a reader may copy."""
    for page in PAGES:
        for number, text in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)):
            if page.name != "reference.md":
                yield f"{page.relative_to(ROOT)}, block {number + 1}", text
    for path in EXAMPLES:
        yield str(path.relative_to(ROOT)), path.read_text()


def imported(text: str) -> set[str]:
    """The modules that a program imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
    return found


@pytest.mark.parametrize(("where", "text"), list(programs()), ids=lambda each: each if len(each) < 60 else "")
def test_examples_import_nothing_but_the_public_name(where: str, text: str) -> None:
    private = {name for name in imported(text) if name.split(".")[0] in FLOORS or name.startswith("txha._")}
    assert not private, f"{where} imports {private}"
    public = {module.__name__ for module in MODULES}
    assert {name for name in imported(text) if name.split(".")[0] == "txha"} <= public


def test_the_examples_are_found() -> None:
    assert len([text for _, text in programs() if "txha" in imported(text) or "from txha" in text]) >= 10


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_what_is_exported(page: Path) -> None:
    """``txha.resources.recover`` in a page is a name that can be imported."""
    public = {f"{module.__name__}.{name}" for module in MODULES for name in module.__all__}
    for name in re.findall(r"`(txha\.(?:(?:resources|spark|events|spi)\.\w+|[A-Z]\w*))[`(]", page.read_text()):
        assert name in public, f"{page.name} names {name}"
