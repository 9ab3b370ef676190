"""All mutations of a file, and its blocks of statements.

What no test of behaviour could miss is left out, by rule: annotations, docstrings, imports, ``TYPE_CHECKING`` blocks,
what runs only as a script, ``__all__`` and ``__slots__``, decorators and the heads of classes, assertions (they are
checks themselves), and texts for people: strings, log lines, what an exception says, ``__str__`` and ``__repr__``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.mutants.mutation import Mutation
from tests.mutants.operators import OPERATORS

Block = list[ast.stmt]

ONLY_NAMED = {"__all__", "__slots__"}
TEXTS = {"__str__", "__repr__"}
LOGS = {"log", "logging", "warnings"}
LOG_LINE = "LogLine"
LEFT_OUT = (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr, ast.Global, ast.Nonlocal)


@dataclass
class Finder:
    """Walks one file. ``blocks``: its blocks of statements, by their numbers. Some mutations may be no programs."""

    path: str
    source: str
    mutations: list[Mutation] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        lengths = [len(line.encode()) for line in self.source.splitlines(keepends=True)]
        self._lines = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
        self._function: list[str] = []
        self._in_function = False
        self._block: int | None = None
        self.tree = ast.parse(self.source)
        for statement in self.tree.body:
            self._visit(statement)

    def _visit(self, node: ast.AST) -> None:
        if left_out(node):
            return
        self._mutate(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._visit_function(node)
        elif isinstance(node, ast.ClassDef):
            self._function.append(node.name)
            self._visit_all(node.body)
            self._function.pop()
        elif isinstance(node, ast.AnnAssign):
            self._visit_all([node.value] if node.value else [])
        elif not isinstance(node, ast.Raise):
            self._visit_fields(node)

    def _visit_fields(self, node: ast.AST) -> None:
        for _, value in ast.iter_fields(node):
            if not isinstance(value, list):
                self._visit_all([value] if isinstance(value, ast.AST) else [])
            elif value and isinstance(value[0], ast.stmt):
                self._visit_block(value)
            else:
                self._visit_all([each for each in value if isinstance(each, ast.AST)])

    def _visit_all(self, nodes: list[ast.AST] | list[ast.stmt] | list[ast.expr]) -> None:
        for node in nodes:
            self._visit(node)

    def _visit_block(self, statements: Block) -> None:
        """Statements that all run, or none. Outside functions they are run by the import."""
        outer = self._block
        if self._in_function:
            self._block = len(self.blocks)
            self.blocks.append(statements)
        self._visit_all(statements)
        self._block = outer

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all([each for each in (*node.args.defaults, *node.args.kw_defaults) if each is not None])
        self._function.append(node.name)
        outer, self._in_function = self._in_function, True
        self._visit_block(node.body)
        self._in_function = outer
        self._function.pop()

    def _mutate(self, node: ast.AST) -> None:
        for operator, replaced, text in OPERATORS.get(type(node), lambda _: iter(()))(node):
            assert isinstance(replaced, ast.expr | ast.stmt)
            if operator in ("handler", "early return") and log_line(replaced):
                continue
            self._add(operator, replaced, text, node)

    def _add(self, operator: str, replaced: ast.expr | ast.stmt, text: str, node: ast.AST) -> None:
        start = self._lines[replaced.lineno - 1] + replaced.col_offset
        end = self._lines[(replaced.end_lineno or 0) - 1] + (replaced.end_col_offset or 0)
        old = self.source.encode()[start:end].decode()
        name = ".".join(self._function) or "<module>"
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)  # its first statement, which is in its block
        mutation = Mutation(
            self.path,
            replaced.lineno,
            operator,
            ".".join([*self._function, node.name]) if inner else name,
            start,
            end,
            old,
            text,
            len(self.blocks) if inner else self._block,
        )
        self.mutations.append(mutation)


def left_out(node: ast.AST) -> bool:
    """Whether this, with all that is in it, is no code that a test of behaviour could miss."""
    if isinstance(node, LEFT_OUT):
        return True
    if isinstance(node, ast.FunctionDef):
        return node.name in TEXTS
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return any(isinstance(each, ast.Name) and each.id in ONLY_NAMED for each in targets)
    if isinstance(node, ast.If):
        return bool({"TYPE_CHECKING", "__name__"} & set(_names(node.test)))
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant) or log_line(node)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in (LOG_LINE, "print")


def log_line(node: ast.AST) -> bool:
    """Whether a statement does nothing but write a line for people."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    call = node.value
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in LOGS:
        return True
    return any(LOG_LINE in _names(each.func) for each in call.args if isinstance(each, ast.Call)) or (
        isinstance(call.func, ast.Name) and call.func.id == "print"
    )


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
