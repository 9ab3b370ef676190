"""The numbers that docs/limits.md lists, and those that the code has: a test of each package compares the two."""

from __future__ import annotations

import ast
import enum
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.mutants.scope import ROOT, mutated_files

PAGE = ROOT / "docs" / "limits.md"


def documented(package: str) -> dict[str, object]:
    """The values on the page, by their names, of one package: ``ha``, ``broker_plugin.node`` …"""
    text = PAGE.read_text().partition(f"\n## `{package}`\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w.]+)` \| `([^`|]+)` \|", text, re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a name stands twice on the page"
    return {f"{package}.{name}": ast.literal_eval(value) for name, value in rows}


def of_the_code(package: str) -> dict[str, object]:
    """Every number that a module or a class of this package names in capitals or as a default, computed ones too."""
    found: dict[str, object] = {}
    for path in mutated_files():
        if path.startswith(package.replace(".", "/") + "/"):
            found |= dict(_of_file(Path(path)))
    return found


def _of_file(path: Path) -> Iterator[tuple[str, object]]:
    name = ".".join(path.with_suffix("").parts)
    module = importlib.import_module(name)
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.ClassDef):
            for field in _names(node.body):
                yield from _numbers(f"{name}.{node.name}.{field}", _of_class(getattr(module, node.name), field))
        else:
            for field in _names([node]):
                if field != field.lower():  # else it is no constant
                    yield from _numbers(f"{name}.{field}", getattr(module, field))


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """What is given a value here."""
    for node in body:
        if isinstance(node, ast.Assign):
            targets = [each for target in node.targets for each in getattr(target, "elts", [target])]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            yield node.target.id


def _of_class(cls: type, field: str) -> object:
    """The default of a field, or the value of an attribute."""
    if issubclass(cls, msgspec.Struct):
        return {each.name: each.default for each in msgspec.structs.fields(cls)}.get(field)
    if issubclass(cls, tuple):
        return getattr(cls, "_field_defaults", {}).get(field)
    return getattr(cls, field, None)


def _numbers(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The value, if it is a number, a flag, or several; of a type the bounds."""
    if isinstance(value, enum.Enum):
        value = value.value
    if isinstance(value, int | float):
        yield name, value
    elif isinstance(value, tuple) and value and all(isinstance(each, int | float) for each in value):
        yield name, tuple(value)
    for bounds in getattr(value, "__metadata__", ()):
        for bound in ("ge", "le", "min_length", "max_length"):
            if isinstance(bounds, msgspec.Meta) and getattr(bounds, bound) is not None:
                yield f"{name}.{bound}", getattr(bounds, bound)


def check(package: str) -> None:
    """The page lists all numbers of a package with their values, and no others."""
    ours, theirs = of_the_code(package), documented(package)
    others = sorted(ours.keys() ^ theirs.keys())
    assert ours and not others, f"to be listed in docs/limits.md, or no more: {others}"
    assert {name: repr(value) for name, value in ours.items()} == {name: repr(theirs[name]) for name in ours}
