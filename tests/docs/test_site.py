"""The documentation as a site: every page is in its navigation, under what the reader wants to do."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from broker_plugin.node.config import parse_config

ROOT = Path(__file__).parents[2]
INSTALL = ROOT / "docs" / "install.md"


class Reader(yaml.SafeLoader):
    """As YAML is read safely, with a function's name as a text."""


Reader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, name, node: name)
SITE: dict[str, Any] = yaml.load((ROOT / "mkdocs.yml").read_text(), Reader)


def pages(nav: object) -> list[str]:
    """The files below an entry of the navigation, in order."""
    if isinstance(nav, str):
        return [nav]
    entries = nav.values() if isinstance(nav, dict) else nav
    assert isinstance(entries, list) or isinstance(nav, dict)
    return [page for entry in entries for page in pages(entry)]  # type: ignore[union-attr]


def test_every_page_is_in_the_navigation_once() -> None:
    found = pages(SITE["nav"])
    assert sorted(found) == sorted(str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md"))


def test_the_navigation_is_by_what_a_reader_wants() -> None:
    assert [name for entry in SITE["nav"] for name in entry] == ["Try", "Use", "Operate", "Understand", "Decisions"]
    (decisions,) = [entry["Decisions"] for entry in SITE["nav"] if "Decisions" in entry]
    assert pages(decisions) == [f"decisions/{p.name}" for p in sorted((ROOT / "docs" / "decisions").glob("*.md"))]


def test_a_link_that_leads_nowhere_is_an_error() -> None:
    assert set(SITE["validation"]["links"].values()) | set(SITE["validation"]["nav"].values()) == {"warn"}
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text()


def test_every_extra_is_told() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"^\| `(\w+)` \|", INSTALL.read_text(), re.MULTILINE)) == set(extras) - {"dev"}


def test_the_configuration_of_a_service_is_one() -> None:
    text = max(re.findall(r"```toml\n(.*?)```", INSTALL.read_text(), re.DOTALL), key=len)
    config = parse_config(text, INSTALL, environment={"TXHA_AMQP__USERS_FILE": "/run/credentials/users"})
    assert config.min_ready == 2 and str(config.dir).startswith("/var/lib/txha/")
    assert config.amqp.host == config.peer.host == "127.0.0.1"


def test_a_hash_is_made_as_the_page_says() -> None:
    (pipeline,) = re.findall(r"^head .*\| txha (hash-password)$", INSTALL.read_text(), re.MULTILINE)
    made = subprocess.run(
        [sys.executable, "-m", "broker_plugin.cli.main", pipeline],
        input="secret\n",
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.fullmatch(r"\$scrypt\$ln=14,r=8,p=1\$[A-Za-z0-9+/]{22}\$[A-Za-z0-9+/]{43}\n", made)
