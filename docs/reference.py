"""Writes docs/reference.md from the docstrings of what ``txha`` exports: python docs/reference.py [--check].

With ``--check`` nothing is written, and the exit status is 1 if the page differs. ``tests/docs/test_reference.py`` does
the same. PySpark must be installed, since some names import it.
"""

from __future__ import annotations

import ast
import enum
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

PAGE = Path(__file__).with_name("reference.md")
MODULES = ("txha", "txha.resources", "txha.spark", "txha.events", "txha.spi")
HEAD = """# Reference

This page lists all that programs may import. `python docs/reference.py` writes it from the docstrings, and a test holds
that it is up to date. What is not here is private: it may change or go at any time. [errors.md](errors.md) says what
each exception means for the transaction.
"""
WIDTH = 100
WRAPPED = (classmethod, staticmethod)
SHORT = re.compile(r"[\w.'+()-]*")
"""A default that is shown as it is."""


def page() -> str:
    """The whole page."""
    text = "\n".join([HEAD, *(line for name in MODULES for line in module_lines(import_module(name)))])
    return "\n".join(wrapped(text.split("\n")))


def wrapped(lines: list[str]) -> Iterator[str]:
    """The page with its paragraphs and list items at the width of the documents; code stays as it is."""
    fenced, gathered = False, list[str]()
    for line in lines:
        fence = line.startswith("```")
        ends = fenced or fence or not line or line.startswith(("#", "- ")) or (line[:4].isspace() and not gathered)
        if ends and gathered:
            yield from filled(gathered)
            gathered = []
        if (line.startswith("- ") and not fenced) or not ends:
            gathered.append(line)
        else:
            yield line
        fenced ^= fence
    yield from filled(gathered) if gathered else ()


def filled(lines: list[str]) -> list[str]:
    """A paragraph or a list item; what stands in backquotes is never broken."""
    text = re.sub(r"(`+)[^`]+\1", lambda span: span[0].replace(" ", "\0"), " ".join(" ".join(lines).split()))
    bullet = "- " if text.startswith("- ") else ""
    filler = textwrap.TextWrapper(WIDTH, bullet, " " * len(bullet), break_long_words=False, break_on_hyphens=False)
    found = filler.wrap(text.removeprefix(bullet))
    return [line.replace("\0", " ") for line in found]


def module_lines(module: ModuleType) -> Iterator[str]:
    """A section: what the module is for, and each name in the order of ``__all__``."""
    yield from (f"## `{module.__name__}`", "", text_of(module.__doc__), "")
    for name in module.__all__:
        thing = getattr(module, name)
        if isinstance(thing, ModuleType):
            continue  # it has a section of its own
        yield from (f"### `{module.__name__}.{name}`", "")
        yield from described(name, thing, module)


def described(name: str, thing: Any, module: ModuleType) -> Iterator[str]:
    """What one name stands for."""
    if not isinstance(thing, type | FunctionType):
        yield from alias_lines(name, module)
    elif isinstance(thing, FunctionType):
        yield from (*code(f"{name}{signature(thing)}"), text_of(thing.__doc__), "")
    elif issubclass(thing, BaseException):
        bases = ", ".join(base.__name__ for base in thing.__bases__)
        yield from (*code(f"class {name}({bases})"), text_of(thing.__doc__), "")
    elif issubclass(thing, enum.Enum):
        yield from (*code(f"class {name}", *(f"    {value}" for value in values_of(thing))), text_of(thing.__doc__), "")
        yield from member_lines(thing)
    else:
        head = name if is_protocol(thing) else f"{name}{signature(thing)}"
        yield from (*code(f"class {head}"), text_of(thing.__doc__), "")
        yield from member_lines(thing)


def member_lines(cls: type) -> Iterator[str]:
    """A list of the public methods and properties, also those of private bases."""
    lines = [f"- {line}" for name, member in members(cls) if (line := member_line(name, member))]
    yield from (*lines, "") if lines else ()


