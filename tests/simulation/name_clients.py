"""Clients that meet at the same names: what one declares, fills or binds, another deletes if it may, or lets lapse."""

from __future__ import annotations

from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare
from tests.simulation.client_link import ClientLink
from tests.simulation.clients import Client, Feeder

LAPSING = "lapsing"
FADING = ("fading-0", "fading-1")
"""Queues that are deleted if they are empty, and in no other way"""


class Prober(Feeder):
    """Declares one of these queues and publishes to it, again and again."""

    kind = "prober"

    def feed(self) -> None:
        link = self.link
        if link is None or self.stopping:
            return
        name = self.chance.choice(FADING)
        self.book.fading.add(name)
        self.book.exempt.add(name)
        link.queues.declare(QueueDeclare(name, durable=True), lambda state: self._publish(name))

    def _publish(self, name: str) -> None:
        if self.link is not None and not self.stopping:
            for _ in range(self.chance.choice((1, 1, 2))):
                self.send(name)
            self.later(0.0, 0.03, self.feed if self.chance.random() < 0.5 else lambda: self._publish(name))


class Remover(Client):
    """Takes or purges what is there, and deletes the queue if it is empty: at once, while a prober publishes to it."""

    kind = "remover"

    def connected(self, link: ClientLink) -> None:
        self.later(0.0, 0.1, self._remove)

    def _remove(self) -> None:
        link = self.link
        if link is None or self.stopping:
            return
        name = self.chance.choice(FADING)
        if self.chance.random() < 0.2:
            link.queues.get(name, lambda got: None)
        if self.chance.random() < 0.7:
            link.queues.purge(name)
        link.queues.delete_if_empty(name, lambda: self.later(0.0, 0.05, self._remove))


class Binder(Client):
    """Binds a queue of its own to an auto-delete exchange, and unbinds it; the exchange goes with the last binding.

    Each connection has its own queue, and deletes the last one's, so that nothing which is late there can touch it.
    """

    kind = "binder"
    _queue = ""

    def connected(self, link: ClientLink) -> None:
        if self._queue:
            self.cluster.truth.unbinding(LAPSING, self._queue)
            self.book.given_up.add(self._queue)
            link.queues.delete(self._queue)
        self._queue = f"anchor-{self.name}"
        self.book.exempt.add(self._queue)
        self._request = BindRequest(LAPSING, self._queue, True, "")
        link.queues.declare(QueueDeclare(self._queue, durable=True), lambda state: self._bind())

    def _bind(self) -> None:
        link = self.link
        if link is not None and not self.stopping:
            link.queues.declare_exchange(ExchangeDeclare(LAPSING, "fanout", True, True))
            link.queues.bind(self._request, lambda: self.later(0.0, 0.02, self._unbind))

    def _unbind(self) -> None:
        if self.link is not None:
            self.link.queues.unbind(self._request, lambda: self.later(0.0, 0.02, self._bind))
