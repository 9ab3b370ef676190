"""The broker of one node: the Host that the ledger talks to, and the entry for client connections.

It serves only between ``on_active`` and ``on_inactive``. What is durable it holds as the ledger tells it; nothing of
it survives the end of its being active.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker_plugin.embedded.channels.expulsions import Expulsions
from broker_plugin.embedded.channels.session import Session
from broker_plugin.embedded.errors import AmqpError, Forced, user_deleted, vhost_deleted
from broker_plugin.embedded.invariants import BrokerChecks
from broker_plugin.embedded.memory_budget import Holder, MemoryMarks
from broker_plugin.embedded.operations.operations import Operations
from broker_plugin.embedded.operations.replicated import Replicated
from broker_plugin.embedded.operations.taking_over import TakingOver
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.outlet import ConnectionOutlet
from broker_plugin.embedded.queues.windows import WindowLimits
from broker_plugin.embedded.serving import Serving, nothing
from broker_plugin.embedded.transactions.branch_table import BranchTable, DtxLimits
from broker_plugin.embedded.unsupported import Unsupported
from txobserver.access import ACCESS, DELETE_USER
from txobserver.audited import plain_step
from txobserver.configuration import Configured
from txobserver.events import Configure, Message, Removal
from txobserver.invariants import CHECKS
from txobserver.outcomes import PreparedBranch
from txobserver.ports.ledger import ClientsServed, Content, Ledger
from txobserver.rules import CLEAR_VHOST, OF_POLICIES, SET_VHOST
from txobserver.vhosts import DEFAULT_VHOST

SWEPT = 2000
"""Bindings of what was deleted that routers forget in one turn"""


class EmbeddedBroker(Serving):
    """Implements ``txobserver.ports.ledger.Host``.

    ``schedule`` is called when there is work for the end of the event loop's turn; ``end_of_turn`` must be called
    then. ``unique`` makes a text that is given once, for names of the broker's making. Without ``unsupported``, what
    RabbitMQ acts on and this broker does not is refused.

    Many methods: one for each thing that a ledger tells.
    """

    def __init__(
        self,
        schedule: Callable[[], object],
        unique: Callable[[], str],
        limits: WindowLimits = WindowLimits(),  # noqa: B008 -- immutable
        dtx_limits: DtxLimits = DtxLimits(),  # noqa: B008 -- immutable
        unsupported: Unsupported | None = None,
        marks: MemoryMarks | None = None,
    ) -> None:
        super().__init__(schedule, unique, unsupported or Unsupported(), marks)
        self.operations = Operations(self)
        self._limits = limits
        self._dtx_limits = dtx_limits
        self._sessions: dict[Session, None] = {}
        self._replicated: Replicated | None = None
        self._loader: TakingOver | None = None
        self._checks = BrokerChecks()
        self._draining = False
        self._expulsions = Expulsions(self.turn, lambda: self._sessions)

    def end_of_turn(self) -> None:
        """Hand out, settle and answer what the turn has brought. Raises StoreDamaged.

        And InvariantBroken, where invariants are checked (``txobserver.invariants``).
        """
        self.turn.run()
        if self.topology.sweep(SWEPT):
            self.turn.later(nothing)
        if CHECKS.on:
            self._checks.check(self, self._sessions)

    def tick(self, now: float) -> None:
        """It is ``now``, in seconds on a clock of the caller's choice."""
        if self._branches is not None:
            self._branches.tick(now)
        if not self._locking_branches():
            self.operations.expiry.tick(now)

    # -- connections

    def connect(
        self, outlet: ConnectionOutlet, holder: Holder | None = None, user: str = "", vhost: str = DEFAULT_VHOST
    ) -> Session:
        """A client connection of this user. 320 if this node does not serve clients, 530 if the user may not connect.

        ``holder``: what the node holds for it.
        """
        if self._ledger is None:
            raise AmqpError(320, "this node is not the primary")
        if self._draining:
            raise AmqpError(320, "this node hands over: connect again")
        if self.loading or self._locking_branches():
            raise AmqpError(320, "this node is taking over: connect again")
        known = holder if holder is not None else Holder(self.memory)
        session = Session(self, self.operations, outlet, self._disconnected, known, self.rights.open(user, vhost))
        self._sessions[session] = None
        return session

    def _locking_branches(self) -> bool:
        return self._branches is not None and self._branches.loading

    def _disconnected(self, session: Session) -> None:
        if session in self._sessions:
            del self._sessions[session]
            self.rights.close(session.rights)
            if session.rights.vhost in self.rights.vhosts_going():
                self.operations.vhosts.go_on(session.rights.vhost)

    # -- Host

    def on_active(self, ledger: Ledger, content: Content) -> None:
        """This node is the active primary: serve clients from ``content``."""
        self._forget_everything()
        self._ledger = ledger
        self._content = content
        self._replicated = Replicated(self, self.operations, ledger, content, self._limits)
        self._loader = TakingOver(self, self.operations, self._replicated, self._take_over_branches)

    def _take_over_branches(self) -> None:
        self._branches = BranchTable(
            self.ledger, self.content, self.numbered, self._dtx_limits, self.memory.shared, self.turn
        )
        self._branches.load()

    @property
    def draining(self) -> bool:
        """Whether nothing more is begun for clients, who are about to be closed."""
        return self._draining

    def on_draining(self) -> bool:
        """Begin nothing more of what clients ask."""
        self._draining = True
        for session in self._sessions:
            session.outlet.drain()
        return True

    @property
    def served(self) -> ClientsServed:
        """How the clients stand."""
        return ClientsServed(len(self._sessions), sum(map(self._undecided, self._sessions)))

    def _undecided(self, session: Session) -> bool:
        """Whether something that has begun for this client has no answer yet."""
        return session.outlet.undecided

    def on_inactive(self, reason: str) -> None:
        """No longer: close every client, answer nothing that is outstanding, forget every queue.

        What becomes of that is judged before anything of the client is taken apart.
        """
        self._ledger = None
        self._draining = False
        sessions, self._sessions = self._sessions, {}
        for queue in self.topology.queues.values():
            queue.deleted = True
        for session in sessions:
            error = Forced(reason, self._undecided(session))
            session.abandon()
            session.outlet.force_close(error)
        self.rights.end_all()
        self._replicated = None
        if self._loader is not None:
            self._loader.end()
        self._forget_everything()

    def on_arriving(self, queue: int, messages: int) -> None:
        """Messages are on their way into the queue: grant credit for those that consumers could take at once."""
        there = self.numbered.get(queue)
        if there is not None:
            there.arriving(messages)

    def on_configured(self, step: Configure, done: Configured) -> None:
        """A configuration step has been applied."""
        if step.operation in ACCESS:
            self.rights.forget()
            if self._replicated is not None and done.refusal is None:
                self._access_changed(plain_step(step), self._replicated)
        elif self._replicated is not None:
            self._replicated.apply(step, done)

    def _access_changed(self, step: Configure, replicated: Replicated) -> None:
        """Connections of what is deleted end; a virtual host that has come has its exchanges; policies hold at once."""
        if step.operation == DELETE_USER:
            self._expulsions.begin([each for each in self._sessions if each.user == step.name], user_deleted(step.name))
        elif step.operation == SET_VHOST:
            replicated.add_vhost(step.name)
        elif step.operation in OF_POLICIES:
            self.policies.forget()
            self.topology.routes.clear()
        elif step.operation == CLEAR_VHOST:
            self.policies.forget()
            self._expulsions.begin(
                [each for each in self._sessions if each.vhost == step.name], vhost_deleted(step.name)
            )
            self.turn.later(lambda: self.operations.vhosts.go_on(step.name))

    def on_step_begins(self) -> None:
        """A transaction comes in several turns: its queues hand nothing out meanwhile, and count nothing of it.

        What it takes out of queues is in the hands of clients or branches all the time, and counted in neither state.
        """
        self.filling = {}

    def on_step_ends(self) -> None:
        """All of it counts now, in all of its queues at once."""
        filling, self.filling = self.filling, None
        for queue, count in (filling or {}).items():
            queue.end_return(count)

    def on_enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """A message is now in the queue."""
        there = self.numbered.get(queue)
        if there is not None:
            if self.filling is not None:
                self._fill(self.filling, there)
            there.enqueued(offset, rid, message)

    def _fill(self, filling: dict[DurableQueue, int], queue: DurableQueue) -> None:
        """A message of a transaction that is not whole yet is about to come."""
        count = filling.get(queue, 0)
        if not count:
            queue.begin_return()
        filling[queue] = count + 1
        queue.came_unseen()

    def on_removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages have left the queue."""
        there = self.numbered.get(queue)
        if there is not None:
            if self._locking_branches():
                self.branches.finish()
            there.removed(entries)

    def on_purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        """Messages have left the queue."""
        there = self.numbered.get(queue)
        if there is not None:
            there.purged(spared, count)

    def on_watermark(self, queue: int, offset: int) -> None:
        """Messages up to ``offset`` may be handed out."""
        there = self.numbered.get(queue)
        if there is not None:
            there.watermark_raised(offset)

    def on_branch_prepared(self, branch: PreparedBranch) -> None:
        """A branch has been prepared everywhere."""
        if self._branches is not None:
            self._branches.prepared(branch)

    def on_branch_ended(self, branch: PreparedBranch, committed: bool) -> None:
        """A prepared branch has ended."""
        if self._branches is not None:
            self._branches.finish()
            self._branches.ended(branch, committed)
