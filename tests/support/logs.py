"""Frames, stores and a loop-less ``post`` for tests of the store."""

from __future__ import annotations

import queue
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from recovery.store import store as store_module
from recovery.store.files import REAL_FILES, Files
from recovery.store.groups import encode_group_header
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo
from recovery.store.store import Store, StoreSettings
from txobserver.events import Message, Publish
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Position
from txobserver.ports.store import Changes, Meta, QueueSummary, StoreError


def message(body: str) -> Message:
    return Message("", "key", b"\x00\x00", body.encode())


def frame(first: int, count: int = 3, generation: int = 1, size: int = 10) -> Frame:
    events = [Publish(first + n, (1,), message(f"{first + n}".ljust(size, "."))) for n in range(count)]
    return encode_frame(generation, first, list(events), 1000 * first)


def meta_of(applied: Position, contents: Changes) -> Meta:
    """The meta of a checkpoint that holds just these entries."""
    meta = Meta(applied)
    for number, entries in contents.items():
        meta.summaries[number] = QueueSummary()
        for place, entry in entries.items():
            if entry is not None:
                meta.summaries[number].put(place, entry.rid)
    return meta


def describe(first: int) -> SegmentInfo:
    return SegmentInfo("cluster", "node", "incarnation", first, 0)


def old_header(info: SegmentInfo) -> bytes:
    """What a segment of format version 1, whose frames stand alone, begins with."""
    description = msgspec.msgpack.encode(info)
    start = struct.pack(">4sHH", b"TXSG", 1, len(description))
    return start + zlib.crc32(start + description).to_bytes(4, "big") + description


def grouped(offset: int, groups: list[list[Frame]]) -> bytes:
    """What is written at this offset of a segment for these groups."""
    data = b""
    for group in groups:
        frames = [each.data for each in group]
        data += encode_group_header(offset + len(data), frames) + b"".join(frames)
    return data


def open_log(directory: Path, segment_bytes: int = 1 << 20, files: Files = REAL_FILES) -> tuple[Log, list[Frame]]:
    directory.mkdir(exist_ok=True)
    log = Log(directory, describe, segment_bytes, Position(0, 0), files)
    return log, list(log.recover(Position(0, 0)))


class Posts:
    """Runs what the store's threads report, when the test asks for it."""

    def __init__(self) -> None:
        self.queue: queue.Queue[Callable[[], None]] = queue.Queue()
        self.outcomes: list[StoreError | None] = []

    def done(self, outcome: StoreError | None) -> None:
        self.outcomes.append(outcome)

    def wait(self, count: int = 1) -> list[StoreError | None]:
        """The outcomes of the next ``count`` reports."""
        self.outcomes = []
        while len(self.outcomes) < count:
            self.queue.get(timeout=20)()
        return self.outcomes


def open_store(
    directory: Path,
    posts: Posts,
    node: str = "node",
    cluster: str = "cluster",
    incarnation: str = "incarnation",
    cluster_id: str = "",
    **settings: float,
) -> Store:
    return store_module.open_store(
        directory,
        cluster=cluster,
        node=node,
        settings=StoreSettings(**settings),  # type: ignore[arg-type]
        post=posts.queue.put,
        new_incarnation=lambda: incarnation,
        now_ms=lambda: 5_000,
        cluster_id=cluster_id,
    )
