"""What a broker serves clients from, while its node is the active primary."""

from __future__ import annotations

from collections.abc import Callable

from broker_plugin.embedded.errors import AmqpError, locked
from broker_plugin.embedded.memory_budget import MemoryBudget, MemoryMarks
from broker_plugin.embedded.message_counters import MessageCounters
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.owner import Owner
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.queues.turn import Turn
from broker_plugin.embedded.rights.policies import Policies
from broker_plugin.embedded.rights.rights_book import RightsBook
from broker_plugin.embedded.topology.name_locks import NameLocks
from broker_plugin.embedded.topology.topology import Topology
from broker_plugin.embedded.transactions.branch_table import BranchTable
from broker_plugin.embedded.unsupported import Unsupported
from txobserver.outcomes import BranchOutcome
from txobserver.ports.ledger import Content, Ledger
from txobserver.work_limits import OpenWork


def nothing() -> None:
    """The work of a turn that is needed for what comes at its end."""


def check_access(queue: Queue, owner: Owner) -> None:
    """405 for an exclusive queue of another connection."""
    if queue.owner is not None and queue.owner is not owner:
        raise locked(queue.name)


class Serving:
    """``numbered``: the replicated queues by their numbers; ``declaring``: the names of those that are on their way.

    ``unique_name`` makes a text that is given once. ``schedule`` is called when there is work for the end of the event
    loop's turn. ``unsupported`` meets what RabbitMQ acts on and this broker does not. ``rights``: what users may do;
    ``policies``: what holds of exchanges. ``memory``: what clients make the node hold, by ``marks``. ``filling``: the
    queues that a transaction fills in several turns, with how much of it has come; None while there is none.
    ``loading``: it is taking over, and has not made all yet that is configured (``taking_over``).
    """

    def __init__(
        self,
        schedule: Callable[[], object],
        unique: Callable[[], str],
        unsupported: Unsupported,
        marks: MemoryMarks | None = None,
    ) -> None:
        self.turn = Turn(schedule)
        self.unique_name = unique
        self.unsupported = unsupported
        self.memory = MemoryBudget(marks)
        self.counters = MessageCounters()
        self.rights = RightsBook()
        self._ledger: Ledger | None = None
        self.locks = NameLocks(self.turn)
        self._forget_everything()

    def _forget_everything(self) -> None:
        self.policies = Policies(self.rights)
        self.topology = Topology(
            self.memory.marks.declared, lambda: self.turn.later(nothing), self.policies.alternate_of
        )
        self.locks.forget()
        self.declaring: set[str] = set()
        self.numbered: dict[int, DurableQueue] = {}
        self._content: Content | None = None
        self._branches: BranchTable | None = None
        self.filling: dict[DurableQueue, int] | None = None
        self.loading = False
        self.memory.forget_shared()

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
    def open_work(self) -> OpenWork:
        """What clients have open in transactions and branches; nothing unless this node is the primary."""
        return OpenWork() if self._ledger is None else self._ledger.open_work

    @property
    def held_bytes(self) -> int:
        """Bytes that all clients make this node hold, with what they have open in transactions and branches."""
        ledger = self._ledger
        return self.memory.held if ledger is None else self.memory.total_with(ledger.open_work)

    @property
    def content(self) -> Content:
        """What the active primary holds. 320 if this node is not it."""
        if self._content is None:
            raise AmqpError(320, "this node is not the primary")
        return self._content

    @property
    def branches(self) -> BranchTable:
        """The branches of distributed transactions. 320 if this node is not the primary."""
        if self._branches is None:
            raise AmqpError(320, "this node is not the primary")
        return self._branches

    def outcome_of_token(self, token: bytes, since: int = 0) -> BranchOutcome:
        """What became of a plain transaction, or is becoming of it. 320 if this node is not the primary."""
        outcome = self.content.outcome_of_token(token, since)
        return BranchOutcome.ACTIVE if outcome != BranchOutcome.COMMITTED and self.ledger.is_open(token) else outcome

    def accessible_queue(self, name: str, owner: Owner) -> Queue:
        """The queue. 404 if there is none, 405 if it is another connection's."""
        queue = self.topology.queue(name)
        check_access(queue, owner)
        return queue
