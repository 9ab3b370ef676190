"""The commands of ``docs/upgrading.md``, as they stand there, carried out on a cluster of the release."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from python_tests.suites.upgrade.cluster import MixedCluster
from tests.support.releases import ROOT, Release, installed, present

SECTION = "## From 0.1.0: one node after the other"
COMMAND = f"{sys.executable} -m broker_plugin.cli.main"


def commands() -> list[str]:
    """Each line of the shell in that section."""
    text = (ROOT / "docs" / "upgrading.md").read_text().partition(SECTION)[2].partition("\n## ")[0]
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


class Host:
    """What carries them out: a cluster's nodes for the services of systemd, this version for what pip installs."""

    def __init__(self, cluster: MixedCluster) -> None:
        self._cluster = cluster
        self._installed: Release | None = None

    def carry_out(self, line: str) -> str:
        """What the line prints. Raises AssertionError where it fails."""
        words = line.split()
        if words[0] == "systemctl":
            node = words[2].removeprefix("txha@")
            if words[1] == "stop":
                self._cluster.stop_node(node)
            else:
                assert words[1] == "start" and self._installed is not None
                self._cluster.start_with(node, self._installed)
            return ""
        if words[0] == "/opt/txha/bin/pip":  # tests/packaging has installations of every kind
            assert words[1:] == ["install", "."]
            self._installed = present()
            return ""
        here = str(self._cluster.directory)
        line = line.replace("/opt/txha/bin/txha", COMMAND).replace("/tmp/txha", here).replace("/etc/txha/", f"{here}/")
        done = subprocess.run(
            ["bash", "-c", re.sub(r"(node-\d)\.toml", r"\1/node.toml", line)],
            env={**os.environ, **present().environment()},
            cwd=here,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout


@pytest.mark.timeout(600)
@pytest.mark.slice
def test_each_command_does_what_is_said(tmp_path: Path) -> None:
    release = installed()
    with MixedCluster(tmp_path / "cluster", release) as cluster:
        cluster.wait_all_ready()
        if cluster.primary() == "node-2":  # the steps are those of a backup
            cluster.hand_over("node-1")
            cluster.wait_all_ready()
        host = Host(cluster)
        said = {line: host.carry_out(line) for line in commands()}
        assert cluster.primary() == "node-2", "it was promoted"
        versions = f"node-1 {release.version}, node-2 {present().version}, node-3 {release.version}"
        assert f"versions: {versions}" in said["/opt/txha/bin/txha status --dir /tmp/txha"]
        told = json.loads(said["/opt/txha/bin/txha status --config /etc/txha/node-2.toml --json"])
        assert [each["version"] for each in told] == [present().version]


def test_the_steps_are_found_in_the_page() -> None:
    found = commands()
    assert len(found) >= 8 and [line.split()[0] for line in found].count("systemctl") == 2
