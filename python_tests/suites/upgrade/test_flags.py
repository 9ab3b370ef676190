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

        cluster.stop_node(last)
        cluster.start_with(last, release)
        wait_until(lambda: not cluster.processes.runs(last), WAIT_SECONDS, "the end of the older node")
        said = (cluster.directory / last / "node.log").read_text().splitlines()[-1]
        assert cluster.processes.exit_status(last) == 2 and "no flag 'tomorrow' is known here" in said, said

        for part in ("log", "state", "identity.json"):
            found = cluster.directory / last / part
            shutil.rmtree(found) if found.is_dir() else found.unlink(missing_ok=True)
        cluster.start_with(last, release)
        why = f"upgrade node {last}: it does not know what is raised by flags for good, tomorrow"
        wait_until(
            lambda: why in (cluster.directory / last / "node.log").read_text(), WAIT_SECONDS, "a sentence in its log"
        )
        assert status(cluster, last)["position"] == "0.0" and status(cluster, last)["state"] == "joining"

        of_tomorrow(cluster, last)
        assert status(cluster, last)["queues"] == status(cluster, newer[0])["queues"]
