"""One mutation: a piece of a file's text that another text takes the place of."""

from __future__ import annotations

import difflib
import hashlib
import warnings
from dataclasses import dataclass, field
from types import CodeType


@dataclass(frozen=True)
class Mutation:
    """``start`` and ``end`` count the file's UTF-8 bytes; ``block``: the block of statements that it is in."""

    path: str
    line: int
    operator: str
    function: str
    start: int
    end: int
    old: str
    new: str
    block: int | None = field(default=None, compare=False)

    @property
    def key(self) -> str:
        """The same for the same mutation of the same text, whatever else changes in the project."""
        text = "\0".join((self.path, self.operator, self.function, str(self.start), self.old, self.new))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def apply(self, source: str) -> str:
        """The mutated text of the file."""
        data = source.encode()
        return (data[: self.start] + self.new.encode() + data[self.end :]).decode()

    def diff(self, source: str) -> str:
        """A unified diff with three lines around the change."""
        lines = difflib.unified_diff(
            source.splitlines(),
            self.apply(source).splitlines(),
            self.path,
            f"{self.path} ({self.operator})",
            lineterm="",
        )
        return "\n".join(lines)


def changes_code(source: str, mutation: Mutation) -> bool:
    """Whether the mutated text is a program at all, and another one: Python must make other instructions of it."""
    try:
        with warnings.catch_warnings(action="ignore"):
            mutated = compile(mutation.apply(source), mutation.path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return _instructions(mutated) != _instructions(compile(source, mutation.path, "exec", dont_inherit=True))


def _instructions(code: CodeType) -> tuple[object, ...]:
    """All that a program does; its lines' numbers are none of that."""
    constants = tuple(_instructions(each) if isinstance(each, CodeType) else repr(each) for each in code.co_consts)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return code.co_code, code.co_exceptiontable, code.co_flags, constants, names