def member_line(name: str, member: Any) -> str:
    """Signature and docstring of one method or property; empty for what has no docstring."""
    function = member.fget if isinstance(member, property) else inspect.unwrap(getattr(member, "__func__", member))
    if not callable(function) or not function.__doc__:
        return ""
    how = signature(function) if not isinstance(member, property) else result_of(function)
    before = "await " if inspect.iscoroutinefunction(function) else ""
    if function is not member and not isinstance(member, (property, *WRAPPED)):  # a context manager
        before, how = "with ", re.sub(r"-> Iterator\[(.*)\]$", r"as \1", how)
    return f"`{before}{name}{how}`: " + text_of(function.__doc__).replace("\n\n", "\n").replace("\n", "\n  ")


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public ones in the order of their definition, those of bases of ours behind."""
    seen: set[str] = set()
    for each in cls.__mro__:
        if each.__module__.startswith(("recovery", "txobserver")):
            for name, member in vars(each).items():
                of_ours = isinstance(member, (FunctionType, property, *WRAPPED))
                if of_ours and not name.startswith("_") and name not in seen:
                    seen.add(name)
                    yield name, member


def values_of(kind: type[enum.Enum]) -> Iterator[str]:
    """Each value, with the docstring below it as a comment."""
    [made] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(made, ast.ClassDef), kind
    for each, behind in zip(made.body, [*made.body[1:], None], strict=True):
        if isinstance(each, ast.Assign):
            told = ast.get_docstring(ast.Module([behind], [])) if behind is not None else None
            yield ast.unparse(each) + (f"  # {' '.join(told.split())}" if told else "")


def alias_lines(name: str, module: ModuleType) -> Iterator[str]:
    """Of a type alias: how it is written where it is made, and the docstring below that."""
    where, statements = assignment(name, module)
    written = ast.unparse(statements[0].value)  # type: ignore[attr-defined]
    yield from code(f"{name} = {written}")
    if len(statements) > 1 and isinstance(statements[1], ast.Expr) and isinstance(statements[1].value, ast.Constant):
        yield from (text_of(str(statements[1].value.value)), "")
    assert where, "named for who reads a traceback"


def assignment(name: str, module: ModuleType) -> tuple[str, list[ast.stmt]]:
    """The module that makes an alias, and the statements from there on. Raises LookupError."""
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            body = ast.parse(inspect.getsource(import_module(node.module))).body
            for at, each in enumerate(body):
                if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == name:
                    return node.module, body[at : at + 2]
    raise LookupError(f"{name} is not assigned in the module from which {module.__name__} imports it")


def signature(function: Any) -> str:
    """Parameters and result, without ``self``; defaults that have no short text as ``…``."""
    found = inspect.signature(function)
    parameters = [each for name, each in found.parameters.items() if name not in ("self", "cls")]
    result = "" if isinstance(function, type) else result_of(function)
    shown = [short(each) for each in parameters]
    keyword_only = [at for at, each in enumerate(parameters) if each.kind is each.KEYWORD_ONLY]
    if keyword_only and not any(each.kind is each.VAR_POSITIONAL for each in parameters):
        shown.insert(keyword_only[0], "*")
    return f"({', '.join(shown)}){result}"


def short(parameter: inspect.Parameter) -> str:
    """One parameter, with its type as it is written."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    kind = "" if parameter.annotation is parameter.empty else f": {written(parameter.annotation)}"
    if parameter.default is parameter.empty:
        return f"{stars}{parameter.name}{kind}"
    default = repr(parameter.default)
    return f"{parameter.name}{kind} = {default if SHORT.fullmatch(default) else '…'}"


def result_of(function: Any) -> str:
    """`` -> type``; empty where none is written, or it is None."""
    result = inspect.signature(function).return_annotation
    return "" if result in (inspect.Signature.empty, "None", None) else f" -> {written(result)}"


def written(annotation: Any) -> str:
    """A type as in the source."""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('([^']*)'\)", r"\1", text)
    text = re.sub(r"Annotated\[(\w+), msgspec\.Meta\(.*?\)\]", r"\1", text)
    return re.sub(r"\b(?:recovery|txobserver|typing|collections)\.(?:\w+\.)*", "", text)


def is_protocol(cls: type) -> bool:
    """Whether it is an interface, which is not made by calling it."""
    return bool(getattr(cls, "_is_protocol", False))


def text_of(docstring: str | None) -> str:
    """A docstring as Markdown: an indented block behind a blank line is code already."""
    return inspect.cleandoc(docstring or "")


def code(*lines: str) -> Iterable[str]:
    """A block of Python."""
    return ("```python", *lines, "```", "")


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit status."""
    wanted = page()
    if "--check" not in arguments:
        PAGE.write_text(wanted)
    elif not PAGE.exists() or PAGE.read_text() != wanted:
        print("docs/reference.md differs from the docstrings; run: python docs/reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
