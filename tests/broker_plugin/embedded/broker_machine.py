"""Clients do anything, in any order, to the embedded broker and to its model; both must show the same at each step.

A handful of names, so that everything meets everything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.queues.local_queue import LocalQueue
from tests.broker_plugin.embedded.both_sides import BothSides, Recorder
from tests.broker_plugin.embedded.model import Channel
from tests.broker_plugin.embedded.model_routing import Exchange, Refused
from txobserver.ports.ledger import pages

SLOTS = st.integers(0, 3)
QUEUES = st.sampled_from(["a", "b", "c", "d"])
TAGS = st.sampled_from(["s", "t"])
OWN_EXCHANGES = st.sampled_from(["x", "y", "z"])
EXCHANGES = OWN_EXCHANGES | st.sampled_from(["amq.direct", "amq.fanout", "amq.topic", "amq.headers"])
KEYS = st.sampled_from(["", "k", "l", "k.l", "k.l.k"])
PATTERNS = KEYS | st.sampled_from(["#", "*", "*.l", "k.#", "#.k"])
HEADERS = st.sampled_from([{}, {"h": 1}, {"h": True}, {"h": 1.0, "i": 1}, {"h": "1"}, {"i": None}])
ARGUMENTS = st.sampled_from(
    [{}, {"h": 1}, {"h": True}, {"h": 1.0}, {"h": None}, {"h": 1, "i": 1}, {"h": 1, "i": 1, "x-match": "any"}]
)
OPTIONS = st.fixed_dictionaries({"durable": st.booleans(), "auto_delete": st.sampled_from([False, False, True])})
PREFETCH = st.integers(0, 3)
OFTEN = st.sampled_from([True, True, True, False])
SELDOM = st.sampled_from([False, False, False, True])


class BrokerMachine(BothSides):
    """The rules, and what must be the same after each of them.

    Many methods: a rule for each thing that a client may do; hypothesis takes them from one class.
    """

    @initialize(options=st.tuples(OPTIONS, OPTIONS))
    def begin(self, options: tuple[dict[str, bool], dict[str, bool]]) -> None:
        for name, each in zip("ab", options, strict=True):
            self.declare(0, name, each, False)
            self.bind(0, "amq.fanout", name, True, "", {}, True)
            self.bind(0, "amq.headers", name, True, "", {"h": 1}, True)
            self.bind(0, "amq.topic", name, True, "k.#", {}, True)
            self.publish_to_queue(2, name, 3, False)

    @rule(slot=SLOTS, name=QUEUES, options=OPTIONS, exclusive=SELDOM)
    def declare(self, slot: int, name: str, options: dict[str, bool], exclusive: bool) -> None:
        def model(channel: Channel) -> tuple[str, int, int]:
            owner = channel.connection if exclusive else None
            self.model.declare(name, options["durable"], owner, options["auto_delete"])
            queue = self.model.queues[name]
            return name, len(queue.ready), len(queue.consumers)

        def real(client: Recorder, reply: Callable[..., None]) -> None:
            client.ask_declare(name, exclusive=exclusive, reply=reply, **options)

        self.step(slot, real, model)

    @rule(slot=SLOTS, name=QUEUES, purge=st.booleans(), if_unused=st.booleans(), if_empty=st.booleans())
    def purge_or_delete(self, slot: int, name: str, purge: bool, if_unused: bool, if_empty: bool) -> None:
        if purge:
            self.purge(slot, self.known(name))
        else:
            self.step(
                slot,
                lambda c, reply: self.operations.deletions.delete(c.channel, name, if_unused, if_empty, reply),
                lambda channel: self.model.delete(name, channel.connection, if_unused, if_empty),
            )

    @rule(
        slot=SLOTS,
        name=OWN_EXCHANGES,
        kind=st.sampled_from(["direct", "fanout", "topic", "headers"]),
        options=OPTIONS,
        internal=SELDOM,
        alternate=st.none() | EXCHANGES,
    )
    def declare_exchange(
        self, slot: int, name: str, kind: str, options: dict[str, bool], internal: bool, alternate: str | None
    ) -> None:
        arguments = {"alternate-exchange": alternate} if alternate else {}
        request = ExchangeDeclare(name, kind, internal=internal, arguments=arguments, **options)
        self.step(
            slot,
            lambda c, reply: self.operations.exchanges.declare(c.channel, request, reply),
            lambda _: self.model.routing.declare(
                name, Exchange(kind, internal=internal, alternate=alternate, **options)
            ),
        )

    @rule(slot=SLOTS, name=OWN_EXCHANGES, if_unused=st.booleans())
    def delete_exchange(self, slot: int, name: str, if_unused: bool) -> None:
        self.step(
            slot,
            lambda c, reply: self.operations.exchanges.delete(c.channel, name, if_unused, reply),
            lambda _: self.model.routing.delete(name, if_unused),
        )

    @rule(
        slot=SLOTS,
        source=EXCHANGES,
        end=st.tuples(QUEUES, st.just(True)) | st.tuples(OWN_EXCHANGES, st.just(False)),
        key=PATTERNS,
        arguments=ARGUMENTS,
        add=OFTEN,
    )
    def bind_or_unbind(
        self, slot: int, source: str, end: tuple[str, bool], key: str, arguments: dict[str, Any], add: bool
    ) -> None:
        self.bind(slot, source, *end, key, arguments, add)

    @rule(data=st.data(), slot=SLOTS, arguments=st.none() | ARGUMENTS)
    def near_a_binding(self, data: st.DataObject, slot: int, arguments: dict[str, Any] | None) -> None:
        """Take one away that is there, or add one that differs only in its arguments."""
        if self.model.routing.bindings:
            each = data.draw(st.sampled_from(self.model.routing.bindings))
            add = arguments is not None
            self.bind(slot, each.source, each.target, each.to_queue, each.key, arguments or each.arguments, add)

    def known(self, name: str) -> str:
        """This queue, or one that is there: what is not there has a rule of its own."""
        names = sorted(self.model.queues)
        return name if name in names or not names else names[ord(name) % len(names)]

    @rule(slot=SLOTS, name=QUEUES, times=st.integers(1, 5), mandatory=st.booleans())
    def publish_to_queue(self, slot: int, name: str, times: int, mandatory: bool) -> None:
        for _ in range(times):
            self.publish(slot, "", self.known(name), {}, mandatory)

    @rule(slot=SLOTS, exchange=EXCHANGES, key=KEYS, headers=HEADERS, mandatory=st.booleans())
    def publish_to_exchange(self, slot: int, exchange: str, key: str, headers: dict[str, Any], mandatory: bool) -> None:
        self.publish(slot, exchange, key, headers, mandatory)

    @rule(slot=SLOTS, name=QUEUES, no_ack=SELDOM, times=st.integers(1, 3))
    def get(self, slot: int, name: str, no_ack: bool, times: int) -> None:
        for _ in range(times):
            self.get_one(slot, self.known(name), no_ack)

    @rule(slot=SLOTS, name=QUEUES, tag=TAGS, prefetch=st.none() | PREFETCH, no_ack=SELDOM, exclusive=SELDOM)
    def consume(self, slot: int, name: str, tag: str, prefetch: int | None, no_ack: bool, exclusive: bool) -> None:
        if prefetch is not None:
            self.qos(slot, prefetch, False)
        self.ask_consume(slot, self.known(name), tag, no_ack, exclusive)

    def ask_consume(self, slot: int, name: str, tag: str, no_ack: bool, exclusive: bool) -> None:
        def real(client: Recorder, reply: Callable[..., None]) -> None:
            client.channel.consume(name, tag, no_ack, exclusive, {}, lambda tag: reply())

        self.step(slot, real, lambda channel: self.model.consume(channel, name, tag, no_ack, exclusive))

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        tags = [(slot, tag) for slot, channel in self.channels.items() for tag in channel.consumers]
        slot, tag = data.draw(st.sampled_from(tags or [(0, "nobody")]))
        self.both(slot, lambda channel: channel.cancel(tag), lambda channel: self.model.cancel(channel, tag))

    @rule(data=st.data(), slot=SLOTS, prefetch=PREFETCH, whole_channel=OFTEN)
    def limit(self, data: st.DataObject, slot: int, prefetch: int, whole_channel: bool) -> None:
        """Another limit, where there is a consumer if there is one: it may hold more than that, and more may wait."""
        consumers = [(slot, each) for slot, channel in self.channels.items() for each in channel.consumers.values()]
        if consumers:
            slot, consumer = data.draw(st.sampled_from(consumers))
            for _ in range(3):
                self.publish(2, "", consumer.queue.name, {}, False)
        self.qos(slot, prefetch, whole_channel)

    def qos(self, slot: int, prefetch: int, whole_channel: bool) -> None:
        def limited(channel: Any) -> None:
            channel.prefetch = prefetch if whole_channel else 0
            if not whole_channel:
                channel.consumer_prefetch = prefetch

        self.both(slot, lambda ch: ch.qos(prefetch, whole_channel), limited)

    @rule(data=st.data(), slot=SLOTS, name=QUEUES, multiple=st.booleans(), everything=SELDOM)
    def acknowledge(self, data: st.DataObject, slot: int, name: str, multiple: bool, everything: bool) -> None:
        tag = self.outstanding(data, slot, name)
        self.settle_one(tag, multiple, everything, lambda channel, tag: channel.ack(tag, multiple), False)

    @rule(data=st.data(), slot=SLOTS, name=QUEUES, multiple=st.booleans(), everything=SELDOM, requeue=OFTEN)
    def reject(
        self, data: st.DataObject, slot: int, name: str, multiple: bool, everything: bool, requeue: bool
    ) -> None:
        tag = self.outstanding(data, slot, name)
        self.settle_one(tag, multiple, everything, lambda channel, tag: channel.reject(tag, multiple, requeue), requeue)

    def outstanding(self, data: st.DataObject, slot: int, name: str) -> tuple[int, int]:
        """A slot and a delivery tag that is outstanding there, of a message that is fetched now if there is none."""
        if not any(channel.unacked for channel in self.channels.values()):
            self.get_one(slot, self.known(name), False)
        tags = [(slot, tag) for slot, channel in self.channels.items() for tag in channel.unacked]
        return data.draw(st.sampled_from(tags or [(slot, 1)]))

    @rule(slot=SLOTS, what=st.sampled_from(["get", "consume", "purge", "publish", "ack", "nack", "commit", "rollback"]))
    def ask_for_what_is_not_there(self, slot: int, what: str) -> None:
        """A queue, an exchange, a delivery tag, a transaction; the channel goes."""
        if what == "get":
            self.get_one(slot, "nowhere", False)
        elif what == "purge":
            self.purge(slot, "nowhere")
        elif what == "publish":
            self.publish(slot, "nowhere", "", {}, True)
        elif what == "consume":
            self.ask_consume(slot, "nowhere", "s", False, False)
        elif what == "commit":
            self.commit(slot)
        elif what == "rollback":
            self.rollback(slot)
        else:
            real = (lambda ch: ch.ack(99, True)) if what == "ack" else (lambda ch: ch.reject(99, False, True))
            self.both(slot, real, lambda ch: self.model.settle(ch, 99, what == "ack", False))

    @rule(slot=SLOTS, mode=st.sampled_from(["tx", "tx", "confirm"]))
    def select(self, slot: int, mode: str) -> None:
        def model(channel: Channel) -> None:
            if channel.mode not in ("", mode):
                raise Refused(406)
            channel.mode = mode

        self.both(slot, lambda ch: ch.mode.select_tx() if mode == "tx" else ch.mode.select_confirms(), model)

    @rule(data=st.data(), slot=SLOTS, commit=OFTEN)
    def end_transaction(self, data: st.DataObject, slot: int, commit: bool) -> None:
        """One that is open; else one begins, for later."""
        slots = [slot for slot, channel in self.channels.items() if channel.mode == "tx"]
        if not slots:
            self.select(slot, "tx")
        elif commit:
            self.commit(data.draw(st.sampled_from(slots)))
        else:
            self.rollback(data.draw(st.sampled_from(slots)))

    @rule(slot=SLOTS, connection_too=SELDOM)
    def close(self, slot: int, connection_too: bool) -> None:
        if slot in self.clients:
            channel = self.clients[slot].channel
            self.close_model(slot, connection_too)
            (channel.session if connection_too else channel).close()
            self.settle()

    @invariant()
    def queues_agree(self) -> None:
        there = self.harness.broker.topology.queues
        assert {(n, q.durable, q.auto_delete) for n, q in there.items()} == {
            (n, q.durable, q.auto_delete) for n, q in self.model.queues.items()
        }
        for name, queue in self.model.queues.items():
            assert there[name].ready == len(queue.ready), name
            assert len(there[name].consumers) == len(queue.consumers), name
            assert self.content(name) == [copy.body for copy in queue.all()], name
            idle = [each.tag for each in queue.consumers if each.capacity() > 0]
            assert not (queue.ready and idle), f"{idle} could take more of {name}"

    def content(self, name: str) -> list[bytes]:
        """Everything in a queue, in whosever hands, in order."""
        queue = self.harness.broker.topology.queues[name]
        if isinstance(queue, LocalQueue):
            return [message.body for _, message in sorted([*queue._fresh, *queue._returned, *queue._out.items()])]
        return [entry.message.body for _, entry in pages(self.harness.content, queue.number)]

    @invariant()
    def routing_agrees(self) -> None:
        topology = self.harness.broker.topology
        own = {(n, e.kind, e.durable) for n, e in topology.exchanges.items() if n and n != "amq.rabbitmq.trace"}
        model = self.model.routing
        assert own - {("amq.match", "headers", True)} == {(n, e.kind, e.durable) for n, e in model.exchanges.items()}
        for name in model.exchanges:
            assert topology.bindings_from(name) == sum(each.source == name for each in model.bindings), name

    @invariant()
    def clients_agree(self) -> None:
        for slot, channel in self.channels.items():
            client = self.clients[slot]
            assert list(client.channel.unacked) == list(channel.unacked)
            assert client.channel.held == len([each for each in channel.held() if each.consumer])
            assert set(client.channel.consumers) == set(channel.consumers)
            assert client.returns == channel.returned
            assert sorted(client.cancelled_tags) == sorted(channel.cancelled)
            assert client.confirmed_numbers() == list(range(1, channel.confirmed + 1))

    def teardown(self) -> None:
        """What every queue gives in the end, message by message."""
        for number, connection in list(self.connections.items()):
            self.disconnect_model(number)
            connection.session.close()  # type: ignore[attr-defined]
            self.settle()
        for name, queue in list(self.model.queues.items()):
            while queue.ready:
                self.get_one(0, name, True)
            self.get_one(0, name, True)
