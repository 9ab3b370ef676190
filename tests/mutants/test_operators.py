"""What each operator makes of code, and what is left alone."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from tests.mutants.finder import Finder
from tests.mutants.mutation import changes_code


def mutants_of(source: str) -> dict[str, list[str]]:
    """operator -> the mutated texts, each written as Python writes them."""
    found: dict[str, list[str]] = {}
    for mutation in Finder("ha/x.py", source).mutations:
        if changes_code(source, mutation):
            found.setdefault(mutation.operator, []).append(ast.unparse(ast.parse(mutation.apply(source))))
    return found


@pytest.mark.parametrize(
    ("source", "operator", "mutated"),
    [
        ("a < b", "comparison", "a <= b"),
        ("a in b", "comparison", "a not in b"),
        ("0 < a <= 9", "comparison", "0 < a < 9"),
        ("(a or b) == c", "comparison", "(a or b) != c"),
        ("a and b", "and or", "a or b"),
        ("a and b and c", "operand", "a and c"),
        ("a * (b or c)", "operand", "a * b"),
        ("a + b", "arithmetic", "a - b"),
        ("a * (b + c)", "arithmetic", "a * (b - c)"),
        ("a += b", "arithmetic", "a = b"),
        ("x = 3", "number", "x = 4"),
        ("x = 0", "number", "x = 1"),
        ("x = 0.5", "number", "x = 1.5"),
        ("f(sync=True)", "flag", "f(sync=False)"),
        ("not a", "not", "a"),
        ("x = -a", "arithmetic", "x = a"),
        ("if a:\n    f()", "condition", "if not a:\n    f()"),
        ("[a for a in b if c]", "condition", "[a for a in b if not c]"),
        ("f(a, b)", "arguments", "f(b, a)"),
        ("f(a, b=c)", "default", "f(a)"),
        ("x = min(a, b)", "twin", "x = max(a, b)"),
        ("x = a.popleft()", "twin", "x = a.pop()"),
        ("for a in reversed(b):\n    f()", "twin", "for a in iter(b):\n    f()"),
        ("f()", "statement", "pass"),
        ("self.a = b", "statement", "pass"),
        ("raise ValueError('no')", "statement", "pass"),
        ("async def f():\n    await g()", "statement", "async def f():\n    pass"),
        ("def f():\n    return a == b", "return", "def f():\n    return not a == b"),
        ("def f():\n    return a", "return", "def f():\n    return None"),
        ("def f():\n    return\n    g()", "return", "def f():\n    pass\n    g()"),
        ("for a in b:\n    break", "jump", "for a in b:\n    continue"),
        ("try:\n    f()\nexcept E:\n    g()", "handler", "try:\n    f()\nexcept E:\n    raise"),
        ("def f() -> None:\n    g()\n    h()", "early return", "def f() -> None:\n    return\n    h()"),
        ("def f(a: int = 3) -> int:\n    ...", "number", "def f(a: int=4) -> int:\n    ..."),
    ],
)
def test_a_realistic_fault(source: str, operator: str, mutated: str) -> None:
    assert mutated in mutants_of(source)[operator]


@pytest.mark.parametrize(
    "source",
    [
        '"""Text."""',
        "x: Literal[1]",
        "def f(a: Literal[1]) -> Literal[2]: ...",
        "Kind = Text | None",
        "__all__ = [1]",
        "class A:\n    __slots__ = (1,)",
        "if TYPE_CHECKING:\n    f()",
        "if __name__ == '__main__':\n    f()",
        "@dataclass(frozen=True)\nclass A(Struct, tag=3):\n    a: int",
        "assert a == 1",
        "log.info('text %d', 3)",
        "emit(LogLine(f'text {a + 1}'))",
        "print(1)",
        "class A:\n    def __str__(self):\n        return 1",
    ],
)
def test_what_no_test_could_miss_is_left_alone(source: str) -> None:
    assert mutants_of(dedent(source)) == {}


def test_what_an_exception_says_is_left_alone() -> None:
    assert mutants_of("raise ValueError(1)") == {"statement": ["pass"]}


@pytest.mark.parametrize("source", ["def f():\n    g()\n    return None", "def f(a):\n    if a:\n        return\n"])
def test_what_python_makes_the_same_program_of_is_no_mutation(source: str) -> None:
    assert "return" not in mutants_of(source)


def test_arguments_that_may_come_in_any_order_are_not_swapped() -> None:
    assert mutants_of("x = max(a, b)") == {"twin": ["x = min(a, b)"]}


def test_offsets_are_those_of_the_bytes() -> None:
    assert mutants_of("x = 'ä', 1")["number"][0] == "x = ('ä', 2)"


def test_a_mutation_knows_its_block_and_function() -> None:
    source = "class A:\n    def f(self):\n        if a:\n            g()\n        h()\n"
    finder = Finder("ha/x.py", source)
    found = {each.old: (each.block, each.function) for each in finder.mutations if each.operator == "statement"}
    assert found == {"g()": (1, "A.f"), "h()": (0, "A.f")}
    assert [ast.unparse(block[0]) for block in finder.blocks] == ["if a:\n    g()", "g()"]
