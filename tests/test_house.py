"""The house's own rules, held by a test so that they need not be remembered."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.imports import circles, imports

ROOT = Path(__file__).parents[1]
PACKAGES = ("txha", "txobserver", "ha", "recovery", "broker_plugin", "python_tests", "tests")
PURE = ("txobserver", "ha", "broker_plugin/embedded", "broker_plugin/amqp/protocol")
PURE_LIBRARIES = {
    *(
        "__future__",
        "abc",
        "base64",
        "bisect",
        "collections",
        "collections.abc",
        "contextlib",
        "dataclasses",
        "enum",
        "functools",
    ),
    *(
        "hashlib",
        "heapq",
        "hmac",
        "ipaddress",
        "itertools",
        "math",
        "re",
        "struct",
        "types",
        "typing",
        "urllib.parse",
        "zlib",
    ),
    *("msgspec", "mypy_extensions", "re2", "sortedcontainers"),
}
"""All that the core may import: nothing in them opens, waits, looks at a clock or draws a number."""
ONLY_A_TYPE = {("ha/membership/record.py", "pathlib")}
"""What a pure file imports beside them, and only names in a type."""
ACTS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint"}
UNFINISHED = re.compile(
    r"\b(TODO|FIXME|XXX|HACK)\b|NotImplemented" + r"Error|pytest\.(skip|xfail|importorskip)|mark\.(skip|xfail)|SkipTest"
)
LONGEST_FILE, LONGEST_FUNCTION = 400, 60
MAY_SKIP = ("python_tests/conftest.py", "tests/support/servers.py")
"""With a reason: what kills nodes, where TXHA_AMQP_URL names a broker of others; and what needs servers in containers,
where TXHA_TEST_SERVERS asks for them and no engine answers."""
MOST_METHODS = 20
REASON = re.compile(r"(^|[.:]\s+)Many methods: \S")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_small_files_short_functions_nothing_unfinished(path: Path) -> None:
    text = path.read_text()
    assert not list(too_long(text)), "a file that passes 400 lines is asking to be two"
    if path.name != "test_house.py":
        allowed = ["pytest.skip"] if str(path.relative_to(ROOT)) in MAY_SKIP else []
        assert [found[0] for found in UNFINISHED.finditer(text)] == allowed


def too_long(source: str) -> Iterator[str]:
    """The file, if it passes 400 lines, and the functions that pass 60."""
    if source.count("\n") > LONGEST_FILE:
        yield "the file"
    for node in ast.walk(ast.parse(source)):
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if function and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION:
            yield node.name


def test_what_is_too_long_is_found() -> None:
    assert not list(too_long("def f():\n" + 59 * "    f()\n" + 340 * "\n"))
    assert list(too_long("async def f():\n" + 60 * "    f()\n" + 340 * "\n")) == ["the file", "f"]


@pytest.mark.parametrize(
    "line",
    [
        *(
            "# TO" + "DO: more",
            "raise NotImplemented" + "Error",
            "pytest.sk" + "ip()",
            "@pytest.mark.sk" + "ipif(True)",
        ),
        *("pytest.importor" + 'skip("numpy")', "@pytest.mark.xf" + "ail", "raise unittest.Skip" + "Test"),
    ],
)
def test_what_is_unfinished_is_found(line: str) -> None:
    assert UNFINISHED.search(line)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_looked_at(package: str) -> None:
    assert [path for path in FILES if path.is_relative_to(ROOT / package)]


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
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    for path in paths:
        name = str(path.relative_to(ROOT))
        assert [each for each in impure(path.read_text()) if (name, each) not in ONLY_A_TYPE] == [], name


def impure(source: str) -> list[str]:
    """Modules that the core may not import, and calls and keywords by which it would wait or do something itself."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if not may_be_imported(alias.name)]
        elif isinstance(node, ast.ImportFrom):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [] if may_be_imported(node.module or "") or set(whole) <= PURE_LIBRARIES else [node.module or "."]
        elif isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            found.append("async")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ACTS:
            found.append(node.func.id)
    return found


def may_be_imported(module: str) -> bool:
    """Of the floors, import-linter says which may import which."""
    return module in PURE_LIBRARIES or module.partition(".")[0] in {"pamqp", *PACKAGES}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os", ["os"]),
        ("def f():\n    from time import monotonic", ["time"]),
        ("import urllib.request", ["urllib.request"]),
        ("from urllib.parse import quote\nfrom collections.abc import Sequence\nimport ha.core", []),
        ("from concurrent.futures import Future", ["concurrent.futures"]),
        ("async def f():\n    await f()", ["async", "async"]),
        ("with open('x') as f: ...", ["open"]),
        ("import_module = __import__('random')", ["__import__"]),
        ("from .core import NodeCore", ["core"]),
        ("log.print()", []),
    ],
)
def test_what_is_impure_is_found(source: str, found: list[str]) -> None:
    assert impure(source) == found


