"""The example dashboard and alert rules name what is exported, and each alert has its part on the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_plugin.http.metrics import ALL, OF_QUEUES

DOCS = Path(__file__).parents[2] / "docs"
DASHBOARD = json.loads((DOCS / "metrics" / "dashboard.json").read_text())
RULES = yaml.safe_load((DOCS / "metrics" / "alerts.yml").read_text())["groups"][0]["rules"]
PARTS = re.findall(r"^## (\w+)\n\n(.+?)(?=\n## |\Z)", (DOCS / "alerts.md").read_text(), re.MULTILINE | re.DOTALL)
EXPORTED = {each.exported: each.kind for each in (*ALL, *OF_QUEUES)}
PANELS = [each for each in DASHBOARD["panels"] if each["type"] != "row"]
OF_THE_COLLECTOR = {"up"}


def names_in(expression: str) -> set[str]:
    """The metrics in an expression of PromQL: no function, no label, no keyword."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]', "", expression)
    words = set(re.findall(r"\b[a-z_][a-z0-9_]*\b(?!\s*\()", bare))
    return words - {"and", "or", "by", "vector"}


def expressions() -> list[str]:
    return [target["expr"] for panel in PANELS for target in panel["targets"]] + [rule["expr"] for rule in RULES]


@pytest.mark.parametrize("expression", expressions())
def test_every_metric_that_is_named_is_exported(expression: str) -> None:
    names = names_in(expression)
    assert names and names <= EXPORTED.keys() | OF_THE_COLLECTOR


@pytest.mark.parametrize("expression", expressions())
def test_rates_are_of_counters_and_counters_are_in_rates(expression: str) -> None:
    """The commit point is a gauge, whose rate is that of the events that count."""
    rated = set(re.findall(r"\b(?:rate|increase)\((\w+)", expression))
    counters = {name for name in names_in(expression) if EXPORTED.get(name) == "counter"}
    assert rated - {"txha_commit_point"} == counters


def test_names_are_found_in_expressions() -> None:
    assert names_in('sum(rate(a_total{job="b"}[1m])) > max(c and d == 1) or vector(0)') == {"a_total", "c", "d"}


def test_each_alert_has_its_part_and_each_part_an_alert() -> None:
    alerts = [rule["alert"] for rule in RULES]
    assert alerts == [name for name, _ in PARTS] and len(set(alerts)) == len(alerts)
    assert all(len(text.split()) > 15 for _, text in PARTS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_a_rule_has_what_prometheus_needs(rule: dict[str, Any]) -> None:
    assert rule.keys() <= {"alert", "expr", "for"} and re.fullmatch(r"\d+[sm]", rule.get("for", "1m"))
    assert rule["expr"].count("(") == rule["expr"].count(")")


def test_panels_do_not_lie_upon_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken and max(x for x, _ in cells) < 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
