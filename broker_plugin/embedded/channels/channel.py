"""A channel: publishes, deliveries and their acknowledgements, transactions, confirms. No bytes and no frames.

What publishes and acknowledgements belong to depends on the channel's mode (``Mode``).

An operation that must wait for the ledger answers through ``reply``; the caller asks nothing more of the channel
until then, so that a client sees its own requests carried out in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from broker_plugin.embedded.channels.client import Client
from broker_plugin.embedded.channels.mode import Mode
from broker_plugin.embedded.errors import not_found, precondition
from broker_plugin.embedded.operations.consumer_operations import ConsumeRequest, ConsumerOperations
from broker_plugin.embedded.operations.requester import Requester
from broker_plugin.embedded.queues.consumer import Consumer, unheard
from broker_plugin.embedded.queues.message_headers import priority_of
from broker_plugin.embedded.queues.outlet import NO_OUTLET, ChannelOutlet
from broker_plugin.embedded.queues.pieces import Both, Entries, GivingBack, Handing, Listed, SettlingPieces, Take, UpTo
from broker_plugin.embedded.queues.queue import Getter, Queue
from broker_plugin.embedded.queues.subscriber import Taken
from broker_plugin.embedded.queues.turn import LOOKS_A_STEP, in_pieces
from broker_plugin.embedded.rights.rights import QUEUE, READ
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.topology.topology import Route
from broker_plugin.embedded.transactions.branch import Association
from broker_plugin.embedded.transactions.transaction import LocalTransaction
from txobserver.events import Message, Removal

PUBLISH_OVERHEAD = 200
"""Bytes that a message on its way is counted for beside its properties and body."""
COMPARED_A_STEP = 128
"""Headers of bindings with which a message is compared: so many are a step of a turn."""

Tagged = Callable[[str], None]
"""Told a consumer tag."""
Reply = Callable[[], None]


def _unheard(tag: str) -> None:
    """No client waits for the answer."""


class Got(NamedTuple):
    """The answer to basic.get: ``remaining`` messages are left in the queue."""

    delivery_tag: int
    redelivered: bool
    message: Message
    remaining: int


class Channel(Requester):
    """What a client does on one channel of its session. ``mode``: which of its modes it is in, to be selected there.

    Many methods: one for each method of the classes basic and tx, and for what each of them comes to in the end.
    """

    def __init__(
        self, broker: Serving, consumer_operations: ConsumerOperations, session: Client, outlet: ChannelOutlet
    ) -> None:
        super().__init__(broker.turn, session, outlet, session.flowing, broker.counters)
        self.counters.channels_opened += 1
        self.session = session
        self._broker = broker
        self._consumer_operations = consumer_operations
        self._ledger = broker.ledger
        self._topology = broker.topology
        self._routes = broker.topology.routes
        self._writable = session.rights.writable
        self.mode = Mode(broker, self, session)
        self._getting: tuple[Queue, Getter] | None = None

    @property
    def vhost(self) -> str:
        """The virtual host in which it works."""
        return self.session.rights.vhost

    @property
    def awaited(self) -> bool:
        """Whether the client waits for the outcome of a publish; also on a channel that has ended meanwhile."""
        confirms = self.mode.confirms
        return self._publishing > 0 or (confirms is not None and confirms.waits)

    # -- publishing

    def publish(self, exchange: str, routing_key: str, mandatory: bool, properties: bytes, body: bytes) -> None:
        """basic.publish. 404 for a missing exchange, 403 for an internal one, and where the user may not."""
        full = self._writable.get(exchange)
        if full is None:
            full = self.session.rights.check_publish(exchange, routing_key, self._topology.is_topic)
        route = self._routes.get((full, routing_key))
        if route is None:
            topology = self._topology
            route = topology.route(full, routing_key, properties)
            self._turn.looked_at(topology.walked)
            self._turn.spent += topology.compared // COMPARED_A_STEP
        if (reached := len(route.durable) + len(route.local)) >= LOOKS_A_STEP:
            self._turn.looked_at(reached)
        if self._topology.prioritised and priority_of(properties):
            self._meet_priority(route)
        message = Message(exchange, routing_key, properties, body)
        counters = self.counters
        counters.received += 1
        work = self.mode.work
        if work is not None:
            work.publish(route, message, mandatory)
            return
        durable, local = route
        confirms = self.mode.confirms
        tag = 0
        if confirms is not None:
            tag = confirms.begin()
            counters.received_confirm += 1
        if reached:
            counters.routed += 1
        for queue in local:
            queue.enqueue(message)
        if durable:
            size = len(body) + len(properties) + PUBLISH_OVERHEAD
            self.session.in_flight += size
            self._publishing += 1
            self._ledger.publish(durable, message, partial(self._landed, tag, size))
            return
        if not local:
            if mandatory:
                counters.unroutable_returned += 1
                self.outlet.returned(312, "NO_ROUTE", message)
            else:
                counters.unroutable_dropped += 1
        if confirms is not None:
            counters.confirmed += 1
            confirms.settle(tag, True)

    def _meet_priority(self, route: Route) -> None:
        """A message with a priority: RabbitMQ puts it before others in a queue that was declared with priorities."""
        reached = [self._broker.numbered[number].name for number in route.durable if number in self._broker.numbered]
        for name in (*reached, *(queue.name for queue in route.local)):
            if name in self._topology.prioritised:
                self._broker.unsupported.meet("queue", name, "property 'priority'")

    def _landed(self, tag: int, size: int, error: str | None) -> None:
        """The outcome of a publish is known."""
        self._publishing -= 1
        self.session.landed(size)
        if self.closed:
            return
        confirms = self.mode.confirms
        if confirms is not None and tag:
            if error is None:
                self.counters.confirmed += 1
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
        self.session.rights.check(READ, QUEUE, name)
        self.when_quiet(partial(self._get, name, no_ack, reply))

    def _get(self, name: str, no_ack: bool, reply: Callable[[Got | None], None]) -> None:
        self.session.rights.check(READ, QUEUE, name)
        queue = self._broker.accessible_queue(name, self.session)
        getter = partial(self._got, queue, no_ack, reply)
        self._getting = queue, getter
        queue.get(getter)

    def _got(self, queue: Queue, no_ack: bool, reply: Callable[[Got | None], None], taken: Taken | None) -> None:
        self._getting = None
        if taken is None:
            self.counters.get_empty += 1
            answer = partial(self.fail, not_found("queue", queue.name)) if queue.deleted else partial(reply, None)
            answer()
            return
        offset, redelivered, message = taken
        self.last_tag += 1
        if redelivered:
            self.counters.redelivered += 1
        if no_ack:
            self.counters.delivered_get_auto += 1
            queue.settle((offset,), Removal.ACKED)
        else:
            self.counters.delivered_get_manual += 1
            self.unacked.add(self.last_tag, (queue, offset, None))
        reply(Got(self.last_tag, redelivered, message, queue.ready))

    # -- acknowledging

    def ack(self, tag: int, multiple: bool, done: Reply = unheard) -> None:
        """basic.ack. 406 for a tag that is not outstanding. ``done``: another request may be carried out."""
        self._settle(tag, multiple, Removal.ACKED, done)

    def reject(self, tag: int, multiple: bool, requeue: bool, done: Reply = unheard) -> None:
        """basic.reject and basic.nack."""
        self._settle(tag, multiple, None if requeue else Removal.REJECTED, done)

    def recover(self, done: Reply = unheard) -> None:
        """basic.recover with requeue: everything outstanding goes back to its queue."""
        GivingBack(self._turn, self._up_to(0), partial(self._answer, done)).run()

    def _settle(self, tag: int, multiple: bool, reason: Removal | None, done: Reply) -> None:
        work = self.mode.work
        answer = done
        if multiple:
            take, answer = self._up_to(tag), partial(self._answer, done)
        else:
            held = self.unacked.pop(tag)
            if held is None:
                raise precondition(f"unknown delivery tag {tag}")
            if work is None and reason is Removal.ACKED:
                self.counters.acknowledged += 1
                held[0].settle((held[1],), reason)
                if held[2] is not None:
                    held[2].restore()
                done()
                return
            take = Listed([(tag, held, None)]).take
        if work is not None:
            Handing(self._turn, take, partial(self._settle_in, work, reason), answer).run()
        elif reason is None:
            GivingBack(self._turn, take, answer).run()
        else:
            SettlingPieces(self._turn, self._counted(take, reason), reason, answer).run()

    def _counted(self, take: Take, reason: Removal) -> Take:
        """The same, and acknowledgements are counted as they are taken."""
        if reason is not Removal.ACKED:
            return take
        counters = self.counters

        def taken(most: int) -> Entries:
            entries = take(most)
            counters.acknowledged += len(entries)
            return entries

        return taken

    def _settle_in(self, work: Association | LocalTransaction, reason: Removal | None, entries: Entries) -> None:
        """A piece of what is settled inside a unit of work; if the channel has ended meanwhile it is rolled back."""
        if self.closed:
            self._give_back(entries)
        else:
            work.settle(entries, reason)

    def _give_back(self, entries: Entries) -> None:
        GivingBack(self._turn, Listed([(tag, held, None) for tag, held in entries]).take).run()

    def _up_to(self, tag: int) -> Take:
        """Everything outstanding up to ``tag``, which must be outstanding itself; 0 means everything."""
        if tag and tag not in self.unacked:
            raise precondition(f"unknown delivery tag {tag}")
        return UpTo(self.unacked, tag or self.last_tag).take

    def _answer(self, done: Reply) -> None:
        """Piece by piece, what the client asked for has been done; unless its channel has ended meanwhile."""
        if not self.closed:
            done()

    # -- transactions

    def commit(self, reply: Callable[[], None]) -> None:
        """tx.commit; a commit that fails has rolled back and closes the channel with 406."""
        tx = self.mode.next_transaction()
        tx.commit(self._turn, partial(self._committed, tx, reply))

    def _committed(self, tx: LocalTransaction, reply: Callable[[], None], error: str | None) -> None:
        if error is None:
            tx.count(self.counters)
            tx.apply_local(self._turn, partial(self._answer_commit, tx, reply))
        elif self.closed:
            self.counters.transactions_failed += 1
            tx.wait_no_more(self._turn)
            GivingBack(self._turn, Listed(tx.settled).take).run()
        else:
            self.counters.transactions_failed += 1
            tx.wait_no_more(self._turn)
            self._take_back(tx, partial(self.fail, precondition(error)))

    def _answer_commit(self, tx: LocalTransaction, reply: Callable[[], None]) -> None:
        if not self.closed:
            for message in tx.returns:
                self.outlet.returned(312, "NO_ROUTE", message)
            reply()

    def rollback(self, done: Reply = unheard) -> None:
        """tx.rollback: publishes are forgotten, acknowledged messages are outstanding again."""
        self.counters.transactions_rolled_back += 1
        tx = self.mode.next_transaction()
        tx.rollback(self._turn)
        self._take_back(tx, done)

    def _take_back(self, tx: LocalTransaction, done: Reply) -> None:
        Handing(self._turn, Listed(tx.settled).take, self._hold_again, partial(self._answer, done)).run()

    def _hold_again(self, entries: Entries) -> None:
        """A piece of what a rollback brings back; if the channel has ended meanwhile it goes back to its queues."""
        if self.closed:
            self._give_back(entries)
        else:
            self.unacked.put_back(entries)

    # -- the end

    def close(self, done: Reply = unheard) -> None:
        """The channel has ended: roll back, and give back what is outstanding. ``done``: all of it is back.

        A commit that is on its way keeps its acknowledgements until its outcome is known.
        """
        if self.closed:
            return
        self.closed = True
        self.counters.channels_closed += 1
        self.session.forget(self)
        if self._getting is not None:
            self._getting[0].forget_getter(self._getting[1])
        consumers = deque(self.consumers.values())
        self.consumers.clear()
        for consumer in consumers:
            consumer.queue.remove_consumer(consumer)
        mode, take = self.mode, self._up_to(0)
        if mode.dtx is not None:
            mode.dtx.close()
        elif isinstance(mode.work, LocalTransaction):
            mode.work.rollback(self._turn)
            take = Both(Listed(mode.work.settled).take, take).take
        GivingBack(self._turn, take, partial(self._left, consumers, done)).run()

    def abandon(self) -> None:
        """This node is no longer the primary."""
        self.counters.channels_closed += not self.closed
        super().abandon()

    def _left(self, consumers: deque[Consumer], done: Reply) -> None:
        """The queues that go with their last consumer go, as many in a turn as it has room for, and then ``done``;
        unless this node is no longer the primary that the channel was opened at.
        """
        in_pieces(self._turn, consumers, partial(self._one_left, consumers), partial(self._all_left, done))

    def _one_left(self, consumers: deque[Consumer]) -> None:
        queue = consumers.popleft().queue
        if self._serves():
            self._consumer_operations.left(queue)

    def _serves(self) -> bool:
        return self._broker.active and self._broker.ledger is self._ledger

    def _all_left(self, done: Reply) -> None:
        """Nothing leads from the channel to its client any more, so its memory is free at once: what is left in a
        circle is free when the collector comes, which is seldom (``channels_in_circles``)."""
        if self._serves():
            done()
        self.mode.leave()
        self.outlet = NO_OUTLET
