"""The coordination file is lost, and an operator does what docs/operations.md tells."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
from pathlib import Path

from python_tests.harness.stress.fault import NodeFault, NotAsTold
from python_tests.harness.stress.members import SQLITE
from python_tests.harness.waiting import wait_until

NOTICE_SECONDS = 30.0
WAYS = [(True, True), (True, False), (False, True), (False, False)]
"""Whether nodes run meanwhile, and whether the file is removed; else it is damaged"""


class LostRecord(NodeFault):
    """Every store is there, so ``txha recover`` must say that nothing is lost, and all that was told must be there."""

    kind = "lost-record"
    what = "the coordination file is removed or damaged, under running nodes or under none; then `txha recover`"
    cluster_wide = True
    stores = frozenset({SQLITE})

    def begin(self) -> str:
        cluster = self.cluster
        self._running, self._removed = self.ground.random.choice(WAYS)
        if not self._running and self.kill(cluster.names) < cluster.count:
            raise LookupError("not every node runs")
        self._said = {name: cluster.said(name) for name in cluster.names}
        self._remove() if self._removed else damage(self.cluster.record)
        when = "under running nodes" if self._running else "after SIGKILL of all nodes"
        return f"the coordination file is {'removed' if self._removed else 'damaged'} {when}"

    def heal(self) -> bool:
        self.start(self.cluster.names)  # in vain, as a supervisor does
        wait_until(self._noticed, NOTICE_SECONDS, "every node's word that the coordination record is lost", every=0.1)
        for name in self.cluster.names:
            with contextlib.suppress(LookupError):
                os.kill(self.cluster.pid(name), signal.SIGTERM)
        for name in self.cluster.names:
            self.wait_end(name)
        self._recover("--plan")
        self._recover("--apply")
        self.start(self.cluster.names)
        return True

    def _noticed(self) -> bool:
        """Whether every node has said so, and is no primary any more; without a file, whether it has ended, too."""
        cluster = self.cluster
        said = all(" coordination " in cluster.said_since(name, self._said[name]) for name in cluster.names)
        ended = not any(map(cluster.processes.runs, cluster.names))
        return said and (ended if self._removed else cluster.primary() is None)

    def _remove(self) -> None:
        for path in (self.cluster.record, self.cluster.record.with_name(self.cluster.record.name + "-journal")):
            path.unlink(missing_ok=True)

    def _recover(self, option: str) -> None:
        done = self.cluster.recover(option)
        self.ground.say(f"txha recover {option}: status {done.returncode}")
        if done.returncode == 2:
            raise NotAsTold(f"txha recover {option} failed: {done.stderr.strip()}")
        report = json.loads(done.stdout)
        if done.returncode != 0:
            raise NotAsTold(f"txha recover {option} says that something is lost or not known: {report['for_people']}")


def damage(record: Path) -> None:
    """All of the file but its length; in place, as a disk does it. Raises TimeoutError.

    Between two writes of nodes: one that is under way writes all pages of the file, and it would be whole again.
    """
    with contextlib.closing(sqlite3.connect(record, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            raise TimeoutError(f"the coordination file could not be damaged: {error}") from error
        with record.open("r+b") as file:  # its end is that of the lock
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            file.write(os.urandom(size))
