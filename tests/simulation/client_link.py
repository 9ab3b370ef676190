"""One client's connection to one node's broker, with one channel on it: requests one way, answers the other, in order.

A request that waits for the ledger holds up those behind it, as the AMQP side does. What the broker answers is told to
the truth at that moment, and to the client when it arrives, if it arrives.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from broker_plugin.embedded.channels.channel import Got
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.branch_operations import BranchOperations, Reply
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare
from broker_plugin.embedded.operations.queue_operations import QueueState
from tests.simulation.book import FAILED, OK, SENT, Attempt
from tests.simulation.reference import Deletions
from txobserver.events import Message
from txobserver.outcomes import Outcome, Status
from txobserver.xid import Global, Xid

if TYPE_CHECKING:
    from tests.simulation.seen import Client, Cluster, Process

LATENCY = (0.0001, 0.003)
Operation = Callable[[], Any]


class ClientLink:
    """Both outlets that the broker knows. ``attempts`` are the plain publishes by their confirm numbers."""

    def __init__(self, cluster: Cluster, process: Process, client: Client, chance: random.Random) -> None:
        self.process = process
        self.attempts: dict[int, Attempt] = {}
        self._cluster = cluster
        self._world = cluster.world
        self._client = client
        self._chance = chance
        self._up = True
        self._served = True
        self._there_at = self._back_at = 0.0
        self._inbox: deque[tuple[Operation, bool]] = deque()
        self._busy = False
        self._output: list[tuple[Callable[[], None], int | None]] = []
        self._deleting: tuple[str, Deletions] | None = None
        self._committing: Attempt | None = None
        self._committed: Callable[[Attempt, str], None] = lambda attempt, outcome: None
        self._session = process.broker.connect(self)
        self.channel = self._session.open_channel(self)
        cluster.links.append(self)

    # -- what the client asks

    def request(self, operation: Operation) -> None:
        """Something that needs no answer, or is answered later."""
        self._there(lambda: self._take(operation, False))

    def ask(self, operation: Operation) -> None:
        """Something whose answer ``_answered`` gives."""
        self._there(lambda: self._take(operation, True))

    def consume(self, queue: str) -> None:
        """To be called at the broker: basic.consume."""
        self.channel.consume(queue, "", False, False, {})

    def commit(self, attempt: Attempt, done: Callable[[Attempt, str], None]) -> None:
        """tx.commit."""

        def reply() -> None:
            self._committing = None
            self._world.say(self.process.name, f"answers {attempt.label} ok")
            self._truth.answered(self.process, attempt, True)
            self._back(lambda: done(attempt, OK))
            self._answered()

        def commit() -> None:
            takes = ", ".join(body for _, body in attempt.consumed)
            self._world.say(
                self._client.name, f"commits {attempt.label}: {len(attempt.published)} messages for {takes}"
            )
            self._committing, self._committed = attempt, done
            self.channel.commit(reply)

        self.ask(commit)

    def get(self, queue: str, done: Callable[[Got | None], None]) -> None:
        """basic.get."""

        def reply(got: Got | None) -> None:
            if got is not None:
                self._truth.delivered(
                    self.process, self._client.name, queue, got.message.body.decode(), got.redelivered
                )
            self._back(lambda: done(got), read=True)
            self._answered()

        self.ask(lambda: self.channel.get(queue, False, reply))

    def count(self, queue: str, done: Callable[[], None]) -> None:
        """queue.declare, passive."""

        def reply(state: QueueState) -> None:
            self._truth.counted(self.process, queue, state.messages)
            self._back(done, read=True)
            self._answered()

        self.ask(lambda: self.process.broker.operations.queues.declare_passive(self.channel, queue, reply))

    def declare(self, request: QueueDeclare, done: Callable[[QueueState], None]) -> None:
        """queue.declare."""

        def reply(state: QueueState) -> None:
            self._truth.answered(self.process, None, True)
            self._back(lambda: done(state))
            self._answered()

        self.ask(lambda: self.process.broker.operations.queues.declare(self.channel, request, reply))

    def declare_exchange(self, request: ExchangeDeclare) -> None:
        """exchange.declare."""
        reply = partial(self._tell_of_names, None, "declared", request.name)
        self.ask(lambda: self.process.broker.operations.exchanges.declare(self.channel, request, reply))

    def bind(self, request: BindRequest, done: Callable[[], None] | None = None) -> None:
        """queue.bind."""
        reply = partial(self._tell_of_names, done, "bound", request.source, request.destination)
        operations = self.process.broker.operations.bindings
        self.ask(lambda: operations.bind(self.channel, request, reply if done is not None else self._done))

    def unbind(self, request: BindRequest, done: Callable[[], None]) -> None:
        """queue.unbind."""
        self._truth.unbinding(request.source, request.destination)

        def reply() -> None:
            self._back(done)
            self._done()

        self.ask(lambda: self.process.broker.operations.bindings.unbind(self.channel, request, reply))

    def delete_if_empty(self, queue: str, done: Callable[[], None]) -> None:
        """queue.delete with if-empty. 406, as any other refusal, ends the connection."""

        def reply(count: int) -> None:
            assert self._deleting is not None
            (name, before), self._deleting = self._deleting, None
            self._tell_of_names(done, "deleted", name, before, count)

        def delete() -> None:
            self._deleting = queue, self._truth.reference.deletions(queue)
            self.process.broker.operations.queues.delete(self.channel, queue, False, True, reply)

        self.ask(delete)

    def _tell_of_names(self, done: Callable[[], None] | None, what: str, *said: object) -> None:
        self._world.say(self.process.name, f"tells {self._client.name} {what} {said}")
        self._truth.names_told(self.process, what, *said)
        if done is not None:
            self._back(done)
        self._answered()

    def purge(self, queue: str) -> None:
        """queue.purge."""
        operations = self.process.broker.operations.queues
        self.ask(lambda: operations.purge(self.channel, queue, lambda count: self._done()))

    def delete(self, queue: str) -> None:
        """queue.delete."""
        operations = self.process.broker.operations.queues
        self.ask(lambda: operations.delete(self.channel, queue, False, False, lambda count: self._done()))

    # -- what a coordinator asks

    @property
    def branches(self) -> BranchOperations:
        """To be called at the broker: what can be asked for whole branches."""
        return self.process.broker.operations.branches

    def status(
        self, call: Callable[[Reply], None], done: Callable[[Status], None], told: Callable[[Status], None]
    ) -> None:
        """Something that is answered with a status; ``told`` is told it at the broker."""

        def reply(status: Status) -> None:
            self._world.say(self.process.name, f"answers {self._client.name}: {status.name}")
            told(status)
            self._back(lambda: done(status))
            self._answered()

        self.ask(lambda: call(reply))

    def recover(self, done: Callable[[list[Xid]], None]) -> None:
        """dtx.recover."""

        def recover() -> None:
            listed = self.process.broker.branches.recover()
            self._truth.listed(self.process, listed)
            self._back(lambda: done(listed), read=True)

        self.request(recover)

    def outcome(self, attempt: Attempt, done: Callable[[Outcome], None]) -> None:
        """dtx.outcome of a branch, or of a token."""

        def ask() -> None:
            broker = self.process.broker
            if attempt.xid is not None:
                outcome = broker.branches.outcome(attempt.xid)
            else:
                assert attempt.token is not None
                outcome = broker.outcome_of_token(attempt.token)
            self._world.say(self.process.name, f"tells {attempt.label} {outcome.name}")
            self._truth.told_of(self.process, attempt, outcome)
            self._back(lambda: done(outcome), read=True)

        self.request(ask)

    def forget_globally(self, which: Global) -> None:
        """dtx.forget-global."""
        self.ask(lambda: self.branches.forget_globally(self.channel, which, self._done))

    def forget(self, xid: Xid) -> None:
        """dtx.forget."""
        self.ask(lambda: self.branches.forget(self.channel, xid, self._done))

    def interfere(self, attempt: Attempt, commit: bool) -> None:
        """An operator's decision."""

        def decide() -> None:
            assert attempt.xid is not None
            if self.process.broker.branches.outcome(attempt.xid) is Outcome.PREPARED:
                attempt.asked.add(commit)
                if commit and not attempt.final:
                    attempt.outcome = SENT
            self.branches.decide_heuristically(attempt.xid, commit, lambda error: self._done())

        self.ask(decide)

    def close(self) -> None:
        """The client leaves; the broker learns of it when that arrives."""
        self._there(self._close_session)
        self._down()

    def drop(self) -> None:
        """The connection breaks on the way: the client sees it now, the broker after a while."""
        self._world.after(self._chance.uniform(0, 0.5), lambda: self.process.arrives(self._close_session))
        self._down()

    def process_ended(self) -> None:
        """The broker's process is gone."""
        self._served = False
        self._world.after(self._chance.uniform(0, 0.003), self._down)

    # -- what the broker tells

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        queue, body = message.routing_key, message.body.decode()
        self._truth.delivered(self.process, self._client.name, queue, body, redelivered)
        self._back(lambda: self._client.delivered(delivery_tag, queue, body), read=True)

    def returned(self, code: int, text: str, message: Message) -> None:
        """Nobody publishes as mandatory."""

    def confirmed(self, delivery_tag: int, multiple: bool, accepted: bool) -> None:
        for tag in [t for t in self.attempts if t == delivery_tag or (multiple and t < delivery_tag)]:
            self._truth.answered(self.process, self.attempts.pop(tag), accepted)
        self._back(lambda: self._client.confirmed(delivery_tag, multiple, accepted))

    def cancelled(self, consumer_tag: str) -> None:
        """Nobody consumes from what is deleted."""

    def failed(self, error: AmqpError) -> None:
        attempt, done = self._committing, self._committed
        self._world.say(self._client.name, f"refused: {error}")
        if self._deleting is not None and error.code == 406:
            self._truth.names_told(self.process, "kept", *self._deleting)
        if attempt is not None:
            self._committing = None
            self._truth.answered(self.process, attempt, False)
            self._back(lambda: done(attempt, FAILED))
        self._close_session()
        self._back(self._down)

    def force_close(self, error: AmqpError) -> None:
        self._served = False
        self._back(self._down)

    def relieved(self) -> None:
        """Nobody waits for it."""

    # -- inside

    @property
    def _truth(self) -> Any:
        return self._cluster.truth

    def _take(self, operation: Operation, waits: bool) -> None:
        self._inbox.append((operation, waits))
        self._pump()

    def _pump(self) -> None:
        while self._inbox and not self._busy and self._served:
            operation, self._busy = self._inbox.popleft()
            try:
                operation()
            except AmqpError as error:
                self.failed(error)

    def _done(self) -> None:
        self._truth.answered(self.process, None, True)
        self._answered()

    def _answered(self) -> None:
        self._busy = False
        self._pump()

    def _close_session(self) -> None:
        if self._served:
            self._served = False
            self._session.close()

    def _there(self, call: Callable[[], None]) -> None:
        """To the broker."""
        self._there_at = max(self._world.now + self._chance.uniform(*LATENCY), self._there_at)

        def arrive() -> None:
            if self._served:
                call()

        self._world.after(self._there_at - self._world.now, lambda: self.process.arrives(arrive))

    @property
    def telling(self) -> bool:
        """Whether the node is about to send what it has read: a message, a length, an outcome."""
        return self._up and any(generation is not None for _, generation in self._output)

    def forget_output(self) -> None:
        """As ``AmqpServer.forget_output``: what has not left yet is told to nobody."""
        self._output.clear()

    def _back(self, call: Callable[[], None], read: bool = False) -> None:
        """To the client, with all else that this turn of the loop brings for it, as ``AmqpProtocol`` does it.

        ``read``: it tells what the node held when it was asked. An acknowledgement stays true, however late it is sent.
        """
        self._output.append((call, self.process.core.generation if read else None))
        if len(self._output) == 1:
            self.process.guard.call_soon(self._flush)

    def _flush(self) -> None:
        self.process.parts.shell.look_at_clock()
        output, self._output = self._output, []
        for call, generation in output:
            if generation is not None and self._up:  # else nobody is at the other end any more
                self._truth.leaves(self.process, generation)
            self._send_back(call)

    def _send_back(self, call: Callable[[], None]) -> None:
        self._back_at = max(self._world.now + self._chance.uniform(*LATENCY), self._back_at)

        def arrive() -> None:
            if self._up:
                call()

        self._world.after(self._back_at - self._world.now, arrive)

    def _down(self) -> None:
        if self._up:
            self._world.say(self._client.name, f"has lost {self.process.name}")
            self._up = False
            self._cluster.links.remove(self)
            self._client.lost(self)
