"""One AMQP transaction of a channel (class tx)."""

from __future__ import annotations

from collections.abc import Callable

from broker_plugin.embedded.topology.topology import Route
from broker_plugin.embedded.transactions.unit_of_work import UnitOfWork
from txobserver.events import Message
from txobserver.ports.ledger import Done, Observer


class LocalTransaction(UnitOfWork):
    """``returns`` are mandatory messages that no queue took, for the client when the commit is done."""

    def __init__(self, begin: Callable[[], Observer]) -> None:
        super().__init__()
        self.returns: list[Message] = []
        self._begin = begin
        self._begun: Observer | None = None

    def _observer(self) -> Observer:
        if self._begun is None:
            self._begun = self._begin()
        return self._begun

    def publish(self, route: Route, message: Message, mandatory: bool) -> None:
        """A publish inside the transaction."""
        self.enqueue(route, message)
        if mandatory and not route.durable and not route.local:
            self.returns.append(message)

    def name(self, token: bytes) -> None:
        """Let the outcome be remembered under this token. Raises NameInUse, and ValueError for one that cannot be."""
        self._observer().name(token)

    def commit(self, done: Done) -> None:
        """Tell the observer of the acknowledgements and let it commit; without one there is nothing to wait for."""
        self.tell_settled()
        if self._begun is None:
            done(None)
        else:
            self._begun.commit(done)

    def rollback(self) -> None:
        """Forget the publishes; the caller takes the acknowledgements back."""
        if self._begun is not None:
            self._begun.rollback()
