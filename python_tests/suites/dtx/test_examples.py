"""The examples in docs/dtx_clients.md, each as it stands but for the ports, one after the other."""

from __future__ import annotations

from pathlib import Path

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.examples import examples_of, run_example

PAGE = Path(__file__).parents[3] / "docs" / "dtx_clients.md"


def test_every_example_runs(cluster: LocalCluster) -> None:
    examples = examples_of(PAGE)
    assert len(examples) >= 6
    said = [run_example(text, {"(5701, 5702, 5703)": repr(tuple(cluster.ports))}) for text in examples]
    assert said[-1] == "COMMITTED\n" and "COMMITTED" in said[-2]
