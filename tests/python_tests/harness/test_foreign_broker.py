"""The clients' suite against a foreign broker: TXHA_AMQP_URL counts as a whole, and no node is killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from python_tests.harness.cluster import LocalCluster

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A broker that knows another user beside guest, whose password does not fit into a url as it is."""
    user = {"TXHA_AMQP__USERS__ALICE": "a/b@c"}
    with LocalCluster(tmp_path_factory.mktemp("foreign") / "cluster", 1, environment=user) as cluster:
        yield cluster.ports[0]


def suite(url: str, *tests: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]
    command += [f"python_tests/suites/tx/{test}" for test in tests]
    environment = {**os.environ, "TXHA_AMQP_URL": url}
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


def test_user_and_password_are_used_and_no_node_is_killed(port: int) -> None:
    run = suite(
        f"amqp://alice:a%2Fb%40c@127.0.0.1:{port}/%2F",
        "test_tx_pika.py::test_a_rollback_leaves_nothing",
        "test_tx_aio.py::test_commit_and_rollback",
        "test_tx_kombu.py",
        "test_failover.py",
        "test_min_ready.py",
    )
    assert run.returncode == 0, run.stdout
    assert re.search(r"^3 passed, \d+ skipped, \d+ deselected in", run.stdout, re.MULTILINE), run.stdout
    reasons = re.findall(r"^SKIPPED .*", run.stdout, re.MULTILINE)
    assert reasons and all("a broker that this suite did not start" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("user", "vhost", "answer"), [("alice:wrong", "%2F", "ACCESS_REFUSED"), ("alice:a%2Fb%40c", "other", "vhost other")]
)
def test_a_wrong_password_and_another_vhost_are_refused(port: int, user: str, vhost: str, answer: str) -> None:
    run = suite(f"amqp://{user}@127.0.0.1:{port}/{vhost}", "test_tx_pika.py::test_an_empty_transaction_commits")
    assert run.returncode == 1 and answer in run.stdout
