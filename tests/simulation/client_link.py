"""One client's connection to one node's broker, with one channel on it: requests one way, answers the other, in order.

A request that waits for the ledger holds up those behind it, as the AMQP side does. What the broker answers is told to
the truth at that moment, and to the client when it arrives, if it arrives.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_plugin.amqp.parting import HEARD_SECONDS
from broker_plugin.embedded.errors import AmqpError, Forced
from tests.simulation.book import FAILED, OK, Attempt
from tests.simulation.reference import Deletions
from tests.simulation.requests import BranchRequests, QueueRequests
from tests.simulation.wire import Wire
from txobserver.events import Message

if TYPE_CHECKING:
    from tests.simulation.seen import Client, Cluster, Process

Operation = Callable[[], Any]


class ClientLink:
    """Both outlets that the broker knows. ``attempts`` are the plain publishes by their confirm numbers.

    Many methods: one for each thing that the broker tells, and for each that a client does.
    """

    def __init__(self, cluster: Cluster, process: Process, client: Client, chance: random.Random) -> None:
        self.process = process
        self.attempts: dict[int, Attempt] = {}
        self._cluster = cluster
        self._world = cluster.world
        self._client = client
        self._chance = chance
        self._inbox: deque[tuple[Operation, bool]] = deque()
        self._busy = False
        self._draining = False
        self._unheard = self._pipelines = False
        """As of an AMQP channel (``broker_plugin.amqp.protocol.last_word``)"""
        self._parting: Forced | None = None
        self.not_done = False
        """Whether the client has been told that what was not answered was not done"""
        self.deleting: tuple[str, Deletions] | None = None
        self._committing: Attempt | None = None
        self._committed: Callable[[Attempt, str], None] = lambda attempt, outcome: None

        def lost() -> None:
            cluster.links.remove(self)
            client.lost(self)

        self.wire = Wire(cluster, process, client.name, chance, lost)
        self.queues = QueueRequests(self, cluster, client.name)
        self.branches = BranchRequests(self, cluster, client.name)
        self._session = process.broker.connect(self)
        self.channel = self._session.open_channel(self)
        cluster.links.append(self)

    # -- what the client asks

    def request(self, operation: Operation) -> None:
        """Something that needs no answer, or is answered later."""
        self.wire.to_broker(lambda: self._take(operation, False))

    def ask(self, operation: Operation) -> None:
        """Something whose answer ``answered`` gives."""
        self.wire.to_broker(lambda: self._take(operation, True))

    def ask_elsewhere(self, operation: Operation) -> None:
        """On another channel of the connection: it shows nothing of what the client has heard on this one."""

        def take() -> None:
            if not self._draining:
                operation()

        self.wire.to_broker(take, elsewhere=True)

    def commit(self, attempt: Attempt, done: Callable[[Attempt, str], None]) -> None:
        """tx.commit."""

        def reply() -> None:
            self._committing = None
            self._world.say(self.process.name, f"answers {attempt.label} ok")
            self._truth.answered(self.process, attempt, True)
            self.wire.to_client(lambda: done(attempt, OK))
            self.answered()

        def commit() -> None:
            takes = ", ".join(body for _, body in attempt.consumed)
            self._world.say(
                self._client.name, f"commits {attempt.label}: {len(attempt.published)} messages for {takes}"
            )
            self._committing, self._committed = attempt, done
            self.channel.commit(reply)

        self.ask(commit)

    def close(self) -> None:
        """The client leaves; the broker learns of it when that arrives."""
        self.wire.to_broker(self._close_session)
        self.wire.down()

    def drop(self) -> None:
        """The connection breaks on the way: the client sees it now, the broker after a while."""
        self._world.after(self._chance.uniform(0, 0.5), lambda: self.process.arrives(self._close_session))
        self.wire.down()

    def process_ended(self) -> None:
        """The broker's process is gone."""
        self.wire.served = False
        self._world.after(self._chance.uniform(0, 0.003), self.wire.down)

    # -- what the broker tells

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        queue, body = message.routing_key, message.body.decode()
        self._truth.delivered(self.process, self._client.name, queue, body, redelivered)
        self.wire.to_client(lambda: self._client.delivered(delivery_tag, queue, body), read=True)

    def returned(self, code: int, text: str, message: Message) -> None:
        """No client publishes as mandatory."""

    def confirmed(self, delivery_tag: int, multiple: bool, accepted: bool) -> None:
        for tag in [t for t in self.attempts if t == delivery_tag or (multiple and t < delivery_tag)]:
            self._truth.answered(self.process, self.attempts.pop(tag), accepted)
        self._pipelines = self._pipelines or multiple or self._unheard or self.channel.awaited
        self._unheard = True
        self.wire.to_client(lambda: self._client.confirmed(delivery_tag, multiple, accepted))

    def cancelled(self, consumer_tag: str) -> None:
        """No client consumes from what is deleted."""

    def failed(self, error: AmqpError) -> None:
        attempt, done = self._committing, self._committed
        self._world.say(self._client.name, f"refused: {error}")
        if self.deleting is not None and error.code == 406:
            self._truth.names_told(self.process, "kept", *self.deleting)
        if attempt is not None:
            self._committing = None
            self._truth.answered(self.process, attempt, False)
            self.wire.to_client(lambda: done(attempt, FAILED))
        self._close_session()
        self.wire.to_client(self.wire.down)

    def drain(self) -> None:
        self._draining = True
        self._session.set_flowing(False)

    @property
    def undecided(self) -> bool:
        return self.wire.answers_lost or self._busy or self.channel.awaited

    def force_close(self, error: Forced) -> None:
        self.wire.served = False
        self._truth.forced(self.process, error.undecided and not self.wire.answers_lost)
        if error.undecided or not (self._pipelines or (self._unheard and not self._inbox)):
            self.wire.last_word(self._told_last, error.undecided)
            return
        self._parting = error
        if not self._pipelines:
            self.wire.parting = lambda: self._part(False)
        self._world.after(HEARD_SECONDS, lambda: self.process.arrives(lambda: self._part(True)))

    @property
    def parting(self) -> bool:
        return self._parting is not None

    def _part(self, undecided: bool) -> None:
        if self._parting is not None:
            self._parting = self.wire.parting = None
            self.wire.last_word(self._told_last, undecided)

    def _tells(self) -> None:
        self._pipelines = self._pipelines or bool(self._inbox)
        self._unheard = True

    def _told_last(self, undecided: bool) -> None:
        self.not_done = not undecided
        if self.not_done:
            self._world.say(self._client.name, "is told that what was not answered was not done")
        self.wire.down()

    def relieved(self) -> None:
        """No client waits for it."""

    # -- inside

    @property
    def _truth(self) -> Any:
        return self._cluster.truth

    def _take(self, operation: Operation, waits: bool) -> None:
        self._unheard = False
        self._inbox.append((operation, waits))
        self._pump()

    def _pump(self) -> None:
        while self._inbox and not self._busy and not self._draining and self.wire.served:
            operation, self._busy = self._inbox.popleft()
            try:
                operation()
            except AmqpError as error:
                self.failed(error)

    def done(self) -> None:
        """What was asked for has been done, which is told to the truth."""
        self._truth.answered(self.process, None, True)
        self.answered()

    def answered(self) -> None:
        """The next request may begin."""
        self._tells()
        self._busy = False
        self._pump()

    def _close_session(self) -> None:
        if self.wire.served:
            self.wire.served = False
            self._session.close()
