"""The words of the code: one name for one class, and no private words where a component is meant."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("txha", "txobserver", "ha", "recovery", "broker_plugin", "python_tests/harness")
BANNED = (
    *("night", "nights", "somebody", "someone", "whoever", "whomever"),
    *("nobody", "anybody", "anyone", "everybody", "everyone"),
)
PRIVATE = re.compile(rf"(?i)(?<![a-z])({'|'.join(BANNED)})(?![a-z])")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
ARGUED = {
    "ha/log_events.py": (2, "the class NobodyTakesOver is named by the event nobody_takes_over in nodes' logs"),
    "ha/membership/candidate.py": (2, "tells of that event"),
    "broker_plugin/logs/prose.py": (4, "words for that event"),
    "recovery/planner/verdicts.py": (1, "By.NONE has the value nobody in reports and stored plans"),
    "python_tests/harness/servers/postgresql.py": (1, "a user of the operating system"),
}
"""How many of these words a file has, and why."""
HOMONYMS = {
    "Commit": "a method of AMQP's class dtx, always used as dtx.Commit; and the commit point between nodes",
    "Forget": "a method of AMQP's class dtx, always used as dtx.Forget; and an event of the stream",
    "Global": "a method of AMQP's class dtx, always used as dtx.Global; and the name of a global transaction",
}
"""Classes that share their names, and why. The methods of class dtx have the names that AMQP gives to them."""


def product(root: Path = ROOT) -> list[Path]:
    return sorted(path for package in PRODUCT for path in (root / package).rglob("*.py"))


def private_words(text: str) -> list[str]:
    """In names, comments, docstrings, help texts and messages. What stands in double backticks names a schedule."""
    return [found[0].lower() for found in PRIVATE.finditer(CAMEL.sub("_", re.sub(r"``\w+``", "", text)))]


def classes(path: Path) -> list[str]:
    found = (node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef))
    return [name for name in found if not name.startswith("_")]


def homonyms(paths: list[Path]) -> dict[str, list[Path]]:
    """Classes of one name. One whose name begins with an underline is known in its file alone."""
    found: dict[str, list[Path]] = defaultdict(list)
    for path in paths:
        for name in classes(path):
            found[name].append(path)
    return {name: where for name, where in found.items() if len(where) > 1}


@pytest.mark.parametrize("path", product(), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_private_words(path: Path) -> None:
    allowed, _ = ARGUED.get(str(path.relative_to(ROOT)), (0, ""))
    found = private_words(path.read_text())
    assert len(found) == allowed, f"name the component instead, or argue for it in ARGUED: {found}"


def test_exceptions_are_of_files_that_exist() -> None:
    assert all((ROOT / path).is_file() for path in ARGUED)


def test_no_two_classes_have_one_name() -> None:
    files = [path for path in product() if "python_tests" not in path.parts]
    assert homonyms(files).keys() == HOMONYMS.keys(), "give each its subject in the name, or argue for it in HOMONYMS"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"""Nobody waits."""', ["nobody"]),
        ("def leaves_to_nobody(): ...", ["nobody"]),
        ("class NobodyTakesOver: ...", ["nobody"]),
        ("EVERYBODY = 1  # and whoever", ["everybody", "whoever"]),
        ('f"somebody\'s {night}"', ["somebody", "night"]),
        ('"""Fixed (``a_queue_that_nobody_reads``)."""', []),
        ("knight, tonight, nobodyish", []),
    ],
)
def test_private_words_are_found(text: str, found: list[str]) -> None:
    assert private_words(text) == found


def test_homonyms_are_found(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text("class Outcome: ...\nclass _Run: ...\n")
    (tmp_path / "third.py").write_text("class BranchOutcome: ...\n")
    paths = sorted(tmp_path.glob("*.py"))
    assert homonyms(paths) == {"Outcome": paths[:2]}
