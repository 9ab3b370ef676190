"""The faults of disks: full, slow, failing."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence

from python_tests.harness.stress.cluster import StressCluster
from python_tests.harness.stress.fault import NodeFault, NotAsTold
from python_tests.harness.stress.syncs import ALL, FOREVER, Kind
from python_tests.harness.waiting import wait_until

NOTICE_SECONDS = 30.0
"""Within which something is synced under load, checkpoints too: they come every five seconds"""


class DiskFull(NodeFault):
    kind = "disk-full"
    what = "no room on the disk of one node; room again, and the node started, later"

    @classmethod
    def why_not(cls, cluster: StressCluster) -> str | None:
        return None if cluster.disk is not None else "no node has a disk that can be filled"

    def begin(self) -> str:
        cluster = self.cluster
        assert cluster.disk is not None and cluster.small is not None
        self.target = cluster.small
        self._said = cluster.said(self.target)
        cluster.disk.fill()
        return f"the disk of {self.target} is full"

    def heal(self) -> bool:
        cluster = self.cluster
        assert cluster.disk is not None
        noticed = "no space is left" in cluster.said_since(self.target, self._said)
        cluster.disk.free()
        if noticed:
            self.wait_end(self.target)
        self.start([self.target])
        return noticed


class SyncFault(NodeFault):
    """Something that happens to a node's syncs."""

    kinds: Sequence[Kind] = ALL

    @classmethod
    def why_not(cls, cluster: StressCluster) -> str | None:
        return None if cluster.disks is not None else "the nodes' disks are as they are"

    def choose(self) -> str:
        """Which files it shall hit, by lot; returns what they are, in words."""
        words = {ALL: "the disk", (Kind.STATE,): "the disk of the checkpoints", (Kind.LOG,): "the disk of the log"}
        self.kinds = self.ground.random.choice((ALL, (Kind.STATE,), (Kind.LOG,)))
        return f"{words[tuple(self.kinds)]} of {self.target}"


class SlowDisk(SyncFault):
    kind = "slow-disk"
    what = "each sync of one node, or only those of its log or of its checkpoints, takes 0.05 to 4 s"

    def begin(self) -> str:
        assert self.cluster.disks is not None
        self.cluster.pid(self.target)
        what, seconds = self.choose(), 0.05 * 80 ** self.ground.random.random()
        self._before = self._delayed()
        self.cluster.disks.slow(self.target, seconds, self.kinds)
        return f"{what} takes {seconds:.2f} s for each sync"

    def heal(self) -> bool:
        assert self.cluster.disks is not None
        with contextlib.suppress(TimeoutError):
            wait_until(self._has_hit_or_ended, NOTICE_SECONDS, "a slow sync")
        self.cluster.disks.slow(self.target, 0)
        return self._delayed() > self._before

    def _has_hit_or_ended(self) -> bool:
        return self._delayed() > self._before or not self.cluster.processes.runs(self.target)

    def _delayed(self) -> int:
        assert self.cluster.disks is not None
        return self.cluster.disks.count(self.target).delayed


class FailedSync(SyncFault):
    """The node must end by itself, and say why in one sentence. While its disk goes on failing, a start is in vain."""

    kind = "failed-sync"
    what = "a sync of one node fails with EIO, once or until it is over; the node ends, and is started again later"

    def begin(self) -> str:
        assert self.cluster.disks is not None
        self.cluster.pid(self.target)
        what, self._lasting = self.choose(), self.ground.random.random() < 0.5
        self._said, self._before = self.cluster.said(self.target), self._failed()
        spared = self.ground.random.randrange(2)  # of a checkpoint's two syncs the second is that of LMDB's meta page
        self.cluster.disks.fail(self.target, FOREVER if self._lasting else 1, self.kinds, spared)
        return f"{what} fails {'at every sync' if self._lasting else 'once'}"

    def heal(self) -> bool:
        try:
            return self._ended()
        finally:
            assert self.cluster.disks is not None
            self.cluster.disks.fail(self.target, 0)
            self.start([self.target])

    def _ended(self) -> bool:
        """Whether a sync has failed; then the node has ended, and said why. Raises TimeoutError if it has not."""
        if not self.cluster.processes.runs(self.target) and self._failed() == self._before:
            self.start([self.target])  # something else has ended it
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self._failed() > self._before, NOTICE_SECONDS, "a failed sync")
        if self._failed() == self._before:
            return False
        self._wait_sentence()
        if self._lasting:
            self._said = self.cluster.said(self.target)
            self.start([self.target])
            self._wait_sentence()
        return True

    def _wait_sentence(self) -> None:
        """Until the node has ended, and said why. Raises TimeoutError, NotAsTold."""
        what = f"the end of {self.target}, whose disk fails"
        wait_until(lambda: not self.cluster.processes.runs(self.target), NOTICE_SECONDS, what)
        said = self.cluster.said_since(self.target, self._said).splitlines()
        if not any(os.strerror(errno.EIO) in line for line in said) or any("Traceback" in line for line in said):
            raise NotAsTold(f"{self.target} did not say in one sentence that its disk fails: see its log")

    def _failed(self) -> int:
        assert self.cluster.disks is not None
        return self.cluster.disks.count(self.target).failed
