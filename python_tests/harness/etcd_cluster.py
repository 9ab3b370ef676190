"""A cluster of real nodes whose record is in etcd: founded by ``txha init``, each node a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until

_PLAN = (
    "import sys; from pathlib import Path; from broker_plugin.cli.cluster.plan import plan_cluster; "
    "plan_cluster(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]).write()"
)
READY_SECONDS = 90.0


class EtcdCluster(LocalCluster):
    """``address`` stands in the file of each node but those of ``others``. ``settings``: as ``--set`` takes them."""

    def __init__(
        self, directory: Path, address: str, nodes: int = 3, *settings: str, others: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, nodes)
        self.address = address
        self._settings = settings
        self._others = others or {}

    def start_killed(self) -> None:
        """Start those that do not run: there is no supervisor."""
        for name in self.names:
            if not self.processes.runs(name):
                self.start_node(name)

    @property
    def names(self) -> list[str]:
        """Of all nodes."""
        return [f"node-{number + 1}" for number in range(self.count)]

    def start(self) -> LocalCluster:
        """Found it, start the nodes, and wait until all are ready. Raises CalledProcessError, TimeoutError."""
        given = [str(self.directory), str(self.count), str(self.base_port), *self._settings]
        subprocess.run([sys.executable, "-c", _PLAN, *given], check=True)
        for name in self.names:
            config = self.directory / name / "node.toml"
            lines = config.read_text().splitlines()
            at = next(number for number, line in enumerate(lines) if line.startswith("coordination ="))
            lines[at] = f'coordination = "{self._others.get(name, self.address)}"'
            config.write_text("\n".join(lines) + "\n")
        command = [sys.executable, "-m", "broker_plugin.cli.main", "init", "--config"]
        subprocess.run([*command, str(self.directory / "node-1" / "node.toml")], check=True, stdout=subprocess.DEVNULL)
        try:
            for name in self.names:
                self.start_node(name)
            wait_until(self.all_ready, READY_SECONDS, "all nodes ready")
        except BaseException:
            self.stop()
            raise
        return self
