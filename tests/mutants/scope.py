"""What is mutated, and which tests judge it."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("ha", "txobserver", "broker_plugin/coordination", "broker_plugin/node")
STORE = "recovery.store.store"
"""The module that stands for a node's store: mutated is all of ``recovery`` that it leads to."""

JUDGES = (
    "tests/ha",
    "tests/txobserver",
    "tests/broker_plugin/embedded",
    "tests/recovery",
    "tests/broker_plugin/coordination",
    "tests/broker_plugin/node",
    "tests/broker_plugin/cli",
    "tests/broker_plugin/admin",
    "tests/simulation",
    "tests/docs/test_documents.py",
)
"""Folders and files whose tests judge. None needs PostgreSQL, Java or a cluster of processes."""

NO_JUDGES = ("tests/simulation/test_simulation.py", "tests/recovery/pipeline")
"""Campaigns over hundreds of seeds: the seeds of a mutant's own take their place; and what needs Java."""

PACKAGES_COPIED = ("txha", "ha", "txobserver", "recovery", "broker_plugin", "python_tests", "tests", "docs")
COPIED = (*PACKAGES_COPIED, "pyproject.toml", "Makefile", "README.md", "CHANGELOG.md", "LICENSE")
"""What a scratch copy needs so that the judging tests run in it."""

SEEDS = 40


def mutated_files(root: Path = ROOT) -> list[str]:
    """The files that are mutated, as paths from the root, in order."""
    found = {path for package in PACKAGES for path in (root / package).rglob("*.py")}
    found |= _leads_to(root, STORE)
    return sorted(str(path.relative_to(root)) for path in found if path.name not in ("__init__.py", "dtx_wire.py"))


def _leads_to(root: Path, module: str) -> set[Path]:
    """The files of a module and of all modules of its package that it imports, directly or not."""
    package = module.partition(".")[0]
    found: set[Path] = set()
    wanted = [module]
    while wanted:
        path = root.joinpath(*wanted.pop().split(".")).with_suffix(".py")
        if path in found or not path.exists():
            continue
        found.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == package:
                wanted += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found
