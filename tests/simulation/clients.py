"""Clients of the cluster: what each one wants, as a small state machine on its connection to one node's broker.

A worker takes orders and publishes to several queues inside ``tx``; a feeder publishes orders with confirms; a consumer
takes what came out; a counter asks for lengths; a keeper declares, binds and deletes. Every one writes into the book
what it does before it does it, and what it was told when it was told.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from broker_plugin.embedded.channels.channel import Got
from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare
from tests.simulation.book import FAILED, OK, ROLLED_BACK, SENT, UNKNOWN, Attempt
from tests.simulation.client_link import ClientLink
from txobserver.outcomes import BranchOutcome

if TYPE_CHECKING:
    from tests.simulation.seen import Cluster

INPUT = "orders"
OUTPUTS = ("billing", "stock", "shipping")
PROPERTIES = b"\x00\x00"
QUIET = 0.05
"""Between looks whether the clients go on"""
RETRY = (0.02, 0.1)


class Client:
    """``name`` is new with every connection, so that order can be judged on each."""

    kind = ""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.book = cluster.book
        self.chance = self.world.chance(f"client/{self.kind}{number}")
        self.link: ClientLink | None = None
        self.stopping = False
        self.not_done = False
        """Whether the last connection was closed with the word that what was not answered was not done"""
        self._id = f"{self.kind}{number}"
        self._connections = 0
        self.world.after(self.chance.uniform(0, 0.1), self._connect)

    @property
    def name(self) -> str:
        """This client on this connection."""
        return f"{self._id}c{self._connections}"

    def later(self, low: float, high: float, call: Callable[[], None]) -> None:
        """Call this after a while, and not while the clients are quiet, if the connection is still the same."""
        link = self.link

        def act() -> None:
            if self.link is link and self.cluster.quiet:
                self.world.after(QUIET, act)
            elif self.link is link:
                call()

        self.world.after(self.chance.uniform(low, high), act)

    def _connect(self) -> None:
        process = self.cluster.serving(self.chance)
        if process is None:
            self.world.after(self.chance.uniform(*RETRY), self._connect)
            return
        self._connections += 1
        self.link = ClientLink(self.cluster, process, self, self.chance)
        self.connected(self.link)

    def lost(self, link: ClientLink) -> None:
        """The connection has ended."""
        if self.link is link:
            self.link = None
            self.not_done = link.not_done
            self.disconnected()
            self.world.after(self.chance.uniform(*RETRY), self._connect)

    def connected(self, link: ClientLink) -> None:
        """Begin."""

    def disconnected(self) -> None:
        """Nothing more will be answered."""

    def delivered(self, tag: int, queue: str, body: str) -> None:
        """A message came."""

    def confirmed(self, tag: int, multiple: bool, accepted: bool) -> None:
        """A publish was confirmed, or refused."""


class Feeder(Client):
    """Publishes orders with confirms."""

    kind = "feeder"

    def connected(self, link: ClientLink) -> None:
        self._unconfirmed: dict[int, Attempt] = {}
        self._sent = 0
        link.request(link.channel.mode.select_confirms)
        self.feed()

    def feed(self) -> None:
        """Publish now and then."""
        self.later(0.01, 0.12, self.feed)
        waiting = len(self.cluster.truth.reference.by_name[INPUT].contents)
        if self.stopping or len(self._unconfirmed) >= 5 or waiting > 30:
            return
        self.send(INPUT)

    def send(self, queue: str) -> None:
        """Publish a message."""
        attempt = self.book.begin(self.name, plain=True)
        body = self.book.publish(attempt, queue)
        attempt.outcome = SENT
        self._sent += 1
        self._unconfirmed[self._sent] = attempt
        link = self.link
        assert link is not None
        link.attempts[self._sent] = attempt
        link.request(lambda: link.channel.publish("", queue, False, PROPERTIES, body.encode()))

    def confirmed(self, tag: int, multiple: bool, accepted: bool) -> None:
        for each in [t for t in self._unconfirmed if t == tag or (multiple and t < tag)]:
            self._unconfirmed.pop(each).outcome = OK if accepted else FAILED

    def disconnected(self) -> None:
        for attempt in self._unconfirmed.values():
            self.book.lost_connection(attempt, self.not_done)
            self.cluster.truth.failed(attempt)
        self._unconfirmed = {}


class Worker(Client):
    """Takes an order, publishes to one or more queues, acknowledges, commits; at times it rolls back or just leaves."""

    kind = "worker"

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster, number)
        self._doubts: list[Attempt] = []

    def connected(self, link: ClientLink) -> None:
        self._held: list[tuple[int, str]] = []
        self._attempt: Attempt | None = None
        self._ask()
        link.request(link.channel.mode.select_tx)
        link.request(lambda: link.channel.qos(self.chance.choice((1, 2, 5)), False) or link.queues.consume(INPUT))

    def delivered(self, tag: int, queue: str, body: str) -> None:
        self._held.append((tag, body))
        if self._attempt is None:
            self._begin()

    def _begin(self) -> None:
        if not self._held or self._attempt is not None:
            return
        self._attempt = self.book.begin(self.name)
        count = self.chance.choice((1, 2, 3, 3, 6, 12))
        self._publish([self.chance.choice(OUTPUTS) for _ in range(count)])

    def _publish(self, queues: list[str]) -> None:
        link, attempt = self.link, self._attempt
        if link is None or attempt is None:
            return
        batch, rest = queues[:4], queues[4:]
        for queue in batch:
            body = self.book.publish(attempt, queue)
            link.request(lambda q=queue, b=body: link.channel.publish("", q, False, PROPERTIES, b.encode()))
        self.later(0.0, 0.02, (lambda: self._publish(rest)) if rest else self._end)

    def _end(self) -> None:
        link, attempt = self.link, self._attempt
        if link is None or attempt is None or not self._held:
            return
        choice = self.chance.random()
        if choice < 0.08:
            attempt.outcome = ROLLED_BACK
            link.request(link.channel.rollback)
            self._attempt = None
            self.later(0.0, 0.01, self._begin)
        elif choice < 0.11:
            link.close()
        else:
            self._commit(link, attempt)

    def _commit(self, link: ClientLink, attempt: Attempt) -> None:
        taken = self._held[: self.chance.randint(1, len(self._held))]
        attempt.consumed = [(INPUT, body) for _, body in taken]
        attempt.outcome = SENT
        for tag, _ in taken:
            link.request(lambda t=tag: link.channel.ack(t, False))
        if self.chance.random() < 0.5:
            token = attempt.token = attempt.label.encode()
            link.request(lambda: link.channel.mode.name_transaction(token))
        link.commit(attempt, self._committed)
        self._held = self._held[len(taken) :]

    def _committed(self, attempt: Attempt, outcome: str) -> None:
        attempt.outcome = outcome
        if self._attempt is attempt:
            self._attempt = None
            self._begin()

    def disconnected(self) -> None:
        if self._attempt is not None:
            self.book.lost_connection(self._attempt, self.not_done)
            self.cluster.truth.failed(self._attempt)
            if self._attempt.token is not None and self._attempt.outcome in (UNKNOWN, FAILED):
                self._doubts.append(self._attempt)
        self._attempt, self._held = None, []

    def _ask(self) -> None:
        """Ask for the outcomes of commits whose answers were lost."""
        if self.link is not None and self._doubts:
            for attempt in self._doubts:
                self.link.branches.outcome(attempt, partial(self._told, attempt))
            self.later(0.1, 0.3, self._ask)

    def _told(self, attempt: Attempt, outcome: BranchOutcome) -> None:
        if outcome in (BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK) and attempt in self._doubts:
            self._doubts.remove(attempt)
            if attempt.outcome == FAILED and outcome is BranchOutcome.COMMITTED and not attempt.void:
                self.cluster.truth.fail("P4", f"{attempt.label} was told not to be done, and is told to be committed")
            attempt.outcome = OK if outcome is BranchOutcome.COMMITTED else FAILED


class Consumer(Client):
    """Takes what came out, one way or another, and acknowledges it after a while."""

    kind = "consumer"

    def __init__(self, cluster: Cluster, number: int) -> None:
        super().__init__(cluster, number)
        self._queue = OUTPUTS[number % len(OUTPUTS)]

    def connected(self, link: ClientLink) -> None:
        if self.chance.random() < 0.3:
            self._get()
        else:
            consume = link.queues.consume
            link.request(lambda: link.channel.qos(self.chance.choice((1, 5, 20)), False) or consume(self._queue))
        if self.chance.random() < 0.5 and not self.stopping:
            self.later(0.3, 2.0, self._leave)

    def _leave(self) -> None:
        """Go away with messages in hand, now and then."""
        if self.link is not None and not self.stopping:
            self.link.close()

    def _get(self) -> None:
        if self.link is not None:
            self.link.queues.get(self._queue, self._got)

    def _got(self, got: Got | None) -> None:
        if got is not None:
            self._settle(got.delivery_tag)
        self.later(0.0, 0.03, self._get)

    def delivered(self, tag: int, queue: str, body: str) -> None:
        self.later(0.0, 0.05, lambda: self._settle(tag))

    def _settle(self, tag: int) -> None:
        link = self.link
        if link is None:
            return
        if self.chance.random() < 0.1 and not self.stopping:
            link.request(lambda: link.channel.reject(tag, False, True))
        else:
            link.request(lambda: link.channel.ack(tag, False))


class Counter(Client):
    """Asks for the lengths of queues."""

    kind = "counter"

    def connected(self, link: ClientLink) -> None:
        self._ask()

    def _ask(self) -> None:
        if self.link is not None:
            self.link.queues.count(self.chance.choice((INPUT, *OUTPUTS)), lambda: self.later(0.0, 0.1, self._ask))


class Keeper(Client):
    """Declares queues of its own, binds them, publishes to them, purges and deletes them."""

    kind = "keeper"

    def connected(self, link: ClientLink) -> None:
        self._made = 0
        link.request(link.channel.mode.select_confirms)
        self._declare()

    def _declare(self) -> None:
        link = self.link
        if link is None or self.stopping:
            return
        self._made += 1
        name = f"extra-{self.name}-{self._made}"
        self.book.exempt.add(name)
        link.queues.declare(QueueDeclare(name, durable=True), lambda state: self._use(name))

    def _use(self, name: str) -> None:
        link = self.link
        if link is None:
            return
        request = BindRequest("amq.topic", name, True, f"key.{name}")
        link.request(lambda: link.queues.bind(request))
        attempt = self.book.begin(self.name, plain=True)
        body = self.book.publish(attempt, name)
        attempt.outcome = SENT
        link.request(lambda: link.channel.publish("", name, False, PROPERTIES, body.encode()))
        if self.chance.random() < 0.5:
            link.request(lambda: link.queues.purge(name))
        if self.chance.random() < 0.7:
            self.later(0.0, 0.2, lambda: link.request(lambda: link.queues.delete(name)))
        self.later(0.1, 0.5, self._declare)
