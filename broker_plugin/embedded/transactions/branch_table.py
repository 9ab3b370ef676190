"""Every branch that the broker knows of: those that clients work on, and those that are prepared, by any client.

Timeouts: a branch that is not prepared in time becomes rollback-only. The time comes by ``tick``, and a timeout begins
to run at the first tick after it was given, so that it never ends early. A branch that is rollback-only is remembered
for ``max_timeout`` in which no client asked for it, so that forgotten ones are not kept for ever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from broker_plugin.embedded.errors import AmqpError, dtx_error
from broker_plugin.embedded.memory_budget import Holder
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.queues.turn import LOOKS_A_STEP, Turn, steps_now
from broker_plugin.embedded.transactions.branch import (
    DECIDING,
    ENDED,
    PREPARED,
    PREPARING,
    ROLLBACK_ONLY,
    UNPREPARED,
    Branch,
)
from txobserver.events import Removal
from txobserver.outcomes import BranchOutcome, PreparedBranch, XaStatus
from txobserver.ports.ledger import Content, Ledger, NameInUse
from txobserver.xid import Xid

HEURISTIC = (BranchOutcome.HEURISTICALLY_COMMITTED, BranchOutcome.HEURISTICALLY_ROLLED_BACK, BranchOutcome.MIXED)
"""Their numbers are those of the statuses of the same names."""


class DtxLimits(NamedTuple):
    """Seconds: the timeout of a branch that is given none, and the longest that can be asked for."""

    default_timeout: int = 60
    max_timeout: int = 3600


class BranchTable:
    """``numbered``: the replicated queues by their numbers. ``shared``: holds what belongs to no client.

    Many methods: what channels ask, what the ledger tells, and how this node takes over what is prepared.
    """

    def __init__(
        self,
        ledger: Ledger,
        content: Content,
        numbered: Mapping[int, DurableQueue],
        limits: DtxLimits,
        shared: Holder,
        turn: Turn,
    ) -> None:
        self._turn = turn
        self._shared = shared
        self._ledger = ledger
        self._content = content
        self._numbered = numbered
        self._limits = limits
        self._known: dict[Xid, Branch] = {}
        self._unprepared: dict[Xid, Branch] = {}
        self._locking: deque[tuple[Branch, DurableQueue, list[tuple[int, int]]]] = deque()
        self._locked = 0
        """Messages of the first of those that are"""

    def load(self) -> None:
        """This node becomes active: take over what is prepared, and lock what that dequeues.

        As much as this turn has room for, and the rest in the turns that come; until then no client is served
        (``take_over_of_great_branches``).
        """
        for prepared in self._content.branches():
            branch = self._known[prepared.xid] = Branch(prepared.xid, None, 0, self._shared, self._turn)
            self._shared.branches += 1
            for number, entries in prepared.locked.items():
                queue = self._numbered.get(number)
                if queue is not None:
                    self._locking.append((branch, queue, entries))
        self._lock_on()

    def finish(self) -> None:
        """Lock all that is left: something of it is about to leave its queue."""
        self._lock(sum(len(entries) for _, _, entries in self._locking))

    @property
    def loading(self) -> bool:
        """Whether what prepared branches dequeue is still being locked."""
        return bool(self._locking)

    def _lock_on(self) -> None:
        self._lock(steps_now(self._turn) * LOOKS_A_STEP)
        if self._locking and not self._locking[0][1].deleted:
            self._turn.later(self._lock_on)

    def _lock(self, most: int) -> None:
        """Lock so many messages more."""
        while self._locking and most > 0:
            branch, queue, entries = self._locking[0]
            piece = entries[self._locked : self._locked + most]
            self._locked += len(piece)
            most -= len(piece)
            if self._locked >= len(entries):
                self._locking.popleft()
                self._locked = 0
            self._turn.looked_at(len(piece))
            queue.lock(piece)
            branch.settled += [(0, (queue, offset, None), Removal.ACKED) for offset, _ in piece]

    # -- asked by channels

    def check_new(self, xid: Xid) -> None:
        """530 if the broker has a branch of this name."""
        if xid in self._known:
            raise dtx_error(530, f"branch {xid} is known already: it is {self._known[xid].state}")

    def begin(self, xid: Xid, holder: Holder) -> Branch:
        """A new branch of the client with this holder. 530 if its name is in use."""
        self.check_new(xid)
        try:
            observer = self._ledger.begin_branch(xid, holder)
        except NameInUse as error:
            raise dtx_error(530, str(error)) from None
        branch = Branch(xid, observer, self._limits.default_timeout, holder, self._turn)
        self._known[xid] = self._unprepared[xid] = branch
        holder.branches += 1
        return branch

    def find(self, xid: Xid) -> Branch:
        """A branch that has not ended. 404."""
        branch = self._known.get(xid)
        if branch is None:
            raise self.unknown(xid)
        return branch

    def find_idle(self, xid: Xid) -> Branch:
        """One that no channel works on. 404, 409."""
        branch = self.find(xid)
        if branch.associations:
            raise dtx_error(409, f"branch {xid} is being worked on: end it first")
        return branch

    def completed(self, xid: Xid) -> XaStatus | None:
        """How a branch was decided by an operator, None if it was not."""
        if xid in self._known:
            return None
        outcome = self._content.outcome(xid)
        return XaStatus(outcome) if outcome in HEURISTIC else None

    def unknown(self, xid: Xid) -> AmqpError:
        """404 for a branch that is not there (any more)."""
        outcome = self._content.outcome(xid)
        more = "" if outcome is BranchOutcome.UNKNOWN else f", its outcome is: {outcome.name.lower().replace('_', ' ')}"
        return dtx_error(404, f"there is no branch {xid}{more}")

    def outcome(self, xid: Xid, since: int = 0) -> BranchOutcome:
        """What became of a branch, or is becoming of it. ``since`` as for ``Content.outcome``."""
        branch = self._known.get(xid)
        if branch is not None and branch.state in UNPREPARED:
            return BranchOutcome.ROLLED_BACK if branch.state == ROLLBACK_ONLY else BranchOutcome.ACTIVE
        return self._content.outcome(xid, since)

    def recover(self) -> list[Xid]:
        """Every branch that is prepared, or was decided by an operator and is not forgotten."""
        prepared = [xid for xid, branch in self._known.items() if branch.state in (PREPARED, DECIDING)]
        return prepared + self._content.heuristic_branches()

    @property
    def settled(self) -> int:
        """How many messages all branches have settled."""
        return sum(len(branch.settled) for branch in self._known.values())

    def locked(self, queue: DurableQueue) -> set[int]:
        """The offsets that the stream locks for prepared branches, or will when it comes to their prepares."""
        ours = [branch for branch in self._known.values() if branch.state in (PREPARING, PREPARED, DECIDING)]
        settled = (held for branch in ours for _, held, reason in branch.settled if reason is not None)
        return {offset for of, offset, _ in settled if of is queue}

    # -- the end of branches

    def leave(self, branch: Branch, event: str) -> None:
        """A branch ends by this event of the table."""
        branch.move(event)
        assert branch.state == ENDED
        if self._known.pop(branch.xid, None) is not None:
            branch.holder.branches -= 1
        self._unprepared.pop(branch.xid, None)

    def prepared(self, prepared: PreparedBranch) -> None:
        """The ledger: a branch has been prepared everywhere."""
        branch = self._unprepared.pop(prepared.xid)
        branch.move("prepared")
        branch.free_consumers()

    def ended(self, prepared: PreparedBranch, committed: bool) -> None:
        """The ledger: a prepared branch has ended, by whichever decision."""
        branch = self._known[prepared.xid]
        self.leave(branch, "decided")
        if committed:
            branch.apply_local(self._turn)
        else:
            branch.give_back(self._turn)

    # -- time

    def timeout(self, xid: Xid) -> int:
        """Seconds, 0 for none: a prepared branch has none. 404."""
        branch = self.find(xid)
        return branch.timeout if branch.state in UNPREPARED else 0

    def set_timeout(self, xid: Xid, seconds: int) -> None:
        """From now on; 0 for none. 542 for more than the limit, 404, 409 for a branch that no timeout can touch."""
        if seconds > self._limits.max_timeout:
            raise dtx_error(542, f"a timeout of {seconds} s is more than the limit of {self._limits.max_timeout} s")
        branch = self.find(xid)
        if branch.state not in UNPREPARED:
            raise dtx_error(409, f"branch {xid} cannot time out: it is {branch.state}")
        branch.timeout, branch.deadline = seconds, None

    def tick(self, now: float) -> None:
        """It is ``now``, in seconds."""
        for branch in list(self._unprepared.values()):
            timeout = self._limits.max_timeout if branch.state == ROLLBACK_ONLY else branch.timeout
            if not timeout:
                continue
            if branch.deadline is None:
                branch.deadline = now + timeout
            elif now >= branch.deadline:
                self._expire(branch)

    def _expire(self, branch: Branch) -> None:
        if branch.state != ROLLBACK_ONLY:
            if branch.state in UNPREPARED:
                branch.fail("timed out", XaStatus.TIMED_OUT)
        elif not branch.associations:
            self.leave(branch, "forgotten")
