"""Which files import which, at any place in them: also where only types are checked, or within a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


def imports(root: Path, packages: Sequence[str]) -> dict[str, set[str]]:
    """Modules below ``root`` by their names, with those of them that each imports."""
    files = {
        ".".join(path.relative_to(root).with_suffix("").parts): path
        for package in packages
        for path in (root / package).rglob("*.py")
    }
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def _imported(path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                yield from (name for name in (whole if whole in known else node.module,) if name in known)


def circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The modules of each circle: those that lead to each other."""
    reached = {name: _reached(graph, name) for name in graph}
    within = {name: found for name, found in reached.items() if name in found}
    return {frozenset(other for other in found if name in reached[other]) for name, found in within.items()}


def _reached(graph: Mapping[str, set[str]], name: str) -> set[str]:
    found: set[str] = set()
    todo = [*graph[name]]
    while todo:
        each = todo.pop()
        if each not in found:
            found.add(each)
            todo += graph[each]
    return found
