"""One AMQP transaction of a channel (class tx)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from broker_plugin.embedded.memory_budget import Holder
from broker_plugin.embedded.message_counters import MessageCounters
from broker_plugin.embedded.queues.consumer import Held
from broker_plugin.embedded.queues.turn import Turn
from broker_plugin.embedded.topology.topology import Route
from broker_plugin.embedded.transactions.unit_of_work import UnitOfWork
from txobserver.events import Message, Removal
from txobserver.ports.ledger import Done, Observer


class LocalTransaction(UnitOfWork):
    """``returns`` are mandatory messages that no queue took, for the client when the commit is done.

    ``alarm``: the number of the alarm during which the one before it ended; 0 if none was on.
    """

    def __init__(self, begin: Callable[[Holder], Observer], holder: Holder, alarm: int = 0) -> None:
        super().__init__(holder)
        self.alarm = alarm
        self.returns: list[Message] = []
        self._routed = self._dropped = self._acknowledged = 0
        self._begin = begin
        self._begun: Observer | None = None

    def _observer(self) -> Observer:
        if self._begun is None:
            self._begun = self._begin(self.holder)
        return self._begun

    @property
    def empty(self) -> bool:
        """Whether nothing has been done in it."""
        return self._begun is None and not self.settled and not self._local and not self.returns

    def publish(self, route: Route, message: Message, mandatory: bool) -> None:
        """A publish inside the transaction."""
        self.enqueue(route, message)
        if route.durable or route.local:
            self._routed += 1
        elif mandatory:
            self.returns.append(message)
            self.wait_here(message)
        else:
            self._dropped += 1

    def settle(self, held: Iterable[tuple[int, Held]], reason: Removal | None) -> None:
        """Acknowledgements or rejections inside it."""
        before = len(self.settled)
        super().settle(held, reason)
        if reason is Removal.ACKED:
            self._acknowledged += len(self.settled) - before

    def count(self, counters: MessageCounters) -> None:
        """It has committed: what was done in it counts."""
        counters.transactions_committed += 1
        counters.routed += self._routed
        counters.unroutable_returned += len(self.returns)
        counters.unroutable_dropped += self._dropped
        counters.acknowledged += self._acknowledged

    def name(self, token: bytes) -> None:
        """Let the outcome be remembered under this token. Raises NameInUse, and ValueError for one that cannot be."""
        self._observer().name(token)

    def commit(self, turn: Turn, done: Done) -> None:
        """Tell the observer of the acknowledgements and let it commit; without one there is nothing to wait for."""
        self.tell_settled(turn, partial(self._all_told, done))

    def _all_told(self, done: Done) -> None:
        if self._begun is None:
            done(None)
        else:
            self._begun.commit(done)

    def rollback(self, turn: Turn) -> None:
        """Forget the publishes; the caller takes the acknowledgements back."""
        self.wait_no_more(turn)
        if self._begun is not None:
            self._begun.rollback()
