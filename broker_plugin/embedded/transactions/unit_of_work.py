"""What clients do inside a transaction or branch: publishes and acknowledgements that take effect together, or not.

What concerns replicated queues is told to the observer; publishes are told at once, so that the backups have them when
the end comes. What concerns this node's own queues waits here until the end is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial

from broker_plugin.embedded.memory_budget import MESSAGE_BYTES, WORK, Holder
from broker_plugin.embedded.queues.consumer import Held, unheard
from broker_plugin.embedded.queues.pieces import GivingBack, Listed
from broker_plugin.embedded.queues.turn import Turn
from broker_plugin.embedded.topology.topology import Route
from broker_plugin.embedded.transactions.work_pieces import Committing, Settled, Telling
from txobserver.events import Message, Removal
from txobserver.message_size import size_of
from txobserver.ports.ledger import Work


class UnitOfWork(ABC):
    """``settled``: (delivery tag, message, reason); no reason: it is given back to its queue.

    ``waiting_bytes``: of the messages that wait here for its end. They count for ``holder``, its client's.
    """

    def __init__(self, holder: Holder) -> None:
        self.waiting_bytes = 0
        self.holder = holder
        self.settled: list[tuple[int, Held, Removal | None]] = []
        self._local: list[tuple[Route, Message]] = []
        self._ending = 0
        self._when_ended: list[Callable[[], None]] = []

    @abstractmethod
    def _observer(self) -> Work:
        """Who is told what concerns replicated queues."""

    def enqueue(self, route: Route, message: Message) -> None:
        """A publish inside it."""
        if route.durable:
            self._observer().enqueue(route.durable, message)
        if route.local:
            self._local.append((route, message))
            self.wait_here(message)

    def wait_here(self, message: Message) -> None:
        """A message that is kept here until the end is known."""
        size = size_of(message) + MESSAGE_BYTES
        self.waiting_bytes += size
        self.holder.hold(WORK, size)

    def wait_no_more(self, turn: Turn) -> None:
        """The end is known, or it is over: nothing waits here any more."""
        turn.let_go(self._local)
        self._local = []
        self.holder.hold(WORK, -self.waiting_bytes)
        self.waiting_bytes = 0

    def settle(self, held: Iterable[tuple[int, Held]], reason: Removal | None) -> None:
        """Acknowledgements or rejections inside it."""
        self.settled.extend((tag, each, reason) for tag, each in held)

    def tell_settled(self, turn: Turn, done: Callable[[], None]) -> None:
        """Nothing more will come: tell the observer of the acknowledgements, in as many turns as it takes."""
        Telling(turn, self.settled, self._observer, done).run()

    def give_back(self, turn: Turn, done: Callable[[], None] = unheard) -> None:
        """It has been rolled back: what was settled inside it stands in its queues again, at its old offsets.

        In as many turns as it takes, and all of it counts at once.
        """
        settled, self.settled = self.settled, []
        self.wait_no_more(turn)
        self._end(GivingBack(turn, Listed(settled).take, partial(self._ended, done)).run)

    def apply_local(self, turn: Turn, done: Callable[[], None] = unheard) -> None:
        """It has been committed: the same for this node's own queues, and for what goes back to its queue."""
        settled, self.settled = self.settled, []
        self._end(Committing(turn, self._local, settled, partial(self._committed, turn, settled, done)).run)

    def when_ended(self, call: Callable[[], None]) -> None:
        """Do this when ``give_back`` and ``apply_local`` have done all of their pieces."""
        if self._ending:
            self._when_ended.append(call)
        else:
            call()

    def _end(self, run: Callable[[], None]) -> None:
        self._ending += 1
        run()

    def _committed(self, turn: Turn, settled: Settled, done: Callable[[], None]) -> None:
        turn.let_go(settled)
        self.wait_no_more(turn)
        self._ended(done)

    def _ended(self, done: Callable[[], None]) -> None:
        self._ending -= 1
        done()
        if not self._ending:
            waiting, self._when_ended = self._when_ended, []
            for call in waiting:
                call()
