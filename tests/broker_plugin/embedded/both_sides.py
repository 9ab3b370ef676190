"""One step on both sides: what a client asks of the embedded broker, and the same of its model.

The broker's deliveries are replayed on the model one by one, in the order in which they were made: the model says
whether each may be.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.queues.windows import WindowLimits
from tests.broker_plugin.embedded.harness import Client, Connection, Delivery, Harness, properties
from tests.broker_plugin.embedded.model import Channel, Model
from tests.broker_plugin.embedded.model_routing import Binding, Refused

Real = Callable[["Recorder", Callable[..., None]], object]
"""What a client asks of the broker, given where the answer goes."""

MODES = {1: "tx", 2: "confirm"}
"""By slot."""

PROBES: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("k", {"h": 1}),
    ("k.l", {"h": True}),
    ("k.l.k", {"h": 1.0, "i": 1}),
    ("l", {"h": "1"}),
]


class Recorder(Client):
    """A client whose deliveries stand in one ``record`` with those of all others. A hard error ends its connection."""

    record: list[tuple[Recorder, Delivery]]

    def deliver(self, *arguments: Any) -> None:
        super().deliver(*arguments)
        self.record.append((self, self.deliveries[-1]))

    def failed(self, error: AmqpError) -> None:
        self.errors.append(error)
        (self.channel.session if error.hard else self.channel).close()


class BothSides(RuleBasedStateMachine):
    """``clients`` and ``channels`` are the broker's and the model's view of the channel in each slot.

    There are four slots, two to a connection. They are opened when they are first used, some of them in a mode.
    """

    def __init__(self) -> None:
        super().__init__()
        self.harness = self.make_harness()
        self.model = Model()
        self.bodies = map(str, count())
        self.forget_clients()

    def make_harness(self) -> Harness:
        return Harness(WindowLimits(3, 8))

    def forget_clients(self) -> None:
        self.connections: dict[int, Connection] = {}
        self.clients: dict[int, Recorder] = {}
        self.channels: dict[int, Channel] = {}
        self.record: list[tuple[Recorder, Delivery]] = []

    def open(self, slot: int) -> None:
        """Open the slot's channel, and its connection, unless they are open."""
        if slot in self.clients:
            return
        number = slot // 2
        if number not in self.connections:
            self.connections[number] = self.harness.connect()
        client = self.clients[slot] = Recorder(self.harness)
        client.record = self.record
        client.channel = self.connections[number].session.open_channel(client)  # type: ignore[attr-defined]
        self.channels[slot] = Channel(number, MODES.get(slot, ""))
        if MODES.get(slot) == "tx":
            client.channel.mode.select_tx()
        elif slot in MODES:
            client.channel.mode.select_confirms()

    def step(self, slot: int, real: Real, model: Callable[..., Any]) -> None:
        """Both must answer the same, or refuse with the same code. ``real`` is given where its answer goes."""
        self.open(slot)
        client, channel = self.clients[slot], self.channels[slot]
        answers: list[Any] = []
        try:
            expected, code = [model(channel)], []
        except Refused as refused:
            expected, code = [], [refused.code]
            self.close_model(slot, refused.code == 530)
        try:
            real(client, lambda *answer: answers.append(answer[0] if answer else None))
        except AmqpError as error:
            client.failed(error)
        self.settle()
        assert [error.code for error in client.errors] == code, client.errors
        assert answers == expected

    def both(self, slot: int, real: Callable[[Any], object], model: Callable[[Channel], object]) -> None:
        """A step that is answered with nothing, at once."""
        self.step(slot, lambda client, reply: (real(client.channel), reply()), model)

    def settle(self) -> None:
        """Let everything take effect, and replay on the model who got what."""
        self.harness.settle()
        self.model.look()
        for client, delivery in self.record:
            channel = next(channel for slot, channel in self.channels.items() if self.clients[slot] is client)
            expected = self.model.deliver(channel.consumers[delivery.consumer])
            assert (delivery.tag, delivery.redelivered, delivery.body) == expected
            self.model.look()
        self.record.clear()

    def close_model(self, slot: int, connection_too: bool) -> None:
        if connection_too:
            self.disconnect_model(slot // 2)
        else:
            del self.clients[slot]
            self.model.close(self.channels.pop(slot))

    def disconnect_model(self, number: int) -> None:
        slots = [each for each in self.clients if each // 2 == number]
        self.model.disconnect(number, [self.channels[each] for each in slots])
        del self.connections[number]
        for each in slots:
            del self.clients[each], self.channels[each]

    @property
    def operations(self) -> Any:
        return self.harness.broker.operations

    def purge(self, slot: int, name: str) -> None:
        self.step(
            slot,
            lambda c, reply: self.operations.queues.purge(c.channel, name, reply),
            lambda channel: self.model.purge(name, channel.connection),
        )

    def bind(
        self, slot: int, source: str, target: str, to_queue: bool, key: str, arguments: dict[str, Any], add: bool
    ) -> None:
        operations = self.harness.broker.operations.bindings
        request = BindRequest(source, target, to_queue, key, arguments)
        binding = Binding(source, to_queue, target, key, arguments)
        real, model = (operations.bind, self.model.bind) if add else (operations.unbind, self.model.unbind)
        self.step(slot, lambda c, reply: real(c.channel, request, reply), lambda ch: model(binding, ch.connection))
        self.probe()

    def probe(self) -> None:
        """Where some messages would go from every exchange, by what is remembered of it if anything is."""
        topology = self.harness.broker.topology
        for name, exchange in self.model.routing.exchanges.items():
            for key, headers in PROBES if not exchange.internal else ():
                found = topology.routes.get((name, key)) or topology.route(name, key, properties(headers))
                names = {queue.name for queue in found.local}
                names |= {self.harness.broker.numbered[number].name for number in found.durable}
                assert names == self.model.routing.route(name, key, headers), (name, key, headers)

    def publish(self, slot: int, exchange: str, key: str, headers: dict[str, Any], mandatory: bool) -> None:
        body = next(self.bodies).encode()

        def real(client: Recorder, reply: Callable[..., None]) -> None:
            client.channel.publish(exchange, key, mandatory, properties(headers), body)
            reply()

        self.step(slot, real, lambda ch: self.model.publish(ch, (exchange, key), headers, body, mandatory))

    def get_one(self, slot: int, name: str, no_ack: bool) -> None:
        def real(client: Recorder, reply: Callable[..., None]) -> None:
            client.channel.get(name, no_ack, lambda got: reply(got and (*got[:2], got.message.body, got.remaining)))

        self.step(slot, real, lambda channel: self.model.get(channel, name, no_ack))

    def settle_one(
        self, tag: tuple[int, int], multiple: bool, everything: bool, real: Callable[[Any, int], None], back: bool
    ) -> None:
        """The delivery tag of this slot, or 0 for all."""
        slot, number = tag[0], 0 if everything and multiple else tag[1]
        self.both(slot, lambda ch: real(ch, number), lambda ch: self.model.settle(ch, number, multiple, back))

    def commit(self, slot: int) -> None:
        self.step(slot, lambda client, reply: client.channel.commit(reply), self.model.commit)

    def rollback(self, slot: int) -> None:
        self.both(slot, lambda channel: channel.rollback(), self.model.rollback)
