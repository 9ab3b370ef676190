"""What a release does not know is refused before it is durable there: by a flag, and by the node itself."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path
from typing import Any

import pytest

from python_tests.harness.waiting import wait_until
from python_tests.suites.upgrade import tomorrow
from python_tests.suites.upgrade.cluster import MixedCluster
from recovery.reader.node_admin import ask
from tests.support.releases import installed, present

PROGRAM = Path(tomorrow.__file__)
WAIT_SECONDS = 120.0


def raised(cluster: MixedCluster, node: str) -> Any:
    asked = {"operation": "flag", "arguments": {"name": [tomorrow.FLAG]}, "succeed_num": "all", "timeout": 60.0}
    return ask(cluster.directory / node, "calls.call", {**asked, "id": secrets.token_hex(16)}, 90.0)


def of_tomorrow(cluster: MixedCluster, name: str) -> None:
    cluster.stop_node(name)
    cluster.start_with(name, present(), PROGRAM)
    cluster.wait_all_ready()


def status(cluster: MixedCluster, name: str) -> dict[str, Any]:
    return next(each for each in cluster.status() if each["name"] == name)


def said_by(cluster: MixedCluster, name: str, sentence: str) -> bool:
    return sentence in (cluster.directory / name / "node.log").read_text()


def ended(cluster: MixedCluster, name: str) -> bool:
    """As a node does whose log holds what it does not know: with status 2, and a sentence."""
    found = cluster.processes.exit_status(name) == 2
    return found and said_by(cluster, name, "no flag 'tomorrow' is known here")


@pytest.mark.timeout(900)
@pytest.mark.slice
def test_a_flag_waits_for_the_last_node_and_keeps_older_ones_out(tmp_path: Path) -> None:
    release = installed()
    with MixedCluster(tmp_path / "cluster", release) as cluster:
        cluster.wait_all_ready()
        last = cluster.primary() or ""
        newer = sorted(cluster.runs.keys() - {last})
        for name in newer:
            of_tomorrow(cluster, name)
        refused = raised(cluster, newer[0])
        assert refused["result"] not in ("done", "lagging") and "flag" in refused["reason"], refused
        cluster.txha("promote", newer[0], release=present())
        cluster.wait_all_ready()
        refused = raised(cluster, newer[0])
        assert refused["reason"] == f"these nodes have not announced 'tomorrow', or cannot be reached: {last}"
        of_tomorrow(cluster, last)
        assert raised(cluster, newer[0])["result"] == "done"

        cluster.kill(last)
        cluster.start_with(last, release)
        why = f"upgrade node {last}: it does not know what is raised by flags for good, tomorrow"
        wait_until(
            lambda: said_by(cluster, last, why) or ended(cluster, last), WAIT_SECONDS, "the end of an older node"
        )
        if cluster.processes.runs(last):  # a checkpoint held all of its log: it starts, and the primary refuses it
            assert status(cluster, last)["state"] == "joining"
            cluster.stop_node(last)

        (cluster.directory / last / "node.log").write_text("")
        for part in ("log", "state", "identity.json"):
            found = cluster.directory / last / part
            shutil.rmtree(found) if found.is_dir() else found.unlink(missing_ok=True)
        cluster.start_with(last, release)
        wait_until(lambda: said_by(cluster, last, why), WAIT_SECONDS, "a sentence in its log")
        assert status(cluster, last)["position"] == "0.0" and status(cluster, last)["state"] == "joining"

        of_tomorrow(cluster, last)
        assert status(cluster, last)["queues"] == status(cluster, newer[0])["queues"]
