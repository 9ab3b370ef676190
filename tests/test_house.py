"""The house's own rules, held by a test so that they need not be remembered."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.imports import circles, imports

ROOT = Path(__file__).parents[1]
PACKAGES = ("txha", "txobserver", "ha", "recovery", "broker_plugin", "python_tests", "tests")
PURE = ("txobserver", "ha", "broker_plugin/embedded", "broker_plugin/amqp/protocol")
IMPURE = {"socket", "asyncio", "time", "random", "threading", "os", "uuid", "secrets", "datetime"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|NotImplemented" + r"Error|pytest\.(skip|xfail)|mark\.(skip|xfail)")
MAY_SKIP = ("python_tests/conftest.py", "tests/support/servers.py")
"""With a reason: what kills nodes, where TXHA_AMQP_URL names a broker of others; and what needs servers in containers,
where TXHA_TEST_SERVERS asks for them and no engine answers."""
MOST_METHODS = 20
REASON = re.compile(r"(^|[.:]\s+)Many methods: \S")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_small_files_short_functions_nothing_unfinished(path: Path) -> None:
    text = path.read_text()
    assert text.count("\n") <= 400, "a file that passes 400 lines is asking to be two"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 60, f"{node.name} passes 60 lines"
    if path.name != "test_house.py":
        allowed = ["pytest.skip"] if str(path.relative_to(ROOT)) in MAY_SKIP else []
        assert [found[0] for found in UNFINISHED.finditer(text)] == allowed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_class_with_many_methods_says_why(path: Path) -> None:
    """``Many methods: `` and the reason, in its docstring: most of them play two parts, and are to be two classes."""
    assert unexplained(path.read_text()) == []


def unexplained(source: str) -> list[str]:
    """Classes of more than 20 methods without a reason. What a decorator overloads is one method."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            counted = [each for each in methods if not any(map(is_overload, each.decorator_list))]
            if len(counted) > MOST_METHODS and not REASON.search(ast.get_docstring(node) or ""):
                found.append(node.name)
    return found


def is_overload(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name | ast.Attribute) and ast.unparse(decorator).endswith("overload")


@pytest.mark.parametrize(
    ("docstring", "decorator", "methods", "found"),
    [
        ("A thing.", "@property", 20, []),
        ("A thing.", "@property", 21, ["Thing"]),
        ("A thing.\n\n    Many methods: one for each of AMQP's.", "@property", 21, []),
        ("A thing. Many methods: one for each of AMQP's.", "@property", 21, []),
        ("A thing with too many methods: it plays two parts.", "@property", 21, ["Thing"]),
        ("Many methods:", "@property", 21, ["Thing"]),
        ("A thing.", "@typing.overload", 30, []),
    ],
)
def test_classes_with_many_methods_are_found(docstring: str, decorator: str, methods: int, found: list[str]) -> None:
    method = f"    {decorator}\n    async def method(self): ...\n"
    assert unexplained(f'class Thing:\n    """{docstring}"""\n' + method * methods) == found


@pytest.mark.parametrize("package", PURE)
def test_the_core_is_pure(package: str) -> None:
    for path in (ROOT / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not {name.split(".")[0] for name in names} & IMPURE, f"{path} imports {names}"


def test_an_acknowledgement_is_made_in_one_place_only() -> None:
    """Persist, then send: only the interpreter makes an Ack, so none leaves without the write it waits for."""
    makers = {
        str(path.relative_to(ROOT))
        for package in ("ha", "broker_plugin", "recovery")
        for path in (ROOT / package).rglob("*.py")
        if re.search(r"\bAck\(", path.read_text()) and path.name != "stream.py"
    }
    assert makers <= {"ha/interpreter.py"} | {p for p in makers if "amqp" in p or "embedded" in p}


def test_no_imports_lead_in_a_circle() -> None:
    """Counted are imports within functions, and where only types are checked, too."""
    assert [sorted(each) for each in circles(imports(ROOT, PACKAGES))] == []


def test_a_circle_is_found(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.py").write_text("def lazily():\n    import a.c\n")
    (tmp_path / "a" / "c.py").write_text("if TYPE_CHECKING:\n    from a import d\n")
    (tmp_path / "a" / "d.py").write_text("from a.b import lazily\n")
    (tmp_path / "a" / "e.py").write_text("from a.b import lazily\n")
    assert circles(imports(tmp_path, ["a"])) == {frozenset({"a.b", "a.c", "a.d"})}


CORE_AND_STORE = (*PURE, "recovery/store")
PROMISE = re.compile(r"P([1-9]|1[0-2]): ")


def _assertions(package: str) -> list[tuple[Path, ast.Assert]]:
    return [
        (path, node)
        for path in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert)
    ]


def _said(node: ast.Assert) -> str:
    """The beginning of what an assertion says, as far as it is written there."""
    said = node.msg.values[0] if isinstance(node.msg, ast.JoinedStr) else node.msg
    return str(said.value) if isinstance(said, ast.Constant) else ""


def test_the_core_and_the_store_assert_their_invariants() -> None:
    assert sum(len(_assertions(package)) for package in CORE_AND_STORE) >= 600


def test_each_invariant_names_its_promise_and_each_promise_has_some() -> None:
    promises = set()
    for package in CORE_AND_STORE:
        for path, node in _assertions(package):
            if path.stem.endswith("invariants"):
                assert PROMISE.match(_said(node)), f"{path.relative_to(ROOT)}:{node.lineno} names no promise"
                promises.add(_said(node).partition(":")[0])
    assert promises == {f"P{number}" for number in range(1, 13)}


def test_no_invariant_is_asserted_twice_in_one_function() -> None:
    for package in CORE_AND_STORE:
        for path in sorted((ROOT / package).rglob("*invariants.py")):
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef):
                    tests = [
                        ast.dump(each.test) + ast.dump(each.msg or each.test)
                        for each in function.body
                        if isinstance(each, ast.Assert)
                    ]
                    assert len(tests) == len(set(tests)), f"{path.relative_to(ROOT)}: {function.name}"
