"""NodeIo: carries a node's effects out on its store, its links to peers and the coordination store."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from broker_plugin.coordination.record_thread import RecordThread
from broker_plugin.guard import Guard
from broker_plugin.logs.events import LogUnread
from broker_plugin.logs.formats import tell
from broker_plugin.node.links import Links
from ha.core import NodeCore
from ha.effects import CompareAndSet, LogLine, Persist, ReadLog, ReadQueue, Truncate, WriteCheckpoint
from ha.interpreter import Interpreter, Write
from recovery.store.log import LogReclaimed
from recovery.store.store import Store
from txobserver.frames import Frame
from txobserver.ids import Position
from txobserver.ports.store import Page, StoreDamaged, StoreError

log = logging.getLogger("txha.node")
READ_AGAIN_SECONDS = 0.2
READ_ATTEMPTS = 15
"""To read the log for a backup, where the system refuses; then it gets a copy of the queues."""


class NodeIo:
    """Implements ``ha.interpreter.Io``. What a store fails with goes to ``guard``; ``on_stop`` gets the reason.

    ``answers`` is the interpreter, and ``links`` the connections to peers: before there are any, messages are lost.
    """

    def __init__(
        self,
        core: NodeCore,
        store: Store,
        records: RecordThread,
        guard: Guard,
        on_stop: Callable[[str], None],
    ) -> None:
        self.answers: Interpreter
        self.links: Links | None = None
        self.stopped = False
        self._core = core
        self._store = store
        self._records = records
        self._guard = guard
        self._on_stop = on_stop

    def write(self, effect: Write) -> None:
        """Change the store durably."""

        def done(error: StoreError | None) -> None:
            if error is not None:
                self._guard.caught(error)
                return
            if isinstance(effect, WriteCheckpoint):
                self._core.log_first = self._store.first
            self.answers.written(effect)

        if isinstance(effect, Persist):
            self._store.append(effect.frame, done)
        elif isinstance(effect, Truncate):
            self._store.truncate(effect.last, self._core.replica.position_of(effect.last), done)
        elif isinstance(effect, WriteCheckpoint):
            self._store.checkpoint(effect.checkpoint, done)
        else:
            generation = effect.history[-1].generation if effect.history else 0
            self._store.reset(Position(generation, effect.following - 1), done)

    def read_log(self, effect: ReadLog, attempts: int = READ_ATTEMPTS) -> None:
        """What the log holds may still be read a little later, unless it is gone or damaged: too many open files, say.

        A backup whose session has ended meanwhile is told nothing by the core.
        """
        if self.stopped:
            return

        def done(result: asyncio.Future[list[Frame]]) -> None:
            try:
                frames = result.result()
            except StoreError as error:
                tell(log, logging.WARNING, LogUnread(str(error)))
                if attempts > 1 and not isinstance(error, LogReclaimed | StoreDamaged):
                    self._guard.call_later(READ_AGAIN_SECONDS, lambda: self.read_log(effect, attempts - 1))
                    return
                # Events that are in the queue state here already: the joiner gets a copy of the queues instead.
                frames = []
            self.answers.log_read(effect, frames)

        self._guard.run_in_executor(None, lambda: self._store.read(effect.first, effect.max_bytes), done)

    def read_queue(self, effect: ReadQueue) -> None:
        """In the store's own thread."""

        def done(page: Page | None, error: StoreError | None) -> None:
            if error is not None:
                self._guard.caught(error)
            elif page is not None:
                self.answers.queue_read(effect, page)

        self._store.read_queue(effect.asked, done)

    def read_record(self) -> None:
        """In the coordination process."""
        self._records.read(self.answers.record_read)

    def compare_and_set(self, effect: CompareAndSet) -> None:
        """In the coordination process."""
        record: Any = effect.record
        self._records.compare_and_set(
            effect.expected,
            record,
            lambda stored: self.answers.stored(effect, stored),
            lambda current: self.answers.conflict(effect, current),
            lambda: self.answers.cas_failed(effect),
        )

    def send(self, peer: str, message: object) -> None:
        """To the peer, if it is linked."""
        if self.links is not None:
            self.links.send(peer, message)

    def close_link(self, peer: str) -> None:
        """Both connections."""
        if self.links is not None:
            self.links.close_link(peer)

    def log(self, line: LogLine) -> None:
        """To this process's log."""
        level = logging.WARNING if line.warning else logging.INFO
        tell(log, level, line.event, self._core.generation)

    def stop(self, reason: str) -> None:
        """Ask for the node's end."""
        self._on_stop(reason)
