"""basic.consume: under the names' locks, so that no consumer comes to a queue that is on its way out.

The stream does not know of consumers. So a deletion that depends on there being none (if-unused, auto-delete) is judged
by the queue's primary, and holds the queue's name until it is applied. What the stream must know, since another primary
goes by it, is that an auto-delete queue has had a consumer: it goes with a primary at which it had its last one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from broker_plugin.embedded.errors import AmqpError, located, not_configured, precondition, refused
from broker_plugin.embedded.operations.queue_arguments import check_consumer_arguments
from broker_plugin.embedded.operations.queue_deletions import QueueDeletions
from broker_plugin.embedded.operations.requester import Requester
from broker_plugin.embedded.queues.consumer import Consumer, PlacedConsumer
from broker_plugin.embedded.queues.message_headers import OFFSET
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.rights.rights import QUEUE, READ
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.unsupported import unsupported_of_consumer
from txobserver.configuration import use_queue_step


class ConsumeRequest(NamedTuple):
    """``tag`` "" asks for a tag of the broker's making."""

    queue: str
    tag: str
    no_ack: bool
    exclusive: bool
    arguments: Mapping[str, Any]


Reply = Callable[[str], None]
"""Told the consumer tag."""


class ConsumerOperations:
    """How consumers come to queues."""

    def __init__(self, broker: Serving, deletions: QueueDeletions) -> None:
        self._broker = broker
        self._deletions = deletions

    def consume(self, channel: Requester, request: ConsumeRequest, reply: Reply) -> None:
        """basic.consume. Deliveries begin when the turn ends, after the answer."""
        channel.owner.rights.check(READ, QUEUE, request.queue)
        operation = partial(channel.attempt, partial(self._consume, channel, request, reply))
        self._broker.locks.run(("queue", request.queue), operation)

    def left(self, queue: Queue) -> None:
        """A consumer of this queue was cancelled or has gone."""
        self._deletions.consumer_left(queue)

    def _consume(self, channel: Requester, request: ConsumeRequest, reply: Reply) -> None:
        channel.owner.rights.check(READ, QUEUE, request.queue)
        there = channel.consumers.get(request.tag)
        if there is not None and there.queue.deleted:
            there.gone()
            there = None
        channel.tell_cancelled()
        if there is not None:
            raise AmqpError(530, f"attempt to reuse consumer tag '{request.tag}'")
        queue = self._broker.accessible_queue(request.queue, channel.owner)
        self._check(queue, request)
        if queue.durable and queue.auto_delete and not self._broker.content.configuration.queues[queue.name].used:
            self._use(channel, queue, request, reply)
        else:
            self._add(channel, queue, request, reply)

    def _check(self, queue: Queue, request: ConsumeRequest) -> None:
        check_consumer_arguments(queue.name, queue.arguments, request.arguments)
        self._broker.unsupported.meet_arguments("queue", queue.name, unsupported_of_consumer(request.arguments))
        if queue.exclusive_consumer or (request.exclusive and queue.consumers):
            raise refused(f"{located('queue', queue.name)} in exclusive use")
        if request.arguments.get(OFFSET) and not queue.durable:
            raise precondition(f"{located('queue', queue.name)} is not durable: its messages have no offset that stays")

    def _use(self, channel: Requester, queue: Queue, request: ConsumeRequest, reply: Reply) -> None:
        """The queue's first consumer: from here on the queue goes with its last one, whichever node is primary then."""
        key = ("queue", queue.name)
        self._broker.locks.hold(key)

        def done(error: str | None) -> None:
            if error is not None:
                channel.fail(not_configured("queue", queue.name, error))
            else:
                channel.attempt(partial(self._add, channel, queue, request, reply))
            self._broker.locks.release(key)
            if error is None:
                self._deletions.consumer_left(queue)  # if the channel ended meanwhile

        self._broker.ledger.configure(use_queue_step(queue.name), done)

    def _add(self, channel: Requester, queue: Queue, request: ConsumeRequest, reply: Reply) -> None:
        tag = request.tag or f"amq.ctag-{self._broker.unique_name()}"
        kind = PlacedConsumer if request.arguments.get(OFFSET) else Consumer
        consumer = kind(channel, queue, tag, request.no_ack, channel.consumer_prefetch, request.arguments)
        channel.consumers[tag] = consumer
        queue.add_consumer(consumer, request.exclusive)
        reply(tag)
