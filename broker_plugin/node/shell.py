"""The asyncio shell: reports to the core what happened, and has its answers carried out (``ha.interpreter``).

Everything runs in turns. A report (a message, a completed write, a client's request) only marks the turn as due; when
all that is at hand has been reported, the turn settles the core and carries out the effects in order. So events of
many clients share one group, one write and one sync.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import NamedTuple

from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.guard import Guard
from broker_plugin.logs.events import NodeFailed
from broker_plugin.logs.formats import tell
from broker_plugin.node.io import NodeIo
from broker_plugin.node.loop_watch import LoopWatch
from ha.core import NodeCore
from ha.interpreter import Interpreter, Surroundings
from ha.membership.record import Record
from ha.messages.wire import Peer
from ha.node import NO_FEATURES
from recovery.store.store import Store

log = logging.getLogger("txha.node")
TICK = 0.02
DEADLINE_SECONDS = 0.1
"""Seconds that a primary whose lease seems to be over waits for the answer to its last renewal: a long turn, of a large
transaction, may have kept it from being asked for and read."""


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
    """One node's core at work, in turns. Implements ``ha.interpreter.Reports``.

    Unless it leads, the core gets the coordination record when it changes, and every ``look_every`` seconds that it has
    not. The primary makes the changes itself, and learns from a refusal that another node has made one.
    ``on_stop`` is called with the reason if the core wants the node to end. ``loop_watch`` gets to know of
    each turn, so that the lease is renewed in the middle of a long one.

    Many methods: one for each kind of report, and for each step of a turn.
    """

    def __init__(
        self,
        core: NodeCore,
        store: Store,
        records: RecordThread,
        look_every: float,
        on_stop: Callable[[str], None],
        guard: Guard,
        clocks: Clocks = CLOCKS,
        loop_watch: LoopWatch | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self.core = core
        self._loop_watch = loop_watch
        self.on_turn: Callable[[], None] = lambda: None
        self.on_settled: Callable[[], None] = lambda: None
        self.on_overslept: Callable[[], None] = lambda: None
        self._records = records
        self._look_every = look_every
        self._watching = False
        self._now, self._wall_ms = clocks
        self._guard = guard
        self.io = NodeIo(core, store, records, guard, on_stop)
        self.interpreter = self.io.answers = Interpreter(core, self.io, self, surroundings)
        self.turns = 0
        """How many there have been"""
        self._due = False
        self._ticker: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin to tick."""
        self._tick()

    def stop(self) -> None:
        """No more ticks and turns."""
        self._stopped = self.io.stopped = True
        if self._loop_watch is not None:
            self._loop_watch.stop()
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
            tell(log, logging.ERROR, NodeFailed(reason))
            return
        now = self._now()
        self._forget_if_over(now)
        self.core.set_clock(now, self._wall_ms())
        self.core.on_store_error(reason)
        self.due()

    def answered(self, call: Callable[[], None]) -> None:
        """The coordination store's answer: told before the clock is looked at, since a renewal may be behind it."""
        if not self._stopped:
            self._tell(self.core.set_clock, call, self._now())
            self.due()

    def stored(self, record: Record, call: Callable[[], None]) -> None:
        """A change of the record has been made. The one that gives the lease up renews nothing."""
        if not self._stopped and record.released:
            self._forget_if_over(self._now())
        self.answered(call)

    def _look_and_tell(self, call: Callable[[], None]) -> None:
        """Both go by one reading of the clock: the process may be stopped between two."""
        now = self._now()
        if self._lease_over(now) and self.core.overslept(now):
            self._records.wait(DEADLINE_SECONDS)
            now = self._now()
        self._forget_if_over(now)
        self._tell(self.core.look_at_clock, call, now)

    def _forget_if_over(self, now: float) -> None:
        """Where the lease may be another's, what has not left is told to no client; also where the store has failed."""
        if self._lease_over(now):
            self.on_overslept()

    def _lease_over(self, now: float) -> bool:
        leading = self.core.leading
        if leading is None or not leading.keeper.expired(now):
            return False
        if self._loop_watch is not None:
            self._loop_watch.learn_renewals(now)
        return leading.keeper.expired(now)

    def _tell(self, clock: Callable[[float, int], None], call: Callable[[], None], now: float) -> None:
        def tell() -> None:
            clock(now, self._wall_ms())
            call()

        # The component that reports may be in the middle of something else, which goes on if what it reports was the
        # store's end.
        self._guard.run(tell)

    def due(self) -> None:
        """A turn is due."""
        if not self._due and not self._stopped:
            self._due = True
            self._guard.call_soon(self._turn)

    def on_link(self, peer: str, features: frozenset[str] | None) -> None:
        """A connection to a peer came up, and both sides know these features; None: it went down."""
        self.report(lambda: self.core.on_link(peer, features is not None, features or NO_FEATURES))

    def on_message(self, peer: str, message: Peer) -> None:
        """A message of a peer."""
        if not self._stopped:
            self.report(lambda: self.core.on_message(peer, message))

    def _tick(self) -> None:
        self._ticker = self._guard.call_later(TICK, self._tick)
        self._turned()
        self.report(self._look_round)
        self._watch()

    def _look_round(self) -> None:
        if (links := self.io.links) is not None:
            self.core.on_heard(links.heard())
        self.core.tick()

    def _turned(self) -> None:
        """Another turn has begun, so the last one was completed."""
        if self._loop_watch is not None:
            self._loop_watch.turned(self._now())

    def _watch(self) -> None:
        """Who leads watches nothing: each renewal would wait for a reading."""
        watching, self._watching = self._watching, self.core.leading is None
        if self._watching and not watching:
            self._records.watch(self.interpreter.record_read, self._look_every)
        elif watching and not self._watching:
            self._records.rest()

    # -- turns

    def look_at_clock(self) -> None:
        """Before anything of a client is taken, and before anything is sent to it: a process that has been stopped may
        have lost its lease meanwhile, and another primary has gone on."""
        if self._lease_over(self._now()):
            self.report(lambda: None)

    def _turn(self) -> None:
        self._due = False
        if not self._stopped:
            self._turned()
            self._look_and_tell(self._settle)

    def _settle(self) -> None:
        self.turns += 1
        self.core.settle()
        self.interpreter.run()
        self._watch()
        if self._loop_watch is not None:
            self._loop_watch.settled()
        self.on_settled()
        self.on_turn()
