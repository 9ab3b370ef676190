"""What a broker is, in plain lists: the model that the embedded broker is held against.

Every operation takes effect at once and as a whole. Nothing here is fast, and nothing is shared with the broker but
the names of things. An operation that a client may not do raises Refused with the reply code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.broker_plugin.embedded.model_routing import Binding, Refused, Routing

UNLIMITED = 1 << 40


@dataclass(eq=False)
class Copy:
    """A message in one queue. Its ``offset`` is where it stands again when it comes back."""

    offset: int
    body: bytes
    seen: bool = False


@dataclass(eq=False)
class Queue:
    """``ready`` is in order; what a client holds stands in ``out``."""

    name: str
    durable: bool
    owner: int | None
    auto_delete: bool
    ready: list[Copy] = field(default_factory=list)
    out: list[Copy] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    exclusive: bool = False
    used: bool = False
    """Whether it has ever had a consumer"""

    @property
    def lasting(self) -> bool:
        """Whether it outlives its primary, which takes all consumers with it."""
        return self.durable and not (self.auto_delete and self.used)

    def all(self) -> list[Copy]:
        return sorted(self.ready + self.out, key=lambda copy: copy.offset)

    def take(self) -> Copy:
        copy = self.ready.pop(0)
        self.out.append(copy)
        return copy

    def give_back(self, copy: Copy) -> None:
        if copy in self.out:
            self.out.remove(copy)
            copy.seen = True
            self.ready = sorted([*self.ready, copy], key=lambda each: each.offset)

    def drop(self, copy: Copy) -> None:
        if copy in self.out:
            self.out.remove(copy)


@dataclass(eq=False)
class Consumer:
    """``served`` and ``able`` are points of the model's time: the last delivery, and since when it could take one."""

    tag: str
    channel: Channel
    queue: Queue
    no_ack: bool
    prefetch: int
    served: int = 0
    able: int | None = None

    def capacity(self) -> int:
        if self.no_ack:
            return UNLIMITED
        held = [each.consumer for each in self.channel.held()]
        mine = (self.prefetch or UNLIMITED) - held.count(self)
        return min(mine, (self.channel.prefetch or UNLIMITED) - len(held) + held.count(None))


@dataclass(eq=False)
class Held:
    """A message in a client's hands, by consumer (None: by basic.get)."""

    queue: Queue
    copy: Copy
    consumer: Consumer | None


@dataclass(eq=False)
class Channel:
    """``settled`` are acknowledgements of the open transaction: delivery tag, message, and whether it goes back."""

    connection: int
    mode: str = ""
    consumers: dict[str, Consumer] = field(default_factory=dict)
    unacked: dict[int, Held] = field(default_factory=dict)
    last_tag: int = 0
    consumer_prefetch: int = 0
    prefetch: int = 0
    published: list[tuple[list[Queue], bytes, bool]] = field(default_factory=list)
    settled: list[tuple[int, Held, bool]] = field(default_factory=list)
    returned: list[bytes] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    confirmed: int = 0

    def held(self) -> list[Held]:
        """Everything in this channel's hands, also what its open transaction acknowledges."""
        return [*self.unacked.values(), *(held for _, held, _ in self.settled)]


