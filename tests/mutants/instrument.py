"""Writes a copy's modules so that each block of statements says when it runs."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.finder import Block, Finder

HEAD = ast.parse("from tests.mutants.hits import hit as _block_hit, seen as _blocks_seen").body


@dataclass(frozen=True)
class Numbering:
    """Blocks are numbered through all files: that of a file's block is ``first[path] + block``."""

    first: dict[str, int]
    blocks: dict[str, int]

    def number(self, path: str, block: int) -> int:
        """A block's number among those of all files."""
        return self.first[path] + block

    def of_file(self, path: str) -> range:
        """The numbers of a file's blocks."""
        return range(self.first[path], self.first[path] + self.blocks[path])


def numbering(root: Path, paths: list[str]) -> Numbering:
    """The same for the same files."""
    blocks = {path: len(Finder(path, (root / path).read_text()).blocks) for path in paths}
    first, at = {}, 0
    for path in paths:
        first[path] = at
        at += blocks[path]
    return Numbering(first, blocks)


def instrument(root: Path, numbers: Numbering) -> None:
    """Overwrite the files below ``root``, which must be a scratch copy."""
    for path, first in numbers.first.items():
        finder = Finder(path, (root / path).read_text())
        for number, block in enumerate(finder.blocks):
            _mark(block, first + number)
        at = _behind_future(finder.tree.body)
        finder.tree.body[at:at] = HEAD
        (root / path).write_text(ast.unparse(ast.fix_missing_locations(finder.tree)))


def _mark(block: Block, number: int) -> None:
    at = 1 if len(block) > 1 and _is_text(block[0]) else 0
    block[at:at] = ast.parse(f"if {number} not in _blocks_seen: _block_hit({number})").body


def _behind_future(body: Block) -> int:
    return max((at + 1 for at, each in enumerate(body) if _is_text(each) or _is_future(each)), default=0)


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
