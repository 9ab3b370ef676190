"""Writes docs/promise_tests.md from tests/promises.toml and the tests: python docs/promise_tests.py [--check].

With ``--check`` nothing is written, and the exit status is 1 if the page differs. ``tests/docs/test_promise_tests.py``
does the same. Tests are parsed, and none is imported.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = Path(__file__).with_name("promise_tests.md")
TABLE = ROOT / "tests" / "promises.toml"
FOLDERS = ("tests", "python_tests")
WIDTH = 100
PROMISES = tuple(f"P{number}" for number in range(1, 13))
OWN_WORDS = re.compile(r"(P\d+(?:, P\d+)*)(?=[:, ])")
"""How the docstring of a test begins that names its promises itself."""

HEAD = """# Tests of each promise

This page lists, for each promise of [promises.md](promises.md), the tests that try to break it.
`python docs/promise_tests.py` writes it from `tests/promises.toml` and from the docstrings of tests
that begin with a promise. A test holds that the page is up to date, that each test exists, and that
each promise has one.

"Rigs" names what else looks at a promise all the time: the simulator, the models, the demo and the
stress suite ([rigs](promises.md#how-the-tests-look-for-broken-promises)).
"""


class Tests:
    """Where each test is defined, and which promises tests name themselves."""

    def __init__(self) -> None:
        self.files: dict[str, list[str]] = defaultdict(list)
        """The files of each test, by its name."""
        self.named: dict[str, list[str]] = defaultdict(list)
        """The tests whose docstrings begin with a promise, by promise."""
        for folder in FOLDERS:
            for path in sorted((ROOT / folder).rglob("test_*.py")):
                self._read(path)

    def _read(self, path: Path) -> None:
        where = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                if where not in self.files[node.name]:
                    self.files[node.name].append(where)
                found = OWN_WORDS.match(ast.get_docstring(node) or "")
                for promise in found[1].split(", ") if found else ():
                    self.named[promise].append(node.name)


def table() -> dict[str, dict[str, str | list[str]]]:
    """tests/promises.toml: by section, what is looked at, and by which tests."""
    return tomllib.loads(TABLE.read_text())


def listed(section: dict[str, str | list[str]]) -> set[str]:
    """The tests, files and commands of a section."""
    return {name for names in section.values() if isinstance(names, list) for name in names}


def page() -> str:
    """The whole page."""
    tests = Tests()
    return "\n".join([HEAD, *(line for name, section in table().items() for line in lines(name, section, tests))])


def lines(name: str, section: dict[str, str | list[str]], tests: Tests) -> Iterator[str]:
    """A section of the page: a table with a row for each test."""
    yield from (f"## {name}", "")
    if "rigs" in section:
        yield from (*textwrap.wrap(f"Rigs: {section['rigs']}.", WIDTH), "")
    yield from ("| what is looked at | test | where |", "|---|---|---|")
    groups = {what: names for what, names in section.items() if isinstance(names, list)}
    own = sorted(set(tests.named.get(name.split()[0], ())) - listed(section))
    for what, names in (*groups.items(), ("more, as their docstrings say", own)):
        for first, each in zip([what, *[""] * len(names)], names, strict=False):
            yield f"| {first} | `{each}` | {files_of(each, tests)} |"
    yield ""


def files_of(name: str, tests: Tests) -> str:
    """The files in which a test is defined; nothing for a file, a folder or a command."""
    return ", ".join(f"`{path}`" for path in tests.files.get(name, ()))


def main(check: bool) -> int:
    """Write the page, or compare it."""
    text = page()
    if not check:
        PAGE.write_text(text)
    elif PAGE.read_text() != text:
        print("docs/promise_tests.md differs from the tests; run: python docs/promise_tests.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
