"""The operators: what a realistic fault makes of one node of the syntax tree.

Each takes a node and yields (operator's name, node that is replaced, text in its place). They know nothing of where the
node stands; what is no code that a test could miss is left out before they are asked (``finder``).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

Found = tuple[str, ast.AST, str]

COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
ANY_ORDER = {"min", "max"}
"""Functions that give the same whatever the order of their arguments."""

BUILTIN_TYPES = {"int", "str", "bytes", "float", "bool", "list", "dict"}
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "popleft": "pop", "appendleft": "append"}


def compare(node: ast.Compare) -> Iterator[Found]:
    """A comparison's edge, or its opposite."""
    for at in range(len(node.ops)):
        signs = [COMPARISONS[type(each)] if index == at else _sign(each) for index, each in enumerate(node.ops)]
        pieces = zip(signs, node.comparators, strict=True)
        yield "comparison", node, _text(node.left) + "".join(f" {sign} {_text(right)}" for sign, right in pieces)


def boolean(node: ast.BoolOp) -> Iterator[Found]:
    """``and`` for ``or``; one operand forgotten."""
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "and or", node, _text(ast.BoolOp(other, node.values))
    for at in range(len(node.values)):
        rest = node.values[:at] + node.values[at + 1 :]
        yield "operand", node, _text(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))


def arithmetic(node: ast.BinOp) -> Iterator[Found]:
    """The opposite operation. Texts are not calculated with, nor are types."""
    if not any(_is_text(each) or _is_type(each) for each in (node.left, node.right)):
        yield from _with_twin("arithmetic", node, node.op, lambda op: _text(ast.BinOp(node.left, op, node.right)))


def augmented(node: ast.AugAssign) -> Iterator[Found]:
    """``+=`` becomes ``-=``, or ``=``."""
    yield from _with_twin(
        "arithmetic", node, node.op, lambda op: ast.unparse(ast.AugAssign(node.target, op, node.value))
    )
    yield "arithmetic", node, f"{ast.unparse(node.target)} = {ast.unparse(node.value)}"
    yield "statement", node, "pass"


def number(node: ast.Constant) -> Iterator[Found]:
    """Off by one; a flag the other way round."""
    if isinstance(node.value, bool):
        yield "flag", node, str(not node.value)
    elif isinstance(node.value, int | float):
        yield "number", node, repr(node.value + 1)
        if node.value:
            yield "number", node, repr(node.value - 1)


def negation(node: ast.UnaryOp) -> Iterator[Found]:
    """A ``not`` is forgotten, or a sign."""
    if isinstance(node.op, ast.Not | ast.USub):
        yield "not" if isinstance(node.op, ast.Not) else "arithmetic", node, _text(node.operand)


def condition(node: ast.If | ast.While | ast.IfExp) -> Iterator[Found]:
    """A condition the other way round."""
    yield "condition", node.test, f"not ({ast.unparse(node.test)})"


def filters(node: ast.comprehension) -> Iterator[Found]:
    """What a comprehension leaves out, the other way round."""
    for test in node.ifs:
        yield "condition", test, f"not ({ast.unparse(test)})"


def call(node: ast.Call) -> Iterator[Found]:
    """Two arguments in the wrong order; an argument left to its default; a function's twin."""
    swaps = not isinstance(node.func, ast.Name) or node.func.id not in ANY_ORDER
    for at in range(len(node.args) - 1 if swaps else 0):
        first, second = node.args[at : at + 2]
        if not isinstance(first, ast.Starred) and not isinstance(second, ast.Starred):
            args = [*node.args[:at], second, first, *node.args[at + 2 :]]
            yield "arguments", node, ast.unparse(ast.Call(node.func, args, node.keywords))
    for keyword in node.keywords:
        if keyword.arg is not None:
            rest = [each for each in node.keywords if each is not keyword]
            yield "default", node, ast.unparse(ast.Call(node.func, node.args, rest))
    if isinstance(node.func, ast.Name) and node.func.id in TWINS:
        yield "twin", node.func, TWINS[node.func.id]
    elif isinstance(node.func, ast.Name) and node.func.id == "reversed":
        yield "twin", node, f"iter({ast.unparse(node.args[0])})"
    elif isinstance(node.func, ast.Attribute) and node.func.attr in TWINS:
        yield "twin", node.func, f"{ast.unparse(node.func.value)}.{TWINS[node.func.attr]}"


