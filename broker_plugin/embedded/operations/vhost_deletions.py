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

Term = dict[str, int]
"""Of each virtual host that is being deleted, for how many parts of the deletion it waits; one for each time that this
node is primary, so that what an earlier one has left behind in the turn ends with it (``an_earlier_term_s_pieces``)."""


class VhostDeletions:
    """Of the active primary."""

    def __init__(self, broker: Serving, deletions: QueueDeletions) -> None:
        self._broker = broker
        self._deletions = deletions
        self._term: Term = {}

    def take_over(self) -> None:
        """This node becomes active, and goes on with what an earlier primary has begun."""
        self._term = {}
        for vhost in self._broker.rights.vhosts_going():
            self.go_on(vhost)

    def go_on(self, vhost: str) -> None:
        """The next part of a deletion, unless one is under way, connections are there, or this node is taking over."""
        broker = self._broker
        if self._term.get(vhost) or broker.loading or broker.rights.connections_in(vhost):
            return
        topology, turn, term = broker.topology, broker.turn, self._term
        exchanges = deque(name for name in topology.exchanges if vhost_of(name) == vhost)
        queues = deque(name for name in topology.queues if vhost_of(name) == vhost)
        turn.looked_at(len(topology.exchanges) + len(topology.queues))
        if exchanges or queues:
            term[vhost] = 1
            over = partial(self._answered, term, vhost, None)
            drop = partial(self._drop_exchange, term, vhost, exchanges)
            then = partial(in_pieces, turn, exchanges, drop, over)
            in_pieces(turn, queues, partial(self._drop_queue, term, vhost, queues), then)
        else:
            self._configure(term, vhost, vhost_gone_step(vhost))

    def _drop_queue(self, term: Term, vhost: str, names: deque[str]) -> None:
        name = names.popleft()
        queue = self._broker.topology.queues.get(name)
        if term is not self._term:
            names.clear()
        elif isinstance(queue, LocalQueue):
            self._deletions.drop_local(queue)
        elif queue is not None:
            self._configure(term, vhost, delete_queue_step(name))

    def _drop_exchange(self, term: Term, vhost: str, names: deque[str]) -> None:
        """The predeclared ones take their bindings along."""
        name = names.popleft()
        exchange = self._broker.topology.exchanges.get(name)
        if term is not self._term:
            names.clear()
        elif exchange is not None and exchange.durable:
            self._configure(term, vhost, delete_exchange_step(name))
        elif exchange is not None:
            self._broker.topology.remove_exchange(name)

    def _configure(self, term: Term, vhost: str, step: Configure) -> None:
        if self._broker.active:
            term[vhost] = term.get(vhost, 0) + 1
            self._broker.ledger.configure(step, partial(self._answered, term, vhost))

    def _answered(self, term: Term, vhost: str, error: str | None) -> None:
        """Of a step. What cannot be carried out at this primary is left to the next one."""
        if term is not self._term or error not in (None, Refusal.GONE, Refusal.NOT_EMPTY):
            return
        term[vhost] -= 1
        if not term[vhost]:
            del term[vhost]
            if vhost in self._broker.rights.vhosts_going():
                self.go_on(vhost)
