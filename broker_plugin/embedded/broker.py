"""The broker of one node: the Host that the ledger talks to, and the entry for client connections.

It serves only between ``on_active`` and ``on_inactive``. What is durable it holds as the ledger tells it; nothing of
it survives the end of its being active.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_plugin.embedded.channels.session import Session
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.operations.binding_operations import BindingOperations
from broker_plugin.embedded.operations.branch_operations import BranchOperations
from broker_plugin.embedded.operations.consumer_operations import ConsumerOperations
from broker_plugin.embedded.operations.exchange_operations import ExchangeOperations
from broker_plugin.embedded.operations.queue_operations import QueueOperations, check_access
from broker_plugin.embedded.operations.replicated import Replicated
from broker_plugin.embedded.queues.durable_queue import DurableQueue, WindowLimits
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.outlet import ConnectionOutlet
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.turn import Turn
from broker_plugin.embedded.topology.name_locks import NameLocks
from broker_plugin.embedded.topology.topology import Topology
from broker_plugin.embedded.transactions.branches import Branches, DtxLimits
from txobserver.configuration import Configured
from txobserver.events import Configure, Message, Removal
from txobserver.outcomes import Outcome, PreparedBranch
from txobserver.ports.ledger import Content, Ledger


class Broker:
    """Implements ``txobserver.ports.ledger.Host``.

    ``schedule`` is called when there is work for the end of the event loop's turn; ``end_of_turn`` must be called
    then. ``unique`` makes a text that is given once, for names of the broker's making.
    """

    def __init__(
        self,
        schedule: Callable[[], object],
        unique: Callable[[], str],
        limits: WindowLimits = WindowLimits(),  # noqa: B008 -- immutable
        dtx_limits: DtxLimits = DtxLimits(),  # noqa: B008 -- immutable
    ) -> None:
        self.turn = Turn(schedule)
        self.unique_name = unique
        self.queue_operations = QueueOperations(self)
        self.exchange_operations = ExchangeOperations(self)
        self.binding_operations = BindingOperations(self)
        self.consumer_operations = ConsumerOperations(self)
        self.branch_operations = BranchOperations(self)
        self._limits = limits
        self._dtx_limits = dtx_limits
        self._sessions: dict[Session, None] = {}
        self._ledger: Ledger | None = None
        self._forget_everything()

    def end_of_turn(self) -> None:
        """Hand out, settle and answer what the turn has brought. Raises StoreDamaged."""
        self.turn.run()

    def _forget_everything(self) -> None:
        self.topology = Topology()
        self.locks = NameLocks()
        self.numbered: dict[int, DurableQueue] = {}
        self._replicated: Replicated | None = None
        self._content: Content | None = None
        self._branches: Branches | None = None

    def tick(self, now: float) -> None:
        """It is ``now``, in seconds on a clock of the caller's choice."""
        if self._branches is not None:
            self._branches.tick(now)

    @property
    def active(self) -> bool:
        """Whether clients are served."""
        return self._ledger is not None

    @property
    def ledger(self) -> Ledger:
        """The ledger of the active primary. 320 if this node is not it."""
        if self._ledger is None:
            raise AmqpError(320, "this node is not the primary")
        return self._ledger

    @property
    def content(self) -> Content:
        """What the active primary holds. 320 if this node is not it."""
        if self._content is None:
            raise AmqpError(320, "this node is not the primary")
        return self._content

    @property
    def branches(self) -> Branches:
        """The branches of distributed transactions. 320 if this node is not the primary."""
        if self._branches is None:
            raise AmqpError(320, "this node is not the primary")
        return self._branches

    def outcome_of_token(self, token: bytes, since: int = 0) -> Outcome:
        """What became of a plain transaction, or is becoming of it. 320 if this node is not the primary."""
        outcome = self.content.outcome_of_token(token, since)
        return Outcome.ACTIVE if outcome != Outcome.COMMITTED and self.ledger.is_open(token) else outcome

    # -- connections

    def connect(self, outlet: ConnectionOutlet) -> Session:
        """A client connection. 320 if this node does not serve clients."""
        if self._ledger is None:
            raise AmqpError(320, "this node is not the primary")
        session = Session(self, outlet)
        self._sessions[session] = None
        return session

    def disconnect(self, session: Session) -> None:
        """A connection has ended."""
        self._sessions.pop(session, None)

    def accessible_queue(self, name: str, session: Session) -> Queue:
        """The queue. 404 if there is none, 405 if it is another connection's."""
        queue = self.topology.queue(name)
        check_access(queue, session)
        return queue

    def drop_local_queue(self, queue: LocalQueue) -> None:
        """An exclusive queue goes with its connection."""
        self.queue_operations.drop_local(queue)

    def consumer_left(self, queue: Queue) -> None:
        """A consumer of this queue was cancelled or has gone."""
        self.queue_operations.consumer_left(queue)

    # -- Host

    def on_active(self, ledger: Ledger, content: Content) -> None:
        """This node is the active primary: serve clients from ``content``."""
        self._forget_everything()
        self._ledger = ledger
        self._replicated = Replicated(self, ledger, content, self._limits)
        self._replicated.load()
        self._content = content
        self._branches = Branches(ledger, content, self.numbered, self._dtx_limits)
        self._branches.load()
        self.queue_operations.take_over(content.configuration)
        self.exchange_operations.take_over(content.configuration)

    def on_inactive(self, reason: str) -> None:
        """No longer: close every client, answer nothing that is outstanding, forget every queue."""
        self._ledger = None
        sessions, self._sessions = self._sessions, {}
        for queue in self.topology.queues.values():
            queue.deleted = True
        for session in sessions:
            session.abandon()
            session.outlet.force_close(AmqpError(320, reason))
        self._forget_everything()

    def appetite(self, queue: int, offered: int) -> int:
        """How many of the ``offered`` messages, on their way into the queue, consumers could take at once."""
        there = self.numbered.get(queue)
        return there.appetite(offered) if there is not None else 0

    def on_configured(self, step: Configure, done: Configured) -> None:
        """A configuration step has been applied."""
        if self._replicated is not None:
            self._replicated.apply(step, done)

    def on_enqueued(self, queue: int, place: int, rid: int, message: Message) -> None:
        """A message is now in the queue."""
        there = self.numbered.get(queue)
        if there is not None:
            there.enqueued(place, rid, message)

    def on_removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages have left the queue."""
        there = self.numbered.get(queue)
        if there is not None:
            there.removed(entries)

    def on_purged(self, queue: int, place: int, spared: Sequence[int], count: int) -> None:
        """Messages have left the queue."""
        there = self.numbered.get(queue)
        if there is not None:
            there.purged(spared, count)

    def on_mark(self, queue: int, place: int) -> None:
        """Messages up to ``place`` may be handed out."""
        there = self.numbered.get(queue)
        if there is not None:
            there.marked(place)

    def on_branch_prepared(self, branch: PreparedBranch) -> None:
        """A branch has been prepared everywhere."""
        if self._branches is not None:
            self._branches.prepared(branch)

    def on_branch_ended(self, branch: PreparedBranch, committed: bool) -> None:
        """A prepared branch has ended."""
        if self._branches is not None:
            self._branches.ended(branch, committed)
