"""The asyncio shell: carries out what the core asks, and reports to it what happened.

Everything runs in turns. A report (a message, a completed write, a client's request) only marks the turn as due; when
all that is at hand has been reported, the turn settles the core and carries out the effects in order. So events of
many clients share one group, one write and one sync.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.guard import Guard
from broker_plugin.node.links import Links
from ha.core import NodeCore
from ha.effects import (
    Acknowledge,
    CompareAndSet,
    Effect,
    LogLine,
    Persist,
    ReadLog,
    ReadQueue,
    ReadRecord,
    ResetLog,
    Send,
    Stop,
    Truncate,
    WriteCheckpoint,
)
from ha.membership.record import Record
from ha.messages.stream import Ack
from ha.messages.wire import Peer
from recovery.store.log import LogReclaimed
from recovery.store.store import Store
from txobserver.frames import Frame
from txobserver.ids import Position
from txobserver.ports.store import Page, StoreDamaged, StoreError

log = logging.getLogger("txha.node")
TICK = 0.02
PATIENCE = 0.1
"""Seconds that a primary whose lease seems to be over waits for the answer to its last renewal: a long turn, of a large
transaction, may have kept it from being asked for and read."""
READ_AGAIN_SECONDS = 0.2
READ_ATTEMPTS = 15
"""To read the log for a backup, where the system refuses; then it gets a copy of the queues."""


def now() -> float:
    """Seconds on a clock that counts suspension (PROTOCOL, "Who is primary")."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def wall_ms() -> int:
    """Milliseconds since 1970, for people and for retention. 0 for a clock that was set to a time before that."""
    return max(0, int(time.time() * 1000))


class Clocks(NamedTuple):
    """Where a node looks for the time."""

    now: Callable[[], float] = now
    wall_ms: Callable[[], int] = wall_ms


CLOCKS = Clocks()
"""This machine's"""


