"""Logs to measure with: real frames, written by ``recovery.store.log.Log``, many with one sync."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from recovery.store.identity import FORMAT_VERSION, Identity, create_identity
from recovery.store.log import Log
from recovery.store.segment import SegmentInfo
from txobserver.configuration import queue_step
from txobserver.events import (
    Configure,
    Event,
    GenerationStart,
    Message,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
)
from txobserver.frames import encode_frame
from txobserver.ids import Position, generated_id, offset_of

QUEUES = 8
TRANSACTIONS = 4
"""In a frame, as many clients at once make them"""
MESSAGES = 10
BODY = 64
PER_TRANSACTION = MESSAGES + 4
"""Events: open, the messages, one dequeue, prepare, decision"""
GROUP = 256
"""Frames that are written and synced at once"""


def write_log(directory: Path, events: int, node: str = "node-1", seed: int = 1, body: int = BODY) -> int:
    """A node's directory whose log holds about so many events, all of committed transactions; returns how many.

    ``body``: of each message, in bytes.
    """
    (directory / "log").mkdir(parents=True)
    create_identity(directory, Identity(FORMAT_VERSION, "bench", node, "1"))
    log = Log(directory / "log", lambda first: SegmentInfo("bench", node, "1", first, 0), 64 << 20, Position(0, 0))
    first, frames = 1, []
    for number, group in enumerate(_groups(events, body, random.Random(seed))):
        frames.append(encode_frame(1, first, group, 1_767_225_600_000 + 20 * number))
        first += len(group)
        if len(frames) == GROUP:
            log.append(frames)
            frames = []
    log.append(frames)
    log.close()
    return first - 1


def _groups(events: int, body: int, chance: random.Random) -> Iterator[list[Event]]:
    steps = [queue_step(f"queue-{number}", False, {}) for number in range(QUEUES)]
    yield [GenerationStart(1, "node-1", ["node-1"])] + [
        Configure(number + 1, step.operation, step.name, step.arguments) for number, step in enumerate(steps)
    ]
    rid, sequence = 0, QUEUES + 2
    for tx in range(0, events // PER_TRANSACTION, TRANSACTIONS):
        group: list[Event] = []
        for each in range(TRANSACTIONS):
            number = generated_id(1, tx + each)
            group.append(TxOpen(number))
            for _ in range(MESSAGES):
                rid += 1
                name = f"m{rid}".encode()
                properties = b"\x10\x80\x02" + bytes((len(name),)) + name
                queue = 1 + rid % QUEUES
                message = Message("", f"queue-{queue - 1}", properties, chance.randbytes(body))
                group.append(TxEnqueue(number, generated_id(1, rid), (queue,), message))
            group.append(
                TxDequeue(number, 1, [(offset_of(sequence, at), generated_id(1, rid - at)) for at in (0, 1)], 1)
            )
            group += [TxPrepare(number, MESSAGES + 1, ["node-1"]), TxDecision(number, True)]
        yield group
        sequence += len(group)
