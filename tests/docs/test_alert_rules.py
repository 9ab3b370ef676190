"""The example alert rules, as Prometheus itself reads them: each fires in a case, and is silent in another."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

METRICS = Path(__file__).parents[2] / "docs" / "metrics"
RULES = yaml.safe_load((METRICS / "alerts.yml").read_text())
ALERTS = [rule["alert"] for rule in RULES["groups"][0]["rules"]]


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    found = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False, timeout=120)
    found.stdout += found.stderr
    return found


def test_prometheus_takes_the_rules_and_they_do_what_the_cases_say() -> None:
    for words in (("check", "rules", str(METRICS / "alerts.yml")), ("test", "rules", str(METRICS / "alerts_test.yml"))):
        found = promtool(*words)
        assert found.returncode == 0 and "SUCCESS" in found.stdout, found.stdout


@pytest.mark.parametrize("expression", ["vector(0) > 1", "vector(1)"], ids=["none fires", "all fire"])
def test_the_cases_tell_of_each_rule_that_is_wrong(expression: str, tmp_path: Path) -> None:
    rules: list[dict[str, Any]] = [{"alert": name, "expr": expression} for name in ALERTS]
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump({"groups": [{"name": "txha", "rules": rules}]}))
    shutil.copy(METRICS / "alerts_test.yml", tmp_path)
    found = promtool("test", "rules", str(tmp_path / "alerts_test.yml"))
    assert found.returncode != 0
    assert [name for name in ALERTS if f"alertname: {name}," not in found.stdout] == []