def expression(node: ast.Expr) -> Iterator[Found]:
    """A call is forgotten, one that is awaited too."""
    if isinstance(node.value, ast.Call | ast.Await | ast.YieldFrom):
        yield "statement", node, "pass"


def assignment(node: ast.Assign) -> Iterator[Found]:
    """What should be kept is not. A name that would be missing is found by any run, so those are not made."""
    if all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
        yield "statement", node, "pass"


def forgotten(node: ast.Delete | ast.Raise) -> Iterator[Found]:
    """A statement is forgotten."""
    yield "statement", node, "pass"


def returned(node: ast.Return) -> Iterator[Found]:
    """Another value, or no return."""
    if node.value is None:
        yield "return", node, "pass"
    elif _is_truth(node.value):
        yield "return", node.value, f"not ({ast.unparse(node.value)})"
    elif not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "return", node.value, "None"
    else:
        yield "return", node, "pass"


def jump(node: ast.Break | ast.Continue) -> Iterator[Found]:
    """The other way to leave a loop's round; none."""
    yield "jump", node, "continue" if isinstance(node, ast.Break) else "break"
    yield "jump", node, "pass"


def handler(node: ast.ExceptHandler) -> Iterator[Found]:
    """An error is not dealt with where it should be."""
    if len(node.body) > 1 or not isinstance(node.body[0], ast.Raise):
        yield "handler", node.body[0], "raise"


def function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Found]:
    """A function that returns nothing returns at once."""
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if len(body) > 1 and isinstance(node.returns, ast.Constant) and node.returns.value is None:
        first = body[0]
        yield "early return", first, "return"


OPERATORS: dict[type[ast.AST], Callable[[Any], Iterator[Found]]] = {
    ast.Compare: compare,
    ast.BoolOp: boolean,
    ast.BinOp: arithmetic,
    ast.AugAssign: augmented,
    ast.Constant: number,
    ast.UnaryOp: negation,
    ast.If: condition,
    ast.While: condition,
    ast.IfExp: condition,
    ast.comprehension: filters,
    ast.Call: call,
    ast.Expr: expression,
    ast.Assign: assignment,
    ast.Delete: forgotten,
    ast.Raise: forgotten,
    ast.Return: returned,
    ast.Break: jump,
    ast.Continue: jump,
    ast.ExceptHandler: handler,
    ast.FunctionDef: function,
    ast.AsyncFunctionDef: function,
}


def _with_twin(
    name: str, node: ast.AST, operation: ast.operator, text: Callable[[ast.operator], str]
) -> Iterator[Found]:
    other = ARITHMETIC.get(type(operation))
    if other is not None:
        yield name, node, text(other())


def _text(node: ast.expr) -> str:
    """In parentheses unless nothing around it could bind tighter."""
    text = ast.unparse(node)
    return text if isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Constant | ast.Subscript) else f"({text})"


def _sign(operation: ast.cmpop) -> str:
    """As it is written."""
    return ast.unparse(ast.Compare(ast.Name("a"), [operation], [ast.Name("b")]))[2:-2]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_type(node: ast.expr) -> bool:
    """Whether this names a type, as our spelling has it: a name with a capital that is not a constant's."""
    if isinstance(node, ast.BinOp):
        return _is_type(node.left) and _is_type(node.right)
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    known = name in BUILTIN_TYPES or (isinstance(node, ast.Constant) and node.value is None)
    return known or (name[:1].isupper() and not name.isupper())


def _is_truth(node: ast.expr) -> bool:
    if isinstance(node, ast.Compare) or (isinstance(node, ast.Constant) and isinstance(node.value, bool)):
        return True
    if isinstance(node, ast.BoolOp):
        return all(_is_truth(each) for each in node.values)
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
