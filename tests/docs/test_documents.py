"""What the documents say can be checked: links lead somewhere, named tests exist, keys and defaults are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr
from typer.main import get_command

from broker_plugin.cli.commands import app
from broker_plugin.node.config import NodeConfig
from python_tests.harness.stress.faults import FAULTS
from recovery.pipeline.audit.names import BREACHES
from recovery.store.crash_points import CRASH_POINTS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OPERATIONS = ROOT / "docs" / "operations.md"
STRESS = ROOT / "docs" / "stress.md"
RECOVERY = ROOT / "docs" / "recovery.md"
AUDIT = ROOT / "docs" / "audit.md"


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _defined_tests() -> set[str]:
    found = set()
    for folder in ("tests", "python_tests"):
        for path in (ROOT / folder).rglob("test_*.py"):
            found.update(re.findall(r"def (test_\w+)", path.read_text()))
            found.add(path.stem)
    return found


class Worded(str):
    """A default in words."""


def _defaults(model: type[BaseModel], prefix: str = "") -> dict[str, object]:
    """Every key of the configuration with its default; ... where it is required."""
    found: dict[str, object] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found.update(_defaults(kind, f"{prefix}{name}."))
        else:
            found[prefix + name] = ... if field.is_required() else field.default
            if field.default_factory is not None:  # it depends on other keys, and says so itself
                found[prefix + name] = Worded(str(field.description))
    return found


def _section(heading: str, page: Path = OPERATIONS) -> str:
    """What stands below a heading."""
    return page.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def _rows(heading: str, page: Path = OPERATIONS) -> dict[str, str]:
    """First and second cell of the table below a heading."""
    return dict(re.findall(r"^\| `([\w.-]+)` \| ([^|]*?) \|", _section(heading, page), re.MULTILINE))


def _shown(value: object) -> str:
    if isinstance(value, Worded):
        return str(value)
    if value is ...:
        return "(required)"
    if isinstance(value, dict):
        shown = {key: each.get_secret_value() if isinstance(each, SecretStr) else each for key, each in value.items()}
        return "`{" + ", ".join(f'{key} = "{each}"' for key, each in shown.items()) + "}`"
    return f"`{value}`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        assert there.exists(), f"{target} leads nowhere"
        assert not anchor or anchor in _anchors(there), f"{target} has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_named_exists(page: Path) -> None:
    tests = _defined_tests()
    for name in re.findall(r"`([^`\n]+)`", page.read_text()):
        if re.fullmatch(r"test_\w+", name):
            assert name in tests, f"there is no {name}"
        elif re.fullmatch(r"(txobserver|ha|recovery|broker_plugin|tests|python_tests)/[\w/.]*", name):
            assert (ROOT / name).exists(), f"there is no {name}"


def test_every_key_and_its_default() -> None:
    wanted = {key: _shown(value) for key, value in _defaults(NodeConfig).items()}
    assert _rows("Configuration") == wanted


def test_every_crash_point() -> None:
    assert _rows("Crash points") == CRASH_POINTS


def test_every_fault() -> None:
    assert _rows("A run", STRESS) == {kind: fault.what for kind, fault in FAULTS.items()}


@pytest.mark.parametrize(("name", "heading"), [("recover", "The commands"), ("rebuild", "A new store from events")])
def test_every_option_of_a_recovery(name: str, heading: str) -> None:
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    options = {word for option in command.params for word in (*option.opts, *option.secondary_opts) if word[:2] == "--"}
    table = re.findall(r"^\| (`--.*?) \|", _section(heading, RECOVERY), re.MULTILINE)
    assert set(re.findall(r"`(--[a-z-]+)", " ".join(table))) == options - {"--help"}


def test_every_option_of_the_stress_suite_and_its_default() -> None:
    text = _section("Stress-testing a cluster")
    command = get_command(app).commands["stress"]  # type: ignore[attr-defined]
    options = {name: option.default for option in command.params for name in option.opts if name != "--help"}
    assert set(re.findall(r"`(--[a-z-]+)", text)) | {"--judge"} == set(options)
    shown = dict(re.findall(r"`(--[a-z-]+) ([\d.]+|auto)`", text))
    assert {name: float(value) for name, value in shown.items() if value != "auto"} == {
        name: default for name, default in options.items() if isinstance(default, int | float) and default is not False
    } | {"--seed": 7}


def test_every_breach_that_the_audit_can_find() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| (P\d) \| (.*) \|$", _section("What it finds", AUDIT), re.MULTILINE)
    assert rows == [(name, breach.promise, breach.meaning) for name, breach in BREACHES.items()]


def test_every_option_of_the_audit() -> None:
    command = get_command(app).commands["audit"]  # type: ignore[attr-defined]
    options = {name for option in command.params for name in option.opts if name.startswith("--")}
    assert set(re.findall(r"^\| `(--\w+)` \|", AUDIT.read_text(), re.MULTILINE)) == options