class Shell:
    """One node's core at work. ``on_stop`` is called with the reason if the core wants the node to end."""

    def __init__(
        self,
        core: NodeCore,
        store: Store,
        records: RecordThread,
        poll_every: float,
        on_stop: Callable[[str], None],
        guard: Guard,
        clocks: Clocks = CLOCKS,
    ) -> None:
        self.core = core
        self.links: Links | None = None
        self.on_turn: Callable[[], None] = lambda: None
        self.on_overslept: Callable[[], None] = lambda: None
        self._store = store
        self._records = records
        self._poll_every = poll_every
        self._on_stop = on_stop
        self._now, self._wall_ms = clocks
        self._guard = guard
        self._due = False
        self._polled_at = 0.0
        self._ticker: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to tick."""
        self._tick()

    def stop(self) -> None:
        """No more ticks and turns."""
        self._stopped = True
        if self._ticker is not None:
            self._ticker.cancel()

    # -- reports

    def report(self, call: Callable[[], None]) -> None:
        """Something happened: tell the core, and settle when all that is at hand has been told."""
        if not self._stopped:
            self._look_and_tell(call)
            self.due()

    def store_failed(self, reason: str) -> None:
        """The store failed, wherever that came up: the core leaves its part in order, and asks for the node's end."""
        if self._stopped:
            log.error("%s", reason)
            return
        now = self._now()
        self._forget_if_over(now)
        self.core.set_clock(now, self._wall_ms())
        self.core.on_store_error(reason)
        self.due()

    def _answered(self, call: Callable[[], None]) -> None:
        """The coordination store's answer: told before the clock is looked at, since a renewal may be behind it."""
        if not self._stopped:
            self._tell(self.core.set_clock, call, self._now())
            self.due()

    def _stored(self, effect: CompareAndSet, record: Record) -> None:
        """A change of the record has been made. The one that gives the lease up renews nothing."""
        if not self._stopped and record.released:
            self._forget_if_over(self._now())
        self._answered(lambda: self.core.on_stored(effect, record))

    def _look_and_tell(self, call: Callable[[], None]) -> None:
        """Both go by one reading of the clock: the process may be stopped between two."""
        now = self._now()
        if self.core.overslept(now):
            self._records.wait(PATIENCE)
            now = self._now()
        self._forget_if_over(now)
        self._tell(self.core.look_at_clock, call, now)

    def _forget_if_over(self, now: float) -> None:
        """Where the lease may be another's, what has not left is told to nobody; also where the store has failed."""
        if self._lease_over(now):
            self.on_overslept()

    def _lease_over(self, now: float) -> bool:
        leading = self.core.leading
        return leading is not None and leading.keeper.expired(now)

    def _tell(self, clock: Callable[[float, int], None], call: Callable[[], None], now: float) -> None:
        def tell() -> None:
            clock(now, self._wall_ms())
            call()

        # Whoever reports may be in the middle of something else, which goes on if what it reports was the store's end.
        self._guard.run(tell)

    def due(self) -> None:
        """A turn is due."""
        if not self._due and not self._stopped:
            self._due = True
            self._guard.call_soon(self._turn)

    def on_link(self, peer: str, up: bool) -> None:
        """A connection to a peer came up or went down."""
        self.report(lambda: self.core.on_link(peer, up))

    def on_message(self, peer: str, message: Peer) -> None:
        """A message of a peer."""
        if not self._stopped:
            self.report(lambda: self.core.on_message(peer, message))

    def _tick(self) -> None:
        self._ticker = self._guard.call_later(TICK, self._tick)
        self.report(self.core.tick)
        if self.core.leading is None and self._now() - self._polled_at >= self._poll_every:
            self._read_record(ReadRecord())

    # -- turns

    def look_at_clock(self) -> None:
        """Before anything of a client is taken, and before anything is sent to it: a process that has been stopped may
        have lost its lease meanwhile, and another primary has gone on."""
        if self._lease_over(self._now()):
            self.report(lambda: None)

    def _turn(self) -> None:
        self._due = False
        if not self._stopped:
            self._look_and_tell(self._settle)

    def _settle(self) -> None:
        self.core.settle()
        for effect in self.core.take_effects():
            self._carry_out(effect)
        self.on_turn()

    def _carry_out(self, effect: Effect) -> None:
        _CARRY_OUT[type(effect)](self, effect)

    def _persist(self, effect: Persist) -> None:
        self._store.append(effect.frame, lambda error: self._persisted(effect, error))

    def _persisted(self, effect: Persist, error: StoreError | None) -> None:
        if error is not None:
            self._guard.caught(error)
        else:
            self._acknowledge(effect.then)
            self.report(lambda: self.core.on_durable(effect.frame.last))

    def _truncate(self, effect: Truncate) -> None:
        def done(error: StoreError | None) -> None:
            if error is not None:
                self._guard.caught(error)
            else:
                self._acknowledge(effect.then)

        self._store.truncate(effect.last, self.core.replica.position_of(effect.last), done)

    def _reset(self, effect: ResetLog) -> None:
        before = Position(effect.history[-1].generation if effect.history else 0, effect.following - 1)

        def done(error: StoreError | None) -> None:
            if error is not None:
                self._guard.caught(error)
            else:
                self.report(lambda: self.core.on_reset(effect))

        self._store.reset(before, done)

    def _acknowledge(self, then: Acknowledge | None) -> None:
        if then is not None and self.links is not None:
            self.links.send(then.peer, Ack(then.generation, then.session, then.sequence))

    def _checkpoint(self, effect: WriteCheckpoint) -> None:
        def done(error: StoreError | None) -> None:
            if error is not None:
                self._guard.caught(error)
            else:
                self._acknowledge(effect.then)
                self.core.log_first = self._store.first
                self.report(self.core.on_checkpoint)

        self._store.checkpoint(effect.checkpoint, done)

    def _send(self, effect: Send) -> None:
        if self.links is not None:
            self.links.send(effect.peer, effect.message)

    def _read_log(self, effect: ReadLog, attempts: int = READ_ATTEMPTS) -> None:
        """What the log holds may still be read a little later, unless it is gone or damaged: too many open files, say.

        A backup whose session has ended meanwhile is told nothing by the core.
        """
        if self._stopped:
            return

        def done(result: asyncio.Future[list[Frame]]) -> None:
            try:
                frames = result.result()
            except StoreError as error:
                log.warning("%s", error)
                if attempts > 1 and not isinstance(error, LogReclaimed | StoreDamaged):
                    self._guard.call_later(READ_AGAIN_SECONDS, lambda: self._read_log(effect, attempts - 1))
                    return
                # Events that are in the queue state here already: the joiner gets a copy of the queues instead.
                frames = []
            self.report(lambda: self.core.on_log_read(effect.peer, effect.session, frames))

        self._guard.run_in_executor(None, lambda: self._store.read(effect.first, effect.max_bytes), done)

    def _read_queue(self, effect: ReadQueue) -> None:
        def done(page: Page | None, error: StoreError | None) -> None:
            if error is not None:
                self._guard.caught(error)
            elif page is not None:
                self.report(lambda: self.core.on_queue_read(effect, page))

        self._store.read_queue(effect.asked, done)

    def _read_record(self, effect: ReadRecord) -> None:
        self._polled_at = self._now()
        self._records.read(lambda record: self._answered(lambda: self.core.on_record(record)))

    def _compare_and_set(self, effect: CompareAndSet) -> None:
        record: Any = effect.record
        self._records.compare_and_set(
            effect.expected,
            record,
            lambda stored: self._stored(effect, stored),
            lambda current: self.report(lambda: self.core.on_conflict(effect, current)),
            lambda: self.report(lambda: self.core.on_cas_failed(effect)),
        )

    def _log(self, effect: LogLine) -> None:
        level = logging.WARNING if effect.warning else logging.INFO
        log.log(level, "generation=%d %s", self.core.generation, effect.text)

    def _stop(self, effect: Stop) -> None:
        self._on_stop(effect.reason)


_CARRY_OUT: dict[type, Callable[..., None]] = {
    Persist: Shell._persist,
    Truncate: Shell._truncate,
    ResetLog: Shell._reset,
    WriteCheckpoint: Shell._checkpoint,
    Send: Shell._send,
    ReadLog: Shell._read_log,
    ReadQueue: Shell._read_queue,
    ReadRecord: Shell._read_record,
    CompareAndSet: Shell._compare_and_set,
    LogLine: Shell._log,
    Stop: Shell._stop,
}
