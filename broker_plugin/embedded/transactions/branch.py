"""One branch of a distributed transaction at the broker: its states, who works on it, and what was done in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker_plugin.embedded.memory_budget import Holder
from broker_plugin.embedded.queues.consumer import Held, Receiver
from broker_plugin.embedded.queues.turn import Turn
from broker_plugin.embedded.topology.topology import Route
from broker_plugin.embedded.transactions.unit_of_work import UnitOfWork
from broker_plugin.embedded.transactions.work_pieces import Freeing
from txobserver.events import Message, Removal
from txobserver.outcomes import XaStatus
from txobserver.ports.ledger import BranchObserver
from txobserver.table import Table
from txobserver.xid import Xid

ACTIVE, IDLE, ROLLBACK_ONLY = "active", "idle", "rollback-only"
PREPARING, PREPARED, DECIDING, ENDING, ENDED = "preparing", "prepared", "deciding", "ending", "ended"

BRANCH_TABLE: Table[str, str] = Table(
    "branch",
    ACTIVE,
    {
        **{(ACTIVE, event): ACTIVE for event in ("join", "suspend", "resume", "end")},
        (ACTIVE, "last end"): IDLE,
        (IDLE, "join"): ACTIVE,
        **{(state, event): ROLLBACK_ONLY for state in (ACTIVE, IDLE) for event in ("failed", "timed out")},
        (IDLE, "prepare"): PREPARING,
        (PREPARING, "prepared"): PREPARED,
        (PREPARING, "refused"): ENDED,
        (PREPARED, "decision asked"): DECIDING,
        (DECIDING, "refused"): PREPARED,
        **{(state, "decided"): ENDED for state in (PREPARED, DECIDING, ENDING)},
        **{(IDLE, event): ENDING for event in ("commit in one phase", "rollback")},
        (ENDING, "refused"): ENDED,
        **{(ROLLBACK_ONLY, event): ENDED for event in ("told", "forgotten")},
    },
)
UNPREPARED = (ACTIVE, IDLE, ROLLBACK_ONLY)


class Branch(UnitOfWork):
    """What waits in it counts for the client that began it, or, if an earlier primary prepared it, for none.

    ``status`` says why it is rollback-only: its work is gone then, and it waits for its coordinator to be told.

    ``timeout`` in seconds, 0 for none; ``deadline`` is set by the first look at the clock after it was given.
    ``committing`` and ``waiting``: the decision that is on its way, and who waits for its outcome; ``heuristic``: it is
    an operator's. ``freed``: whether what it dequeues counts for no prefetch any more, once it is prepared.
    """

    def __init__(self, xid: Xid, observer: BranchObserver | None, timeout: int, holder: Holder, turn: Turn) -> None:
        super().__init__(holder)
        self.turn = turn
        self.freed = True
        self.xid = xid
        self.state = BRANCH_TABLE.start if observer is not None else PREPARED
        self.associations: set[Association] = set()
        self.status = XaStatus.OK
        self.timeout = timeout
        self.deadline: float | None = None
        self.committing = False
        self.heuristic = False
        self.waiting: list[Callable[[str | None], None]] = []
        self._begun = observer

    @property
    def observer(self) -> BranchObserver:
        """What replicates the work in it. A branch that an earlier primary prepared has none, and takes none."""
        assert self._begun is not None
        return self._begun

    def _observer(self) -> BranchObserver:
        return self.observer

    def move(self, event: str) -> None:
        """Take a step of the table. Raises IllegalTransition."""
        self.state = BRANCH_TABLE.next(self.state, event)

    def fail(self, event: str, status: XaStatus) -> None:
        """It can only be rolled back from here on, so that is done now. The event is of the table."""
        self.move(event)
        self.status, self.deadline = status, None
        self.observer.rollback(lambda error: None)
        self.give_back(self.turn)

    def free_consumers(self) -> None:
        """It is prepared: what it dequeues counts for no channel's prefetch any more."""
        self.freed = False
        Freeing(self.turn, self.settled, self._free_no_more, self._all_free).run()

    def _free_no_more(self) -> bool:
        return self.state == ENDED

    def _all_free(self) -> None:
        self.freed = True


class Association:
    """One channel's part in a branch, from start to end (X/Open XA, 2.2.8). Its work goes there meanwhile."""

    def __init__(self, channel: Receiver, branch: Branch) -> None:
        self.channel = channel
        self.branch = branch
        self.suspended = False
        branch.associations.add(self)

    def publish(self, route: Route, message: Message, mandatory: bool) -> None:
        """A publish inside the branch.

        A mandatory message that no queue takes is returned at once: when the branch is committed, this channel may be
        gone.
        """
        if mandatory and not route.durable and not route.local:
            self.channel.outlet.returned(312, "NO_ROUTE", message)
        elif self.branch.state != ROLLBACK_ONLY:
            self.branch.enqueue(route, message)

    def settle(self, held: Iterable[tuple[int, Held]], reason: Removal | None) -> None:
        """Acknowledgements or rejections inside the branch."""
        self.branch.settle(held, reason)
        if self.branch.state == ROLLBACK_ONLY:
            self.branch.give_back(self.branch.turn)

    def end(self) -> None:
        """The channel works on the branch no more."""
        branch = self.branch
        branch.associations.discard(self)
        if branch.state != ROLLBACK_ONLY:
            branch.move("end" if branch.associations else "last end")
