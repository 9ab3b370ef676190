"""Persist, then send (P11): a real shell on a real event loop, over a store that says when something is durable."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker_plugin.guard import BROKEN, Guard
from broker_plugin.node import io as io_module
from broker_plugin.node.io import READ_ATTEMPTS
from broker_plugin.node.shell import Shell
from ha.effects import (
    Acknowledge,
    Effect,
    Persist,
    ReadLog,
    ReadQueue,
    ResetLog,
    Send,
    Truncate,
    WriteCheckpoint,
)
from ha.messages.stream import Ack
from recovery.store.log import LogReclaimed
from tests.support.guards import strict_guard
from tests.support.logs import frame, open_log
from txobserver.events import Delivered
from txobserver.frames import encode_frame
from txobserver.ids import Position
from txobserver.ports.store import Above, Asked, Checkpoint, Meta, Page, StoreDamaged, StoreError, StoreFull

ACK = Acknowledge("a", 3, 7, 5)
FRAME = encode_frame(3, 5, [Delivered(1, 1)], 0)
CHECKPOINT = Checkpoint(Meta(), {}, [], [], [])
READ_QUEUE = ReadQueue(3, 1, Above(2, 5, 10, 1000))
PAGE = Page([], False)
Done = Callable[[StoreError | None], None]


class Core:
    """Asks for what the test says, and writes down what it is told."""

    leading = SimpleNamespace(keeper=SimpleNamespace(expired=lambda now: False))
    log_first = 1
    log_first_then = 0

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.told: list[Any] = []
        self.clock: list[float] = []
        self.replica = self
        self.feed = SimpleNamespace(changes=lambda write: None)

    def position_of(self, sequence: int) -> Position:
        return Position(3, sequence)

    def overslept(self, now: float) -> bool:
        self.clock.append(now)
        return False

    def look_at_clock(self, now: float, wall_ms: int) -> None:
        self.clock.append(now)

    set_clock = look_at_clock

    def tick(self) -> None:
        """Nothing."""

    def settle(self) -> None:
        """Nothing."""

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def on_durable(self, sequence: int) -> None:
        self.told.append(("durable", sequence))

    def on_reset(self, asked: ResetLog) -> None:
        self.told.append("reset")

    def on_checkpoint(self) -> None:
        self.told.append("checkpoint")
        self.log_first_then = self.log_first

    def on_store_error(self, reason: str) -> None:
        self.told.append(("store error", reason))

    def on_queue_read(self, asked: ReadQueue, page: Page) -> None:
        self.told.append((asked, page))

    def on_log_read(self, peer: str, session: int, frames: list[Any]) -> None:
        self.told.append((peer, session, frames))


class Store:
    """Takes everything, and finishes it when the test says so."""

    first = 4

    def __init__(self) -> None:
        self.asked: list[tuple[str, Done]] = []
        self.given: list[Any] = []
        self.error: Exception | None = None

    def append(self, frame: Any, done: Done) -> None:
        self.asked.append(("append", done))
        self.given.append(frame)

    def truncate(self, last: int, tail: Position, done: Done) -> None:
        self.asked.append(("truncate", done))
        self.given.append((last, tail))

    def reset(self, before: Position, done: Done) -> None:
        self.asked.append(("reset", done))
        self.given.append(before)

    def checkpoint(self, checkpoint: Checkpoint, done: Done) -> None:
        self.asked.append(("checkpoint", done))
        self.given.append(checkpoint)

    def read_queue(self, asked: Asked, done: Callable[[Page | None, StoreError | None], None]) -> None:
        self.asked.append(("read queue", lambda error: done(None if error else PAGE, error)))
        self.given.append(asked)

    def read(self, first: int, max_bytes: int) -> list[Any]:
        self.given.append((first, max_bytes))
        if self.error is not None:
            raise self.error
        return [FRAME]


class Sent:
    """What went to peers."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, Any]] = []

    def send(self, peer: str, message: Any) -> None:
        self.messages.append((peer, message))


