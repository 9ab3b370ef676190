"""How queues go: by queue.delete, and by themselves (exclusive, auto-delete). Bindings and consumers go with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from broker_plugin.embedded.errors import located, not_configured, precondition
from broker_plugin.embedded.operations.exchange_operations import ExchangeOperations
from broker_plugin.embedded.operations.requester import Requester
from broker_plugin.embedded.queues.draining import SPARED_MOST
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.turn import in_pieces
from broker_plugin.embedded.rights.rights import CONFIGURE, QUEUE
from broker_plugin.embedded.serving import Serving, check_access, nothing
from txobserver.configuration import delete_queue_step
from txobserver.events import Terms

Counted = Callable[[int], None]
"""Told how many messages went with a queue."""


class QueueDeletions:
    """Who ends a queue, and what ends with it. Exchanges that lose a binding may go, too."""

    def __init__(self, broker: Serving, exchanges: ExchangeOperations) -> None:
        self._broker = broker
        self._exchanges = exchanges

    def delete(self, channel: Requester, name: str, if_unused: bool, if_empty: bool, reply: Counted) -> None:
        """queue.delete; answers how many ready messages went with it. A missing queue is deleted already."""
        channel.owner.rights.check(CONFIGURE, QUEUE, name)
        operation = partial(channel.attempt, partial(self._delete, channel, name, if_unused, if_empty, reply))
        channel.when_quiet(partial(self._broker.locks.run, ("queue", name), operation))

    def _delete(self, channel: Requester, name: str, if_unused: bool, if_empty: bool, reply: Counted) -> None:
        channel.owner.rights.check(CONFIGURE, QUEUE, name)
        queue = self._broker.topology.queues.get(name)
        if queue is None:
            reply(0)
            return
        check_access(queue, channel.owner)
        if if_unused and queue.consumers:
            raise precondition(f"{located('queue', name)} in use")
        if if_empty and queue.ready:
            raise precondition(f"{located('queue', name)} not empty")
        if if_empty and queue.returning:
            queue.when_whole(partial(self.delete, channel, name, if_unused, if_empty, reply))
        elif isinstance(queue, DurableQueue):
            terms = self._empty_but_for_hands(queue) if if_empty else Terms()
            self._delete_durable(queue, terms, partial(self._deleted, channel, queue, reply))
        elif isinstance(queue, LocalQueue):
            count = queue.ready
            self.drop_local(queue)
            self._answer_deleted(channel, reply, count)

    def _deleted(self, channel: Requester, queue: DurableQueue, reply: Counted, error: str | None) -> None:
        if error is not None:
            channel.fail(not_configured("queue", queue.name, error))
        else:
            self._answer_deleted(channel, reply, queue.removed_count)

    def _answer_deleted(self, channel: Requester, reply: Counted, count: int) -> None:
        """The auto-delete exchanges that went with the queue's bindings have gone when it is told."""
        self._exchanges.when_left(channel, partial(reply, count))

    def _empty_but_for_hands(self, queue: DurableQueue) -> Terms:
        """What clients hold of a queue: unless the stream itself locks it, or is about to, and lets it go again.

        Nothing is ready, so of many messages only the last is named (``deletion_if_empty_of_what_clients_hold``).
        406 if there are many, and branches lock some: what comes back of those would not be told apart.
        """
        locked, out = self._broker.branches.locked(queue), queue.offsets_out()
        self._broker.turn.looked_at(len(out) + self._broker.branches.settled)
        if len(out) > SPARED_MOST:
            if locked:
                raise precondition(f"{located('queue', queue.name)} not empty")
            return Terms(True, through=max(out))
        return Terms(True, [offset for offset in out if offset not in locked])

    def _delete_durable(self, queue: DurableQueue, terms: Terms, told: Callable[[str | None], None]) -> None:
        """Nothing is handed out from here on, so that what is counted is what goes. No consumer can come meanwhile."""
        key = ("queue", queue.name)
        self._broker.locks.hold(key)
        queue.hold()

        def done(error: str | None) -> None:
            if error is not None:
                queue.release()
            told(error)
            self._broker.locks.release(key)

        self._broker.ledger.configure(delete_queue_step(queue.name, terms), done)

    def drop_local(self, queue: LocalQueue) -> None:
        """A queue of this node's memory goes."""
        if queue.owner is not None:
            queue.owner.exclusive.pop(queue.name, None)
        self.forget(queue)

    def drop_exclusive(self, owner: Owner) -> None:
        """A connection has ended: its exclusive queues go with it, in as many turns as it takes. Until then they are
        locked, as they were, and a declaration of such a name finds that its queue is gone (``drop_if_orphaned``).
        """
        owner.gone = True
        in_pieces(self._broker.turn, owner.exclusive, partial(self._drop_one, owner), nothing)

    def _drop_one(self, owner: Owner) -> None:
        name, _ = owner.exclusive.popitem()  # the last: to find the first one behind many that are gone takes long
        self._drop_of(owner, name)

    def _drop_of(self, owner: Owner, name: str) -> None:
        queue = self._broker.topology.queues.get(name)
        if isinstance(queue, LocalQueue) and queue.owner is owner:
            self.drop_local(queue)

    def drop_if_orphaned(self, name: str) -> None:
        """A queue of this name goes now if its connection has ended, and its turn has not come."""
        queue = self._broker.topology.queues.get(name)
        if queue is not None and queue.owner is not None and queue.owner.gone:
            self._drop_of(queue.owner, name)

    def forget(self, queue: Queue) -> None:
        """A queue is gone: its bindings go, its consumers are told, as many in a turn as it has room for."""
        sources = self._broker.topology.remove_queue(queue.name)
        consumers = deque(queue.consumers)
        in_pieces(self._broker.turn, consumers, lambda: consumers.popleft().gone(), nothing)
        queue.drop()
        self._exchanges.lost_bindings(sources)

    def consumer_left(self, queue: Queue) -> None:
        """A consumer was cancelled or has gone: an auto-delete queue goes with its last one."""
        if queue.auto_delete and not queue.consumers and not queue.deleted:
            self._broker.locks.run(("queue", queue.name), partial(self.delete_unused, queue))

    def delete_unused(self, queue: Queue) -> None:
        """A queue goes by itself, unless a consumer has come, or it is gone. Under the lock of its name."""
        if queue.deleted or queue.consumers or not self._broker.active:
            return
        if isinstance(queue, DurableQueue):
            self._delete_durable(queue, Terms(), lambda error: None)
        elif isinstance(queue, LocalQueue):
            self.drop_local(queue)

    def take_over(self, name: str) -> None:
        """This node becomes active: the consumers that this queue had at an earlier primary have gone with it."""
        spec = self._broker.content.configuration.queues.get(name)
        if spec is not None and spec.used:
            self.consumer_left(self._broker.topology.queues[name])
