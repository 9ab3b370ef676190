"""The examples in docs/dtx_clients.md, each as it stands but for the ports, one after the other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from python_tests.processes import LocalCluster

PAGE = Path(__file__).parents[2] / "docs" / "dtx_clients.md"


def test_every_example_runs(cluster: LocalCluster) -> None:
    examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(examples) >= 6
    said = []
    for text in examples:
        assert "(5701, 5702, 5703)" in text
        code = text.replace("(5701, 5702, 5703)", repr(tuple(cluster.ports)))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, f"{text}\n{done.stderr}"
        said.append(done.stdout)
    assert said[-1] == "COMMITTED\n" and "COMMITTED" in said[-2]
