"""A channel: publishes, deliveries and their acknowledgements, transactions, confirms. No bytes and no frames.

What publishes and acknowledgements belong to depends on the channel's mode (``Mode``).

An operation that must wait for the ledger answers through ``reply``; the caller asks nothing more of the channel
until then, so that a client sees its own requests carried out in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from broker_plugin.embedded.channels.client import Client
from broker_plugin.embedded.channels.mode import Mode
from broker_plugin.embedded.errors import not_found, precondition
from broker_plugin.embedded.operations.consumer_operations import ConsumeRequest, ConsumerOperations
from broker_plugin.embedded.operations.requester import Requester
from broker_plugin.embedded.queues.consumer import Held
from broker_plugin.embedded.queues.outlet import ChannelOutlet
from broker_plugin.embedded.queues.queue import Getter, Queue
from broker_plugin.embedded.queues.subscriber import Taken
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.transactions.transaction import LocalTransaction
from txobserver.events import Message, Removal

PUBLISH_OVERHEAD = 200
"""Bytes that a message on its way is counted for beside its properties and body."""

Tagged = Callable[[str], None]
"""Told a consumer tag."""


def _unheard(tag: str) -> None:
    """No client waits for the answer."""


class Got(NamedTuple):
    """The answer to basic.get: ``remaining`` messages are left in the queue."""

    delivery_tag: int
    redelivered: bool
    message: Message
    remaining: int


class Channel(Requester):
    """What a client does on one channel of its session. ``mode``: which of its modes it is in, to be selected there."""

    def __init__(
        self, broker: Serving, consumer_operations: ConsumerOperations, session: Client, outlet: ChannelOutlet
    ) -> None:
        super().__init__(broker.turn, session, outlet, session.flowing)
        self.session = session
        self._broker = broker
        self._consumer_operations = consumer_operations
        self._ledger = broker.ledger
        self._topology = broker.topology
        self._routes = broker.topology.routes
        self.mode = Mode(broker, self)
        self._getting: tuple[Queue, Getter] | None = None

    # -- publishing

    def publish(self, exchange: str, routing_key: str, mandatory: bool, properties: bytes, body: bytes) -> None:
        """basic.publish. 404 for a missing exchange, 403 for an internal one."""
        route = self._routes.get((exchange, routing_key))
        if route is None:
            route = self._topology.route(exchange, routing_key, properties)
        message = Message(exchange, routing_key, properties, body)
        work = self.mode.work
        if work is not None:
            work.publish(route, message, mandatory)
            return
        durable, local = route
        confirms = self.mode.confirms
        tag = confirms.begin() if confirms is not None else 0
        for queue in local:
            queue.enqueue(message)
        if durable:
            size = len(body) + len(properties) + PUBLISH_OVERHEAD
            self.session.in_flight += size
            self._publishing += 1
            self._ledger.publish(durable, message, partial(self._landed, tag, size))
            return
        if mandatory and not local:
            self.outlet.returned(312, "NO_ROUTE", message)
        if confirms is not None:
            confirms.settle(tag, True)

    def _landed(self, tag: int, size: int, error: str | None) -> None:
        """The outcome of a publish is known."""
        self._publishing -= 1
        self.session.landed(size)
        if self.closed:
            return
        confirms = self.mode.confirms
        if confirms is not None and tag:
            confirms.settle(tag, error is None)
        elif error is not None:
            self.fail(precondition(error))
            return
        if not self._publishing and self._when_quiet is not None:
            waiting, self._when_quiet = self._when_quiet, None
            waiting()

    # -- consuming

    def consume(
        self, name: str, tag: str, no_ack: bool, exclusive: bool, arguments: Mapping[str, Any], reply: Tagged = _unheard
    ) -> None:
        """basic.consume; answers the consumer tag. Deliveries begin when the turn ends, after the answer."""
        request = ConsumeRequest(name, tag, no_ack, exclusive, arguments)
        self._consumer_operations.consume(self, request, reply)

    def cancel(self, tag: str) -> None:
        """basic.cancel. What the consumer holds stays with the channel; an unknown tag is no error."""
        self.tell_cancelled()
        consumer = self.consumers.pop(tag, None)
        if consumer is not None:
            consumer.queue.remove_consumer(consumer)
            self._consumer_operations.left(consumer.queue)

    def get(self, name: str, no_ack: bool, reply: Callable[[Got | None], None]) -> None:
        """basic.get; None if the queue is empty. 404 if it is deleted meanwhile, as if that had been asked first."""
        self.when_quiet(partial(self._get, name, no_ack, reply))

    def _get(self, name: str, no_ack: bool, reply: Callable[[Got | None], None]) -> None:
        queue = self._broker.accessible_queue(name, self.session)
        getter = partial(self._got, queue, no_ack, reply)
        self._getting = queue, getter
        queue.get(getter)

    def _got(self, queue: Queue, no_ack: bool, reply: Callable[[Got | None], None], taken: Taken | None) -> None:
        self._getting = None
        if taken is None:
            answer = partial(self.fail, not_found("queue", queue.name)) if queue.deleted else partial(reply, None)
            answer()
            return
        offset, redelivered, message = taken
        self.last_tag += 1
        if no_ack:
            queue.settle((offset,), Removal.ACKED)
        else:
            self.unacked[self.last_tag] = (queue, offset, None)
        reply(Got(self.last_tag, redelivered, message, queue.ready))

    # -- acknowledging

    def ack(self, tag: int, multiple: bool) -> None:
        """basic.ack. 406 for a tag that is not outstanding."""
        self._settle(tag, multiple, Removal.ACKED)

    def reject(self, tag: int, multiple: bool, requeue: bool) -> None:
        """basic.reject and basic.nack."""
        self._settle(tag, multiple, None if requeue else Removal.REJECTED)

    def recover(self) -> None:
        """basic.recover with requeue: everything outstanding goes back to its queue."""
        held, self.unacked = self.unacked, {}
        self._apply(list(held.items()), None)

    def _settle(self, tag: int, multiple: bool, reason: Removal | None) -> None:
        work = self.mode.work
        if multiple:
            settled = self._up_to(tag)
        else:
            held = self.unacked.pop(tag, None)
            if held is None:
                raise precondition(f"unknown delivery tag {tag}")
            if work is None and reason is Removal.ACKED:
                held[0].settle((held[1],), reason)
                if held[2] is not None:
                    held[2].restore()
                return
            settled = [(tag, held)]
        if work is not None:
            work.settle(settled, reason)
        else:
            self._apply(settled, reason)

    def _up_to(self, tag: int) -> list[tuple[int, Held]]:
        """Take everything outstanding up to ``tag``, which must be outstanding itself; 0 means everything."""
        unacked = self.unacked
        if tag and tag not in unacked:
            raise precondition(f"unknown delivery tag {tag}")
        if not tag:
            settled = list(unacked.items())
            unacked.clear()
            return settled
        return [(each, unacked.pop(each)) for each in list(takewhile(tag.__ge__, unacked))]

    def _apply(self, settled: list[tuple[int, Held]], reason: Removal | None) -> None:
        by_queue: dict[Queue, list[int]] = {}
        for _, (queue, offset, consumer) in settled:
            by_queue.setdefault(queue, []).append(offset)
            if consumer is not None:
                consumer.restore()
        for queue, offsets in by_queue.items():
            if reason is None:
                queue.give_back(offsets)
            else:
                queue.settle(offsets, reason)

    # -- transactions

    def commit(self, reply: Callable[[], None]) -> None:
        """tx.commit; a commit that fails has rolled back and closes the channel with 406."""
        tx = self.mode.next_transaction()
        tx.commit(partial(self._committed, tx, reply))

    def _committed(self, tx: LocalTransaction, reply: Callable[[], None], error: str | None) -> None:
        if error is None:
            tx.apply_local()
            if not self.closed:
                for message in tx.returns:
                    self.outlet.returned(312, "NO_ROUTE", message)
                reply()
        elif self.closed:
            self._apply([(tag, held) for tag, held, _ in tx.settled], None)
        else:
            self._take_back(tx)
            self.fail(precondition(error))

    def rollback(self) -> None:
        """tx.rollback: publishes are forgotten, acknowledged messages are outstanding again."""
        tx = self.mode.next_transaction()
        tx.rollback()
        self._take_back(tx)

    def _take_back(self, tx: LocalTransaction) -> None:
        if tx.settled:
            back = [(tag, held) for tag, held, _ in tx.settled]
            self.unacked = dict(sorted([*self.unacked.items(), *back], key=lambda entry: entry[0]))

    # -- the end

    def close(self) -> None:
        """The channel has ended: roll back, and give back what is outstanding.

        A commit that is on its way keeps its acknowledgements until its outcome is known.
        """
        if self.closed:
            return
        self.closed = True
        self.session.forget(self)
        if self._getting is not None:
            self._getting[0].forget_getter(self._getting[1])
        consumers = list(self.consumers.values())
        self.consumers.clear()
        for consumer in consumers:
            consumer.queue.remove_consumer(consumer)
        mode = self.mode
        if mode.dtx is not None:
            mode.dtx.close()
        elif isinstance(mode.work, LocalTransaction):
            mode.work.rollback()
            self._take_back(mode.work)
        self.recover()
        for consumer in consumers:
            self._consumer_operations.left(consumer.queue)
