"""What clients ask of queues, exchanges and bindings, and of whole branches, over a link that sends it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from broker_plugin.embedded.channels.channel import Got
from broker_plugin.embedded.operations.binding_operations import BindRequest
from broker_plugin.embedded.operations.branch_operations import BranchOperations, Reply
from broker_plugin.embedded.operations.exchange_operations import ExchangeDeclare
from broker_plugin.embedded.operations.operations import Operations
from broker_plugin.embedded.operations.queue_arguments import QueueDeclare
from broker_plugin.embedded.operations.queue_operations import QueueState
from tests.simulation.book import SENT, Attempt
from tests.simulation.reference import Deletions
from tests.simulation.wire import Wire
from txobserver.outcomes import BranchOutcome, XaStatus
from txobserver.xid import Global, Xid

if TYPE_CHECKING:
    from tests.simulation.seen import Cluster, Process


class Link(Protocol):
    """What requests need of the link: the process at its end, the channel there, and the way of question and answer."""

    process: Process
    channel: Any
    wire: Wire
    deleting: tuple[str, Deletions] | None

    def request(self, operation: Callable[[], Any]) -> None:
        """Something that needs no answer, or is answered later."""
        ...

    def ask(self, operation: Callable[[], Any]) -> None:
        """Something whose answer ``answered`` gives."""
        ...

    def done(self) -> None:
        """What was asked for has been done."""
        ...

    def answered(self) -> None:
        """The next request may begin."""
        ...


class QueueRequests:
    """Of queues, exchanges and bindings; ``name`` is the client's."""

    def __init__(self, link: Link, cluster: Cluster, name: str) -> None:
        self._link = link
        self._cluster = cluster
        self._name = name

    @property
    def _operations(self) -> Operations:
        return self._link.process.broker.operations

    def consume(self, queue: str) -> None:
        """To be called at the broker: basic.consume."""
        self._link.channel.consume(queue, "", False, False, {})

    def get(self, queue: str, done: Callable[[Got | None], None]) -> None:
        """basic.get."""

        def reply(got: Got | None) -> None:
            if got is not None:
                self._cluster.truth.delivered(
                    self._link.process, self._name, queue, got.message.body.decode(), got.redelivered
                )
            self._link.wire.to_client(lambda: done(got), read=True)
            self._link.answered()

        self._link.ask(lambda: self._link.channel.get(queue, False, reply))

    def count(self, queue: str, done: Callable[[], None]) -> None:
        """queue.declare, passive."""

        def reply(state: QueueState) -> None:
            self._cluster.truth.counted(self._link.process, queue, state.messages)
            self._link.wire.to_client(done, read=True)
            self._link.answered()

        self._link.ask(lambda: self._operations.queues.declare_passive(self._link.channel, queue, reply))

    def declare(self, request: QueueDeclare, done: Callable[[QueueState], None]) -> None:
        """queue.declare."""

        def reply(state: QueueState) -> None:
            self._cluster.truth.answered(self._link.process, None, True)
            self._link.wire.to_client(lambda: done(state))
            self._link.answered()

        self._link.ask(lambda: self._operations.queues.declare(self._link.channel, request, reply))

    def declare_exchange(self, request: ExchangeDeclare) -> None:
        """exchange.declare."""
        reply = partial(self._tell_of_names, None, "declared", request.name)
        self._link.ask(lambda: self._operations.exchanges.declare(self._link.channel, request, reply))

    def bind(self, request: BindRequest, done: Callable[[], None] | None = None) -> None:
        """queue.bind."""
        reply = partial(self._tell_of_names, done, "bound", request.source, request.destination)
        operations = self._operations.bindings
        self._link.ask(
            lambda: operations.bind(self._link.channel, request, reply if done is not None else self._link.done)
        )

    def unbind(self, request: BindRequest, done: Callable[[], None]) -> None:
        """queue.unbind."""
        self._cluster.truth.unbinding(request.source, request.destination)

        def reply() -> None:
            self._link.wire.to_client(done)
            self._link.done()

        self._link.ask(lambda: self._operations.bindings.unbind(self._link.channel, request, reply))

    def delete_if_empty(self, queue: str, done: Callable[[], None]) -> None:
        """queue.delete with if-empty. 406, as any other refusal, ends the connection."""

        def reply(count: int) -> None:
            assert self._link.deleting is not None
            (name, before), self._link.deleting = self._link.deleting, None
            self._tell_of_names(done, "deleted", name, before, count)

        def delete() -> None:
            self._link.deleting = queue, self._cluster.truth.reference.deletions(queue)
            self._operations.deletions.delete(self._link.channel, queue, False, True, reply)

        self._link.ask(delete)

    def _tell_of_names(self, done: Callable[[], None] | None, what: str, *said: object) -> None:
        self._cluster.world.say(self._link.process.name, f"tells {self._name} {what} {said}")
        self._cluster.truth.names_told(self._link.process, what, *said)
        if done is not None:
            self._link.wire.to_client(done)
        self._link.answered()

    def purge(self, queue: str) -> None:
        """queue.purge."""
        operations = self._operations.queues
        self._link.ask(lambda: operations.purge(self._link.channel, queue, lambda count: self._link.done()))

    def delete(self, queue: str) -> None:
        """queue.delete."""
        operations = self._operations.deletions
        self._link.ask(
            lambda: operations.delete(self._link.channel, queue, False, False, lambda count: self._link.done())
        )


