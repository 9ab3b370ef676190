"""A broker whose turns and commit points come when the test says so, and clients that write down what they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pamqp import encode

from broker_plugin.embedded.broker import EmbeddedBroker
from broker_plugin.embedded.channels.channel import Channel, Got
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare
from broker_plugin.embedded.operations.queue_operations import QueueState
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.windows import WindowLimits
from broker_plugin.embedded.unsupported import Unsupported, Warned
from tests.broker_plugin.embedded.local_ledger import LocalLedger
from txobserver.events import Message
from txobserver.ports.ledger import Content
from txobserver.state.applied_content import AppliedContent

PROPERTIES = b"\x00\x00"
"""No property flags."""


def properties(headers: dict[str, Any]) -> bytes:
    """Raw properties with these headers and nothing else."""
    return b"\x20\x00" + encode.field_table(headers) if headers else PROPERTIES


@dataclass
class Delivery:
    """One basic.deliver."""

    consumer: str
    tag: int
    redelivered: bool
    body: bytes


@dataclass
class Client:
    """One channel's ChannelOutlet, with its connection's ConnectionOutlet in ``session``."""

    harness: Harness
    deliveries: list[Delivery] = field(default_factory=list)
    returns: list[bytes] = field(default_factory=list)
    confirms: list[tuple[int, bool, bool]] = field(default_factory=list)
    cancelled_tags: list[str] = field(default_factory=list)
    errors: list[AmqpError] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    channel: Channel = field(init=False)

    # -- ChannelOutlet

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        self.deliveries.append(Delivery(consumer_tag, delivery_tag, redelivered, message.body))

    def returned(self, code: int, text: str, message: Message) -> None:
        self.returns.append(message.body)

    def confirmed(self, delivery_tag: int, multiple: bool, accepted: bool) -> None:
        self.confirms.append((delivery_tag, multiple, accepted))

    def cancelled(self, consumer_tag: str) -> None:
        self.cancelled_tags.append(consumer_tag)

    def failed(self, error: AmqpError) -> None:
        self.errors.append(error)
        self.channel.close()

    # -- what a client does

    def publish(self, queue: str, *bodies: bytes, exchange: str = "", mandatory: bool = False) -> None:
        for body in bodies:
            self.channel.publish(exchange, queue, mandatory, PROPERTIES, body)

    def declare(self, name: str, durable: bool = True, **more: Any) -> QueueState:
        """Declare and wait for the answer."""
        self.ask_declare(name, durable, **more)
        self.harness.settle()
        assert isinstance(self.answers[-1], QueueState), self.errors
        state: QueueState = self.answers[-1]
        return state

    def ask_declare(
        self, name: str, durable: bool = True, reply: Callable[[QueueState], None] | None = None, **more: Any
    ) -> None:
        request = QueueDeclare(name, durable, **more)
        self.harness.broker.operations.queues.declare(self.channel, request, reply or self.answers.append)

    def count(self, name: str) -> int:
        """Messages ready in a queue, as a declaration tells them."""
        states: list[QueueState] = []
        self.harness.broker.operations.queues.declare_passive(self.channel, name, states.append)
        self.harness.settle()
        return states[0].messages

    def ask_get(self, name: str, no_ack: bool = False) -> list[Got | None]:
        """Ask for one message; the answer will be in the list."""
        answers: list[Got | None] = []
        self.channel.get(name, no_ack, answers.append)
        return answers

    def get(self, name: str, no_ack: bool = False) -> Got | None:
        answers = self.ask_get(name, no_ack)
        self.harness.settle()
        assert len(answers) == 1
        return answers[0]

    def drain(self, name: str) -> list[bytes]:
        """Everything that is ready in a queue, taken out of it."""
        found = []
        while (got := self.get(name, no_ack=True)) is not None:
            found.append(got.message.body)
        return found

    def ask_commit(self) -> list[str]:
        """tx.commit; the list will hold "ok"."""
        answers: list[str] = []
        self.channel.commit(lambda: answers.append("ok"))
        return answers

    def confirmed_numbers(self) -> list[int]:
        """The numbers of the publishes that were accepted, one by one; fails if one was answered twice, or refused."""
        numbers: list[int] = []
        for tag, multiple, accepted in self.confirms:
            known = set(numbers)
            numbers += [each for each in range(1, tag + 1) if each not in known] if multiple else [tag]
            assert accepted and tag not in known
        return sorted(numbers)

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.body for delivery in self.deliveries]


class Connection:
    """A ConnectionOutlet."""

    def __init__(self) -> None:
        self.forced: list[AmqpError] = []
        self.reliefs = 0
        self.undecided = self.drained = False

    def drain(self) -> None:
        self.drained = True

    def force_close(self, error: AmqpError) -> None:
        self.forced.append(error)

    def expel(self, error: AmqpError) -> None:
        self.forced.append(error)

    def relieved(self) -> None:
        self.reliefs += 1


class Harness:
    """``turn`` ends a turn of the event loop, ``ledger.commit`` moves the commit point, ``settle`` does all of it."""

    def __init__(
        self,
        limits: WindowLimits = WindowLimits(),  # noqa: B008
        ledger: LocalLedger | None = None,
        warned: Warned | None = None,
    ) -> None:
        self._due = False
        names = count(1)
        self.broker = EmbeddedBroker(self._schedule, lambda: f"n{next(names)}", limits, unsupported=Unsupported(warned))
        self.ledger = ledger or LocalLedger()
        self.ledger.serve(self.broker)

    def _schedule(self) -> None:
        self._due = True

    def turn(self) -> None:
        """The turn of the event loop ends."""
        self._due = False
        self.broker.end_of_turn()

    def settle(self) -> None:
        """Turns and commit points until nothing is left to do."""
        while self._due or self.ledger.busy:
            self.turn()
            self.ledger.commit()

    def progress(self, steps: int) -> None:
        """So many events pass the commit point, and no more."""
        for _ in range(steps):
            self.turn()
            if self.ledger.busy:
                self.ledger.commit(1)

    @property
    def content(self) -> Content:
        """What is in the durable queues."""
        return AppliedContent(self.ledger.contents)

    def connect(self, user: str = "", vhost: str = "/") -> Connection:
        connection = Connection()
        connection.session = self.broker.connect(connection, user=user, vhost=vhost)  # type: ignore[attr-defined]
        return connection

    def client(self, connection: Any = None) -> Client:
        """A channel, on a connection of its own unless one is given."""
        client = Client(self)
        session = (connection or self.connect()).session
        client.channel = session.open_channel(client)
        return client

    def take_over(self) -> None:
        """This primary fails with all that had not passed the commit point; the next generation begins."""
        self.broker.on_inactive("the lease is lost")
        self.ledger.lose()
        self.ledger = self.ledger.successor()
        self.ledger.serve(self.broker)

    def crash(self, all_at_once: bool) -> None:
        """The same: one node is all there is."""
        self.take_over()


def queue_of(harness: Harness) -> DurableQueue:
    queue = harness.broker.topology.queues["q"]
    assert isinstance(queue, DurableQueue)
    return queue


def got(answer: Got | None) -> Got:
    assert answer is not None
    return answer