class Rig:
    """A shell, and all around it."""

    def __init__(self, guard: Guard | None = None) -> None:
        self.core, self.store, self.links = Core(), Store(), Sent()
        self.broken: list[str] = []
        self.guard = guard or Guard(lambda reason: self.shell.store_failed(reason), self.broken.append)
        parts: Any = (self.core, self.store, None)
        self.shell = Shell(*parts, 0.2, lambda reason: None, self.guard)
        links: Any = self.links
        self.shell.io.links = links

    async def carry_out(self, *effects: Effect) -> None:
        """The core asks for these; the loop does all that it can do by itself."""
        self.core.effects = list(effects)
        self.shell.due()
        await self.quiet()

    async def quiet(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def finish(self, error: StoreError | None = None) -> None:
        """The store has done what was asked of it first."""
        _, done = self.store.asked.pop(0)
        self.guard.run(done, error)
        await self.quiet()


WRITES: list[tuple[Any, str, Any]] = [
    (Persist(FRAME, ACK), "append", ("durable", 5)),
    (Truncate(5, ACK), "truncate", None),
    (WriteCheckpoint(CHECKPOINT, ACK), "checkpoint", "checkpoint"),
]


@pytest.mark.parametrize(("effect", "asked", "told"), WRITES, ids=[asked for _, asked, _ in WRITES])
async def test_nothing_is_acknowledged_before_it_is_durable(effect: Effect, asked: str, told: Any) -> None:
    rig = Rig(strict_guard())
    await rig.carry_out(effect, Send("a", "a word"))
    assert [what for what, _ in rig.store.asked] == [asked]
    assert (rig.links.messages, rig.core.told) == ([("a", "a word")], []), "what promises nothing waits for nothing"
    await rig.finish()
    assert rig.links.messages[1:] == [("a", Ack(3, 7, 5))]
    assert rig.core.told == ([told] if told else [])


GIVEN: list[tuple[Effect, Any]] = [
    (Persist(FRAME), FRAME),
    (Truncate(5, ACK), (5, Position(3, 5))),
    (WriteCheckpoint(CHECKPOINT), CHECKPOINT),
    (READ_QUEUE, READ_QUEUE.asked),
    (ResetLog(6, (Position(1, 1), Position(3, 4))), Position(3, 5)),
    (ResetLog(1, ()), Position(0, 0)),
]


@pytest.mark.parametrize(("effect", "given"), GIVEN, ids=lambda each: type(each).__name__)
async def test_what_the_store_is_given_is_what_the_core_asked_for(effect: Effect, given: Any) -> None:
    """A log that begins anew goes on from the position before its first event, in the generation of its history."""
    rig = Rig(strict_guard())
    await rig.carry_out(effect)
    assert rig.store.given == [given]


@pytest.mark.parametrize("error", [StoreFull("no space is left"), StoreDamaged("it is damaged"), StoreError("gone")])
@pytest.mark.parametrize("effect", [*(effect for effect, _, _ in WRITES), ResetLog(6, ()), READ_QUEUE])
async def test_what_failed_is_never_acknowledged_and_the_core_is_told(effect: Effect, error: StoreError) -> None:
    rig = Rig()
    await rig.carry_out(effect)
    await rig.finish(error)
    assert (rig.links.messages, rig.core.told, rig.broken) == ([], [("store error", str(error))], [])


async def test_a_log_begins_anew_only_when_the_former_is_gone() -> None:
    rig = Rig(strict_guard())
    await rig.carry_out(ResetLog(6, ()))
    assert rig.core.told == []
    await rig.finish()
    assert rig.core.told == ["reset"]


async def test_a_queue_is_read_while_everything_goes_on() -> None:
    """``one_consumer_topples_every_primary``: nothing waits for it, and the core is told when it has come."""
    rig = Rig(strict_guard())
    await rig.carry_out(READ_QUEUE, Send("a", "a word"))
    assert (rig.links.messages, rig.core.told) == ([("a", "a word")], [])
    await rig.finish()
    assert rig.core.told == [(READ_QUEUE, PAGE)]


async def test_the_log_that_a_checkpoint_leaves_is_known_when_it_is_told() -> None:
    rig = Rig(strict_guard())
    await rig.carry_out(WriteCheckpoint(CHECKPOINT))
    assert rig.core.log_first == 1
    await rig.finish()
    assert (rig.core.log_first_then, rig.core.told, rig.links.messages) == (4, ["checkpoint"], [])


@pytest.mark.parametrize(
    ("error", "frames", "broken"),
    [
        (None, [FRAME], []),
        (StoreDamaged("a gap"), [], []),
        (LogReclaimed("it begins later"), [], []),
        (KeyError("a bug"), None, [BROKEN]),
    ],
    ids=["whole", "damaged", "reclaimed", "a bug"],
)
async def test_what_a_lagging_backup_is_read(error: Exception | None, frames: Any, broken: list[str]) -> None:
    """Damage in what the queue state has long passed ends no node: the backup gets a copy of the queues instead."""
    rig = Rig()
    rig.store.error = error
    await rig.carry_out(ReadLog("a", 7, 5, 1000))
    while not rig.core.told and not rig.broken:
        await asyncio.sleep(0.001)
    assert (rig.core.told, rig.broken) == ([] if frames is None else [("a", 7, frames)], broken)
    assert rig.store.given == [(5, 1000)]


async def test_too_many_open_files_while_a_ready_backup_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for one whose events are gone: out of the ready set, and a copy of everything."""
    monkeypatch.setattr(io_module, "READ_AGAIN_SECONDS", 0.01)
    log, _ = open_log(tmp_path / "log")
    log.append([frame(1)])
    rig, limits = Rig(), resource.getrlimit(resource.RLIMIT_NOFILE)
    given: list[str] = []

    def read(first: int, max_bytes: int) -> list[Any]:
        try:
            return log.read(first, max_bytes)
        except StoreError as error:
            given.append(str(error))
            raise

    monkeypatch.setattr(rig.store, "read", read)
    with open(os.devnull) as lowest:
        free = lowest.fileno()
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
    try:
        await rig.carry_out(ReadLog("a", 7, 1, 1000))
        while len(given) < 2:
            assert rig.core.told == [], "it is tried again"
            await asyncio.sleep(0.001)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    while not rig.core.told:
        await asyncio.sleep(0.001)
    assert rig.core.told == [("a", 7, [frame(1)])] and "Too many open files" in given[0]
    log.close()


async def test_a_log_that_the_system_keeps_refusing_is_not_asked_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_module, "READ_AGAIN_SECONDS", 0.0)
    rig = Rig()
    rig.store.error = StoreError("segment 1 failed: Input/output error")
    await rig.carry_out(ReadLog("a", 7, 5, 1000))
    while not rig.core.told:
        await asyncio.sleep(0.001)
    assert (rig.core.told, len(rig.store.given)) == ([("a", 7, [])], READ_ATTEMPTS)


async def test_a_node_that_has_ended_does_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_module, "READ_AGAIN_SECONDS", 0.01)
    rig = Rig()
    rig.store.error = StoreError("segment 1 failed: Input/output error")
    await rig.carry_out(ReadLog("a", 7, 5, 1000))
    while not rig.store.given:
        await asyncio.sleep(0.001)
    rig.shell.stop()
    tried = len(rig.store.given)
    await asyncio.sleep(0.1)
    assert (rig.core.told, len(rig.store.given)) == ([], tried)


async def test_a_store_error_in_the_middle_of_a_turn_is_told_to_the_core() -> None:
    rig = Rig()

    def fails() -> None:
        raise StoreDamaged("page 7 is damaged")

    rig.shell.report(fails)
    assert (rig.core.told, rig.broken) == ([("store error", "page 7 is damaged")], [])
    rig.shell.stop()
    rig.shell.report(fails)
    rig.guard.caught(StoreDamaged("page 8 is damaged"))
    assert len(rig.core.told) == 1, "a node that has ended tells no peer any more"


async def test_the_clock_counts_suspension(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that slept for a day: only one of its clocks says so, beside the wall's, which people set."""
    day = 86_400.0
    asked = {time.CLOCK_BOOTTIME: 10.0 + day}
    monkeypatch.setattr(time, "clock_gettime", lambda clock: asked.get(clock, 10.0))
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: int(asked.get(clock, 10.0) * 1e9))
    for other in ("monotonic", "perf_counter", "process_time", "time"):
        monkeypatch.setattr(time, other, lambda: 10.0)
    rig = Rig(strict_guard())
    rig.shell.report(lambda: None)
    rig.shell.look_at_clock()
    assert set(rig.core.clock) == {10.0 + day}