class BranchRequests:
    """Of a coordinator: of whole branches, and of global transactions; ``name`` is the client's."""

    def __init__(self, link: Link, cluster: Cluster, name: str) -> None:
        self._link = link
        self._cluster = cluster
        self._name = name

    @property
    def operations(self) -> BranchOperations:
        """To be called at the broker: what can be asked for whole branches."""
        return self._link.process.broker.operations.branches

    def status(
        self, call: Callable[[Reply], None], done: Callable[[XaStatus], None], told: Callable[[XaStatus], None]
    ) -> None:
        """Something that is answered with a status; ``told`` is told it at the broker."""

        def reply(status: XaStatus) -> None:
            self._cluster.world.say(self._link.process.name, f"answers {self._name}: {status.name}")
            told(status)
            self._link.wire.to_client(lambda: done(status))
            self._link.answered()

        self._link.ask(lambda: call(reply))

    def recover(self, done: Callable[[list[Xid]], None]) -> None:
        """dtx.recover."""

        def recover() -> None:
            listed = self._link.process.broker.branches.recover()
            self._cluster.truth.listed(self._link.process, listed)
            self._link.wire.to_client(lambda: done(listed), read=True)

        self._link.request(recover)

    def outcome(self, attempt: Attempt, done: Callable[[BranchOutcome], None]) -> None:
        """dtx.outcome of a branch, or of a token."""

        def ask() -> None:
            broker = self._link.process.broker
            if attempt.xid is not None:
                outcome = broker.branches.outcome(attempt.xid)
            else:
                assert attempt.token is not None
                outcome = broker.outcome_of_token(attempt.token)
            self._cluster.world.say(self._link.process.name, f"tells {attempt.label} {outcome.name}")
            self._cluster.truth.told_of(self._link.process, attempt, outcome)
            self._link.wire.to_client(lambda: done(outcome), read=True)

        self._link.ask_elsewhere(ask)

    def forget_globally(self, which: Global) -> None:
        """dtx.forget-global."""
        self._link.ask(lambda: self.operations.forget_globally(self._link.channel, which, self._link.done))

    def forget(self, xid: Xid) -> None:
        """dtx.forget."""
        self._link.ask(lambda: self.operations.forget(self._link.channel, xid, self._link.done))

    def interfere(self, attempt: Attempt, commit: bool) -> None:
        """An operator's decision."""

        def decide() -> None:
            assert attempt.xid is not None
            if self._link.process.broker.branches.outcome(attempt.xid) is BranchOutcome.PREPARED:
                attempt.asked.add(commit)
                if commit and not attempt.final:
                    attempt.outcome = SENT
            self.operations.decide_heuristically(attempt.xid, commit, lambda error: self._link.done())

        self._link.ask(decide)
