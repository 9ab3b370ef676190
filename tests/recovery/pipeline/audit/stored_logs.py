"""The logs of a cluster in memory: as its cores made them, and as a test changes them; as directories, or as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from recovery.pipeline.rows.builder import QueueNames, RowBuilder
from recovery.pipeline.rows.numbering import UNKNOWN
from recovery.store.identity import FORMAT_VERSION, Identity, create_identity
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo
from tests.support.memory_disk import MemoryDisk
from txobserver.events import Event
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Position


@dataclass(frozen=True)
class Stored:
    """One event of one log."""

    generation: int
    position: int
    time_ms: int
    event: Any


Copy = dict[int, Stored]
"""One node's log: position -> event"""


class StoredLogs:
    """``logs``: position -> event, for each node; ``names``: of the queues, by their numbers."""

    def __init__(self, disks: Mapping[str, MemoryDisk], names: dict[int, str]) -> None:
        self.logs = {name: _stored(disk.frames) for name, disk in disks.items()}
        self._disks = disks
        self._names = names

    def write(self, directory: Path) -> list[Path]:
        """The nodes' directories, with the frames as the cores made them."""
        return [self._write(directory, name, disk.frames) for name, disk in self._disks.items()]

    def write_changed(self, directory: Path) -> list[Path]:
        """The same with what is in ``logs`` by now, each event in a frame of its own; a log has no holes."""
        return [self._write(directory, name, self._frames_of(name)) for name in self.logs]

    def _write(self, directory: Path, name: str, frames: Sequence[Frame]) -> Path:
        made = directory / name
        (made / "log").mkdir(parents=True)
        create_identity(made, Identity(FORMAT_VERSION, "test", name, self._disks[name].incarnation))
        log = Log(made / "log", partial(_segment, name), 1 << 14, Position(0, frames[0].first - 1))
        for frame in frames:
            log.append([frame])
        log.close()
        return made

    def _frames_of(self, node: str) -> list[Frame]:
        return [
            encode_frame(stored.generation, position, [stored.event], stored.time_ms)
            for position, stored in sorted(self.logs[node].items())
        ]

    def rows(self) -> pa.Table:
        """All logs, in the pipeline's schema."""
        return pa.concat_tables(self.rows_of(node) for node in sorted(self.logs))

    def rows_of(self, node: str) -> pa.Table:
        """One log. Each event stands in a frame of its own, so that any can be taken out.

        The one that begins behind the declarations does not know the queues' names, as without its node's state.
        """
        known = {} if min(self.logs[node]) > 1 else self._names
        builder = RowBuilder(node, QueueNames([lambda: known]), lambda tx: UNKNOWN)
        batches = []
        for frame in self._frames_of(node):
            batches += builder.add(frame)
        return pa.Table.from_batches([*batches, *builder.take()])

    def change(self, position: int, event: Event | None, *nodes: str) -> None:
        """Put another event at this position, or none, in these logs; in all without names."""
        for node in nodes or tuple(self.logs):
            if position in self.logs[node]:
                if event is None:
                    del self.logs[node][position]
                else:
                    self.logs[node][position] = replace(self.logs[node][position], event=event)


def _segment(node: str, first: int) -> SegmentInfo:
    return SegmentInfo("test", node, "i", first, 0)


def _stored(frames: list[Any]) -> Copy:
    return {
        frame.first + offset: Stored(frame.generation, frame.first + offset, frame.time_ms, event)
        for frame in frames
        for offset, event in enumerate(frame.events())
    }
