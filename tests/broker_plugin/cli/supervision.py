"""The supervisor as a process of its own, over nodes that are not real (``fake_node``)."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import broker_plugin.cli.cluster.cluster
from broker_plugin.cli.cluster.cluster import run_cluster
from python_tests.harness.cluster import free_base_port

MODULE = "tests.broker_plugin.cli.supervision"
PATIENCE_SECONDS = 20.0


def until(condition: Callable[[], Any], what: str) -> Any:
    """What ``condition`` returns as soon as that is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


def runs(pid: int) -> bool:
    """Whether a process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Supervised:
    """``txha cluster`` with two fake nodes. A context manager: it ends what it has started."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.base_port = free_base_port(2)
        self._options = options
        self.process: subprocess.Popen[str]

    def __enter__(self) -> Supervised:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def start(self) -> None:
        """Start it; nothing is waited for."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", MODULE, str(self.directory), str(self.base_port), *self._options],
            stdout=subprocess.PIPE,
            stderr=self.errors.open("ab"),
            text=True,
        )

    @property
    def errors(self) -> Path:
        """The file that its stderr goes to."""
        return self.directory.with_name(self.directory.name + ".err")

    def said(self, text: str) -> None:
        """Wait until this stands on its stderr."""
        until(lambda: text in self.errors.read_text(), f"it did not say {text!r}")

    def ready(self) -> None:
        """Wait for ``cluster ready``."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "cluster ready\n", self.errors.read_text()

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The nodes of cluster.json by name."""
        return {node["name"]: node for node in json.loads((self.directory / "cluster.json").read_text())["nodes"]}

    def pids(self) -> list[int]:
        """Of the nodes that run."""
        return [node["pid"] for node in self.nodes().values() if node["pid"] is not None]

    def lives(self, name: str) -> int:
        """How often a node was started."""
        path = self.directory / name / "lives"
        return len(path.read_text().splitlines()) if path.exists() else 0


if __name__ == "__main__":
    node = (sys.executable, "-m", "tests.broker_plugin.cli.fake_node")
    if "--impatient" in sys.argv:
        broker_plugin.cli.cluster.cluster.GRACE_SECONDS = 0.3
    settings = [word.removeprefix("--set=") for word in sys.argv[3:] if word.startswith("--set=")]
    raise SystemExit(run_cluster(Path(sys.argv[1]), 2, int(sys.argv[2]), "--restart" in sys.argv, settings, node))
