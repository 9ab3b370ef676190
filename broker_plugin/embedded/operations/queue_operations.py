"""queue.declare and queue.purge."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker_plugin.embedded.errors import locked, precondition, refused
from broker_plugin.embedded.operations.equivalence import QUEUE_ARGUMENTS, check_arguments, check_flag
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare, check_queue_arguments
from broker_plugin.embedded.operations.queue_deletions import QueueDeletions
from broker_plugin.embedded.operations.requester import Requester
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.rights.rights import CONFIGURE, QUEUE, READ
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.topology.sizes import queue_bytes
from broker_plugin.embedded.unsupported import unsupported_of_queue
from txobserver.configuration import queue_step
from txobserver.vhosts import beside, local_name, vhost_of


class QueueState(NamedTuple):
    """The answer to a declaration."""

    name: str
    messages: int
    consumers: int


Declared = Callable[[QueueState], None]
Counted = Callable[[int], None]


def queue_state(queue: Queue) -> QueueState:
    """The answer to a declaration of a queue."""
    return QueueState(queue.name, queue.ready, len(queue.consumers))


class QueueOperations:
    """What clients do to queues as a whole, but for what ends them (``QueueDeletions``)."""

    def __init__(self, broker: Serving, deletions: QueueDeletions) -> None:
        self._broker = broker
        self._deletions = deletions

    # -- declare

    def declare(self, channel: Requester, request: QueueDeclare, reply: Declared) -> None:
        """queue.declare; the answer comes when the queue is durable wherever that counts."""
        name = local_name(request.name)
        if name.startswith("amq."):
            raise refused(f"queue name '{name}' contains reserved prefix 'amq.*'")
        if request.exclusive:
            request = request._replace(durable=False)
        if not name:
            request = request._replace(name=beside(request.name, f"amq.gen-{self._broker.unique_name()}"))
        channel.owner.rights.check(CONFIGURE, QUEUE, request.name)
        operation = partial(channel.attempt, partial(self._declare, channel, request, reply))
        channel.when_quiet(partial(self._broker.locks.run, ("queue", request.name), operation))

    def declare_passive(self, channel: Requester, name: str, reply: Declared) -> None:
        """queue.declare with ``passive``: only look."""
        channel.when_quiet(partial(self._look, channel, name, reply))

    def _look(self, channel: Requester, name: str, reply: Declared) -> None:
        queue = self._broker.accessible_queue(name, channel.owner)
        queue.touched = True
        reply(queue_state(queue))

    def _declare(self, channel: Requester, request: QueueDeclare, reply: Declared) -> None:
        channel.owner.rights.check(CONFIGURE, QUEUE, request.name)
        self._deletions.drop_if_orphaned(request.name)
        queue = self._broker.topology.queues.get(request.name)
        if queue is not None:
            self._check_equivalent(queue, request, channel.owner)
            queue.touched = True
            reply(queue_state(queue))
            return
        self._check_number(channel.owner, request.name)
        check_queue_arguments(request)
        self._broker.unsupported.meet_arguments("queue", request.name, unsupported_of_queue(request.arguments))
        self._broker.topology.check_room(queue_bytes(request.name, request.arguments))
        if request.durable and not request.exclusive:
            self._broker.locks.hold(("queue", request.name))
            self._broker.declaring.add(request.name)
            step = queue_step(request.name, request.auto_delete, dict(request.arguments))
            self._broker.ledger.configure(step, partial(self._declared, channel, request, reply))
        else:
            reply(queue_state(self._add_local(channel.owner, request)))

    def _check_number(self, owner: Owner, name: str) -> None:
        """406 if the virtual host has as many queues as it may, those among them that are being declared."""
        most, vhost = owner.rights.most_queues(), owner.rights.vhost
        if most < 0:
            return
        topology, declaring = self._broker.topology, self._broker.declaring
        coming = sum(vhost_of(each) == vhost for each in declaring if each not in topology.queues)
        if most <= topology.queues_in[vhost] + coming:
            reached = f"queue limit in vhost '{vhost}' ({most}) is reached"
            raise precondition(f"cannot declare queue '{local_name(name)}': {reached}")

    def _declared(self, channel: Requester, request: QueueDeclare, reply: Declared, error: str | None) -> None:
        self._broker.declaring.discard(request.name)
        if error is not None:
            channel.fail(precondition(error))
        else:
            channel.attempt(partial(self._tell_declared, channel, request, reply))
        self._broker.locks.release(("queue", request.name))

    def _tell_declared(self, channel: Requester, request: QueueDeclare, reply: Declared) -> None:
        """An import may have declared another one of this name meanwhile: 406 then."""
        queue = self._broker.topology.queues[request.name]
        self._check_equivalent(queue, request, channel.owner)
        reply(queue_state(queue))

    def _add_local(self, owner: Owner, request: QueueDeclare) -> LocalQueue:
        name, _, exclusive, auto_delete, arguments = request
        holder = owner.holder if exclusive else self._broker.memory.shared
        queue = LocalQueue(name, auto_delete, arguments, self._broker.turn, holder, owner if exclusive else None)
        self._broker.topology.add_queue(queue)
        if exclusive:
            owner.exclusive[name] = None
        return queue

    def _check_equivalent(self, queue: Queue, request: QueueDeclare, owner: Owner) -> None:
        name = queue.name
        if queue.owner is not (owner if request.exclusive else None):
            raise locked(name)
        check_flag("queue", name, "durable", request.durable, queue.durable)
        check_flag("queue", name, "auto_delete", request.auto_delete, queue.auto_delete)
        check_arguments("queue", name, request.arguments, queue.arguments, QUEUE_ARGUMENTS)

    # -- purge

    def purge(self, channel: Requester, name: str, reply: Counted) -> None:
        """queue.purge; answers how many messages were removed. What is in a client's hands stays."""
        channel.owner.rights.check(READ, QUEUE, name)
        operation = partial(channel.attempt, partial(self._purge, channel, name, reply))
        channel.when_quiet(partial(self._broker.locks.run, ("queue", name), operation))

    def _purge(self, channel: Requester, name: str, reply: Counted) -> None:
        channel.owner.rights.check(READ, QUEUE, name)
        queue = self._broker.accessible_queue(name, channel.owner)
        if queue.returning:
            queue.when_whole(partial(self.purge, channel, name, reply))
        elif isinstance(queue, LocalQueue):
            reply(queue.purge())
        elif isinstance(queue, DurableQueue):
            self._broker.locks.hold(("queue", name))
            queue.hold()
            queue.purge(partial(self._purged, channel, queue, reply))

    def _purged(self, channel: Requester, queue: DurableQueue, reply: Counted, error: str | None) -> None:
        queue.release()
        if error is not None:
            channel.fail(precondition(error))
        elif not channel.closed:
            reply(queue.removed_count)
        self._broker.locks.release(("queue", queue.name))