def test_an_acknowledgement_is_made_in_one_place_only() -> None:
    """Persist, then send: only the interpreter makes an Ack, so none leaves without the write it waits for."""
    makers = {
        str(path.relative_to(ROOT))
        for package in ("ha", "broker_plugin", "recovery")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "Ack"
    }
    assert makers == {"ha/interpreter.py"}


# -- the rooms

CONTRACTS: list[Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
FLOORS = re.findall(r"^\| `(\w+)/` \| [^|]+ \| [^|]+ \|$", ARCHITECTURE, re.MULTILINE)
ROOMS: dict[str, str] = dict(re.findall(r"^\| `([\w/]+)/` \| ([^|]+ · [^|]+) \|$", ARCHITECTURE, re.MULTILINE))
"""The rooms of each floor, from the top."""


def layers(container: str) -> list[list[str]]:
    """What the contract of a floor says, from the top: who stands side by side."""
    (contract,) = [each for each in CONTRACTS if each.get("containers") == [container.replace("/", ".")]]
    assert contract["type"] == "layers" and contract["exhaustive"] is True, "a room that it does not name breaks it"
    assert not contract.keys() & {"ignore_imports", "exhaustive_ignores"}
    return [re.split(r" [|:] ", layer) for layer in contract["layers"]]


def test_imports_run_downwards_through_the_floors_of_the_page() -> None:
    (contract,) = [each for each in CONTRACTS if "containers" not in each]
    assert contract["layers"] == ["python_tests.benchmarks | python_tests.suites", "python_tests.harness", *FLOORS]
    assert contract["type"] == "layers" and "ignore_imports" not in contract and FLOORS[-1] == "txobserver"


def test_each_floor_has_a_contract_and_each_contract_is_of_one() -> None:
    held = {each["containers"][0].replace(".", "/") for each in CONTRACTS if "containers" in each}
    inner = {"broker_plugin/amqp", "broker_plugin/cli", "broker_plugin/http"}
    assert held == ROOMS.keys() | inner and set(FLOORS) - {"txha"} <= ROOMS.keys()


@pytest.mark.parametrize("floor", ROOMS)
def test_the_rooms_of_the_page_are_those_of_the_contract(floor: str) -> None:
    """In this order, and those that the page names in one breath import nothing of each other."""
    ranks = {room: rank for rank, rooms in enumerate(layers(floor)) for room in rooms}
    shown = []
    for step in re.sub(r"\([^)]*\)", "", ROOMS[floor]).split("·"):
        names = re.findall(r"`([\w]+)(?:/|\.py)`", step)
        assert len({ranks[name] for name in names}) <= 1, names
        shown += [ranks[name] for name in names[:1]]
    assert len(shown) > 1 and shown == sorted(set(shown))


UNMIRRORED = {
    "ha/schedules": "named schedules, of whole clusters",
    "broker_plugin/amqp/scenarios": "what clients do, played to several brokers",
}


@pytest.mark.parametrize("floor", [*FLOORS, "python_tests"])
def test_folders_of_tests_have_the_names_of_what_they_test(floor: str) -> None:
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests" / floor).rglob("*.py")}
    others = {str(folder) for folder in folders if not (ROOT / folder / "__init__.py").exists()}
    assert folders and others == {name for name in UNMIRRORED if name.startswith(f"{floor}/")}


UNTESTED_APART = {
    "txobserver/ports": "it says what others implement, and those are tested",
    "broker_plugin/cli/pipeline": "its commands run on Spark: their tests are beside those of recovery/pipeline",
}


@pytest.mark.parametrize("floor", FLOORS)
def test_every_folder_has_its_folder_of_tests(floor: str) -> None:
    folders = {str(path.parent.relative_to(ROOT)) for path in (ROOT / floor).rglob("__init__.py")}
    without = {folder for folder in folders if not list((ROOT / "tests" / folder).rglob("test_*.py"))}
    assert folders and without == {name for name in UNTESTED_APART if name.startswith(f"{floor}/")}


# -- circles


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
PROMISE = re.compile(r"P([1-9]|1[0-3]): ")


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
    assert promises == {f"P{number}" for number in range(1, 14)}


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
