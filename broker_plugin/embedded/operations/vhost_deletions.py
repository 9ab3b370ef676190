"""How a virtual host goes that is being deleted: its connections, then what is declared there, then itself.

The stream says that it is being deleted, so whichever node is primary goes on with it.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from broker_plugin.embedded.operations.queue_deletions import QueueDeletions
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.turn import in_pieces
from broker_plugin.embedded.serving import Serving
from txobserver.configuration import delete_exchange_step, delete_queue_step
from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rules import vhost_gone_step
from txobserver.vhosts import vhost_of


class VhostDeletions:
    """Of the active primary. ``_waits_for``: of each virtual host, how many answers of the stream are outstanding."""

    def __init__(self, broker: Serving, deletions: QueueDeletions) -> None:
        self._broker = broker
        self._deletions = deletions
        self._waits_for: dict[str, int] = {}

    def take_over(self) -> None:
        """This node becomes active, and goes on with what an earlier primary has begun."""
        self._waits_for = {}
        for vhost in self._broker.rights.vhosts_going():
            self.go_on(vhost)

    def go_on(self, vhost: str) -> None:
        """The next part of a deletion, unless one is under way, or connections are still there."""
        if self._waits_for.get(vhost) or self._broker.rights.connections_in(vhost):
            return
        topology = self._broker.topology
        exchanges = deque(name for name in topology.exchanges if vhost_of(name) == vhost)
        queues = deque(name for name in topology.queues if vhost_of(name) == vhost)
        self._broker.turn.looked_at(len(topology.exchanges) + len(topology.queues))
        if exchanges or queues:
            self._waits_for[vhost] = 1
            drop = partial(self._drop_queue, vhost, queues)
            then = partial(
                in_pieces,
                self._broker.turn,
                exchanges,
                partial(self._drop_exchange, vhost, exchanges),
                partial(self._answered, vhost, None),
            )
            in_pieces(self._broker.turn, queues, drop, then)
        else:
            self._configure(vhost, vhost_gone_step(vhost))

    def _drop_queue(self, vhost: str, names: deque[str]) -> None:
        name = names.popleft()
        queue = self._broker.topology.queues.get(name)
        if isinstance(queue, LocalQueue):
            self._deletions.drop_local(queue)
        elif queue is not None:
            self._configure(vhost, delete_queue_step(name))

    def _drop_exchange(self, vhost: str, names: deque[str]) -> None:
        """The predeclared ones take their bindings along."""
        name = names.popleft()
        exchange = self._broker.topology.exchanges.get(name)
        if exchange is not None and exchange.durable:
            self._configure(vhost, delete_exchange_step(name))
        elif exchange is not None:
            self._broker.topology.remove_exchange(name)

    def _configure(self, vhost: str, step: Configure) -> None:
        if self._broker.active:
            self._waits_for[vhost] = self._waits_for.get(vhost, 0) + 1
            self._broker.ledger.configure(step, partial(self._answered, vhost))

    def _answered(self, vhost: str, error: str | None) -> None:
        """Of a step. What cannot be carried out at this primary is left to the next one."""
        if error not in (None, Refusal.GONE, Refusal.NOT_EMPTY):
            return
        self._waits_for[vhost] = self._waits_for.get(vhost, 0) - 1
        if not self._waits_for[vhost]:
            del self._waits_for[vhost]
            if vhost in self._broker.rights.vhosts_going():
                self.go_on(vhost)