class Model:
    """One broker. ``now`` counts deliveries, for fairness.

    Many methods: one for each thing that a client may do, over queues that all of them share.
    """

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.routing = Routing()
        self.now = 0
        self._offsets = 0

    # -- queues

    def queue(self, name: str, connection: int) -> Queue:
        if name not in self.queues:
            raise Refused(404)
        if self.queues[name].owner not in (None, connection):
            raise Refused(405)
        return self.queues[name]

    def declare(self, name: str, durable: bool, owner: int | None, auto_delete: bool) -> None:
        durable = durable and owner is None
        there = self.queues.get(name)
        if there is None:
            self.queues[name] = Queue(name, durable, owner, auto_delete)
        elif there.owner != owner:
            raise Refused(405)
        elif (there.durable, there.auto_delete) != (durable, auto_delete):
            raise Refused(406)

    def delete(self, name: str, connection: int, if_unused: bool = False, if_empty: bool = False) -> int:
        if name not in self.queues:
            return 0
        queue = self.queue(name, connection)
        if (if_unused and queue.consumers) or (if_empty and queue.ready):
            raise Refused(406)
        self.remove(queue)
        return len(queue.ready)

    def remove(self, queue: Queue) -> None:
        del self.queues[queue.name]
        for consumer in queue.consumers:
            del consumer.channel.consumers[consumer.tag]
            consumer.channel.cancelled.append(consumer.tag)
        queue.consumers, queue.out = [], []
        self.routing.queue_deleted(queue.name)

    def purge(self, name: str, connection: int) -> int:
        queue = self.queue(name, connection)
        gone, queue.ready = queue.ready, []
        return len(gone)

    # -- bindings

    def bind(self, wanted: Binding, connection: int) -> None:
        self.routing.check_ends(wanted, self.queues)
        self._check_access(wanted, connection)
        self.routing.bind(wanted)

    def unbind(self, gone: Binding, connection: int) -> None:
        same = [each for each in self.routing.bindings if gone.same(each)]
        if same:
            self._check_access(gone, connection)
        self.routing.unbind(same)

    def _check_access(self, binding: Binding, connection: int) -> None:
        if binding.to_queue and binding.target in self.queues:
            self.queue(binding.target, connection)

    # -- publishing

    def publish(
        self, channel: Channel, target: tuple[str, str], headers: dict[str, Any], body: bytes, mandatory: bool
    ) -> None:
        """``target`` is exchange and routing key."""
        exchange, key = target
        names = self.routing.route(exchange, key, headers) if exchange else {key}
        queues = [self.queues[name] for name in names if name in self.queues]
        if channel.mode == "tx":
            channel.published.append((queues, body, mandatory))
            return
        self._enqueue(channel, queues, body, mandatory)
        channel.confirmed += channel.mode == "confirm"

    def _enqueue(self, channel: Channel, queues: list[Queue], body: bytes, mandatory: bool) -> None:
        self._offsets += 1
        for queue in queues:
            queue.ready.append(Copy(self._offsets, body))
        if mandatory and not queues:
            channel.returned.append(body)

    # -- consuming

    def get(self, channel: Channel, name: str, no_ack: bool) -> tuple[int, bool, bytes, int] | None:
        """Delivery tag, redelivered, body, messages left."""
        queue = self.queue(name, channel.connection)
        if not queue.ready:
            return None
        copy = queue.take()
        self._hand_over(channel, Held(queue, copy, None), no_ack)
        return channel.last_tag, copy.seen, copy.body, len(queue.ready)

    def consume(self, channel: Channel, name: str, tag: str, no_ack: bool, exclusive: bool) -> None:
        if tag in channel.consumers:
            raise Refused(530)
        queue = self.queue(name, channel.connection)
        if queue.exclusive or (exclusive and queue.consumers):
            raise Refused(403)
        consumer = Consumer(tag, channel, queue, no_ack, channel.consumer_prefetch)
        channel.consumers[tag] = consumer
        queue.consumers.append(consumer)
        queue.exclusive = exclusive
        queue.used = True

    def deliver(self, consumer: Consumer) -> tuple[int, bool, bytes]:
        """The consumer gets the first message: delivery tag, redelivered, body. A consumer that waits longer comes
        first."""
        queue = consumer.queue
        assert consumer.capacity() > 0, "a delivery beyond the prefetch limit"
        assert queue.ready, "a delivery from an empty queue"
        for other in queue.consumers:
            waits = other.able is not None and max(other.able, other.served) < consumer.served
            assert not waits, f"{other.tag} was passed over for {consumer.tag}"
        copy = queue.take()
        self._hand_over(consumer.channel, Held(queue, copy, consumer), consumer.no_ack)
        self.now += 1
        consumer.served = self.now
        return consumer.channel.last_tag, copy.seen, copy.body

    def _hand_over(self, channel: Channel, held: Held, no_ack: bool) -> None:
        channel.last_tag += 1
        if no_ack:
            held.queue.drop(held.copy)
        else:
            channel.unacked[channel.last_tag] = held

    def look(self) -> None:
        """Note who can take a message from now on."""
        for consumer in (each for queue in self.queues.values() for each in queue.consumers):
            if consumer.capacity() <= 0:
                consumer.able = None
            elif consumer.able is None:
                consumer.able = self.now

    def cancel(self, channel: Channel, tag: str) -> None:
        consumer = channel.consumers.pop(tag, None)
        if consumer is None:
            return
        queue = consumer.queue
        queue.consumers.remove(consumer)
        queue.exclusive = False
        if queue.auto_delete and not queue.consumers:
            self.remove(queue)

    def settle(self, channel: Channel, tag: int, multiple: bool, back: bool) -> None:
        """Acknowledge or reject (both end a message), or give back."""
        if multiple and tag == 0:
            tags = list(channel.unacked)
        elif tag not in channel.unacked:
            raise Refused(406)
        else:
            tags = [each for each in channel.unacked if each == tag or (multiple and each < tag)]
        for each in tags:
            held = channel.unacked.pop(each)
            if channel.mode == "tx":
                channel.settled.append((each, held, back))
            else:
                self._end(held, back)

    def _end(self, held: Held, back: bool) -> None:
        if back:
            held.queue.give_back(held.copy)
        else:
            held.queue.drop(held.copy)

    def recover(self, channel: Channel) -> None:
        held, channel.unacked = channel.unacked, {}
        for each in held.values():
            self._end(each, True)

    # -- transactions, and the end

    def commit(self, channel: Channel) -> None:
        if channel.mode != "tx":
            raise Refused(406)
        published, channel.published = channel.published, []
        settled, channel.settled = channel.settled, []
        for queues, body, mandatory in published:
            self._enqueue(channel, queues, body, mandatory)
        for _, held, back in settled:
            self._end(held, back)

    def rollback(self, channel: Channel) -> None:
        if channel.mode != "tx":
            raise Refused(406)
        channel.published = []
        channel.unacked.update({tag: held for tag, held, _ in channel.settled})
        channel.unacked = dict(sorted(channel.unacked.items()))
        channel.settled = []

    def close(self, channel: Channel) -> None:
        if channel.mode == "tx":
            self.rollback(channel)
        self.recover(channel)
        for tag in list(channel.consumers):
            self.cancel(channel, tag)

    def disconnect(self, connection: int, channels: Iterable[Channel]) -> None:
        for channel in channels:
            self.close(channel)
        for queue in [each for each in self.queues.values() if each.owner == connection]:
            self.remove(queue)

    # -- a take-over

    def take_over(self, kept: dict[str, list[Copy]]) -> None:
        """Another primary serves these durable queues; clients, and all that is not durable, are gone."""
        self.routing.keep_durable(self.queues.keys() - kept.keys())
        self.queues = {
            name: Queue(name, True, None, self.queues[name].auto_delete, copies) for name, copies in kept.items()
        }
        self._offsets = max([self._offsets, *(copy.offset for copies in kept.values() for copy in copies)])
