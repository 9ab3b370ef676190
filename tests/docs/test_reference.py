"""docs/reference.md is what docs/reference.py writes, and has every public name with its docstring."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.scripts import script
from tests.txha.names import MODULES

DOCS = Path(__file__).parents[2] / "docs"


reference = script("reference")
PAGE = (DOCS / "reference.md").read_text()


def test_the_page_is_up_to_date() -> None:
    assert reference.page() == PAGE, "run: python docs/reference.py"


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_name_is_described(module: ModuleType) -> None:
    parts = re.split(rf"^### `{re.escape(module.__name__)}\.(\w+)`\n", PAGE, flags=re.MULTILINE)[1:]
    described = dict(zip(parts[::2], parts[1::2], strict=True))
    things = [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
    assert list(described) == things
    aliases = {"Event", "TxEvent", "Asked"}
    for name, text in described.items():
        told = re.split(r"^#", re.sub(r"```.*?```", "", text, flags=re.DOTALL), flags=re.MULTILINE)[0]
        assert told.strip() or name in aliases, f"{name} has no docstring"


def test_the_page_leads_nobody_to_private_modules() -> None:
    assert not re.findall(r"\b(?:recovery|txobserver|broker_plugin|ha)\.\w+", PAGE)


def test_a_name_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULES[0], "__all__", MODULES[0].__all__[1:])
    assert reference.page() != PAGE
