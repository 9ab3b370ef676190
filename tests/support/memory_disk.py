"""The disk of a node of the cluster in memory: frames as the product's log keeps and gives them, and a base."""

from __future__ import annotations

from pathlib import Path

from ha.effects import ReadLog
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo
from tests.simulation.fake_files import FakeFiles
from txobserver.calls import LocalCalls
from txobserver.frames import Frame
from txobserver.ids import Position
from txobserver.ports.store import MemoryBase, StoreError

CLUSTER_ID = "5eed" * 8


class MemoryDisk:
    """What survives the end of a node's process: the log's frames and the last checkpoint; what it keeps of calls, and
    the arguments that are in force in its surroundings, by (operation, name)."""

    def __init__(self, incarnation: str) -> None:
        self.incarnation = incarnation
        self.cluster_id = CLUSTER_ID
        self.frames: list[Frame] = []
        self.base = MemoryBase()
        self.local_calls = LocalCalls()
        self.in_force: dict[tuple[str, str], bytes] = {}

    @property
    def durable(self) -> int:
        return self.frames[-1].last if self.frames else self.base.meta.applied.sequence

    @property
    def log_first(self) -> int:
        return self.frames[0].first if self.frames else self.base.meta.applied.sequence + 1

    def read(self, asked: ReadLog, coming: list[Frame]) -> list[Frame]:
        """What the product's log gives, on files that hold these frames, and behind them what is written, not synced.

        None where the log no longer holds it, as the shell has it.
        """
        log, files = self._log()
        files.coming = lambda: b"".join(frame.data for frame in coming)
        try:
            return log.read(asked.first, asked.max_bytes)
        except StoreError:
            return []

    def truncate(self, last: int) -> None:
        """What the product's log keeps of these frames."""
        if self.frames and last < self.durable:
            log, _ = self._log()
            log.truncate(last, Position(self.frames[-1].generation, last))
            self.frames = log.read(self.log_first, 1 << 40)

    def _log(self) -> tuple[Log, FakeFiles]:
        files = FakeFiles(lambda: 0.0)
        log = Log(Path("log"), _describe, 1 << 40, Position(0, self.log_first - 1), files)
        log.begin(log.tail)
        log.append(self.frames)
        return log, files


def _describe(first: int) -> SegmentInfo:
    return SegmentInfo("test", "node", "incarnation", first, 0)
