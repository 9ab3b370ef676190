"""The diagrams in the documents are those of the tables that the code runs on."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.prose import ROOT
from tests.docs.scripts import script

diagrams = script("diagrams")


def _table_names() -> set[str]:
    """Names given to ``Table(...)`` anywhere in the code."""
    found = set()
    for package in ("txobserver", "ha", "recovery", "broker_plugin"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            if "from txobserver.table import" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Table":
                    name = node.args[0]
                    assert isinstance(name, ast.Constant), f"{path}: the name of a table is written out"
                    found.add(name.value)
    return found


@pytest.mark.parametrize("page", diagrams.PAGES, ids=lambda page: page.name)
def test_the_page_shows_the_tables(page: Path) -> None:
    text = page.read_text()
    assert diagrams.drawn(text) == text, "run: python docs/diagrams.py"


def test_every_table_of_the_code_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in diagrams.PAGES)
    shown = [match["name"] for match in diagrams.MARKED.finditer(text)]
    assert sorted(shown) == sorted(_table_names())
    assert sorted(shown) == sorted(diagrams.TABLES)


@pytest.mark.parametrize("name", sorted(diagrams.TABLES))
def test_a_table_that_changes_changes_its_diagram(name: str) -> None:
    table = diagrams.TABLES[name]
    text = diagrams.diagram(table)
    for move in table.moves:
        fewer = replace(table, moves={each: after for each, after in table.moves.items() if each != move})
        assert diagrams.diagram(fewer) != text, f"{move} is not in the diagram"
