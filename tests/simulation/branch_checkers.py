"""The promises about branches: P2, P3, P6, P7, P11 and P12 where they speak of them. A breach raises ``Broken``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.book import Attempt
from tests.simulation.checker import Checker
from tests.simulation.reference import Change
from tests.simulation.reference_branches import HEURISTIC
from txobserver.ids import Position
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth

TOLD_COMMIT = (BranchOutcome.COMMITTED, BranchOutcome.HEURISTICALLY_COMMITTED)
PLAIN = (BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK)
TOLD_ROLLBACK = (BranchOutcome.ROLLED_BACK, BranchOutcome.HEURISTICALLY_ROLLED_BACK)


class PreparedStays(Checker):
    """A branch that a client was told is prepared ends only as a client asks (P2)."""

    promise = "P2"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._told: dict[Xid, int] = {}

    def told_of(self, process: Process, attempt: Attempt, outcome: BranchOutcome) -> None:
        if outcome is BranchOutcome.PREPARED and attempt.xid is not None:
            self._told.setdefault(attempt.xid, self.truth.reference.end)

    def cut(self, kept: int, changes: list[Change]) -> None:
        self._told = {xid: end for xid, end in self._told.items() if end <= kept}

    def changed(self, change: Change) -> None:
        xid = change.named
        if isinstance(xid, Xid) and change.decided is not None and xid in self._told:
            attempt = self.book.branches[xid]
            if change.committed not in attempt.asked:
                self.fail(
                    f"{attempt.label} was told to be prepared; it is decided {change.committed}, asked {attempt.asked}"
                )


class OneOutcome(Checker):
    """Every answer about a branch is what the one stream says, and so it stays; a fenced branch does not prepare."""

    promise = "P6"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._rolled_back: dict[Xid | bytes, int] = {}

    def told_of(self, process: Process, attempt: Attempt, outcome: BranchOutcome) -> None:
        name, branches = attempt.name, self.truth.reference.branches
        assert name is not None
        committed, kind = branches.outcomes.get(name, (None, 0))
        says = f"{process.name} tells {attempt.label} {outcome.name}"
        if attempt.decision is not None and outcome in PLAIN and kind == HEURISTIC:
            self.fail(f"{says}, and an operator has decided it: its coordinator would never forget it")
        if outcome in TOLD_COMMIT and committed is not True:
            self.fail(f"{says}, and the stream says {committed}")
        if outcome in TOLD_ROLLBACK:
            self._rolled_back.setdefault(name, self.truth.reference.end)
            if committed is True or name in branches.prepared:
                self.fail(f"{says}, and it is {'committed' if committed else 'prepared'}")
        if outcome is BranchOutcome.PREPARED and name in self._rolled_back:
            self.fail(f"{says}, and it was told to be rolled back")
        if outcome in (BranchOutcome.UNKNOWN, BranchOutcome.EXPIRED) and (
            committed is not None or name in branches.prepared
        ):
            self.fail(f"{says}, and the stream knows of it")

    def listed(self, process: Process, branches: list[Xid]) -> None:
        if back := self._rolled_back.keys() & set(branches) & self.truth.reference.branches.prepared.keys():
            self.fail(f"{process.name} lists {sorted(back)} as prepared, told to be rolled back")

    def changed(self, change: Change) -> None:
        branches = self.truth.reference.branches
        if branches.late is not None:
            self.fail(f"branch {branches.late} is prepared behind the decision of its global transaction")
        if change.named in self._rolled_back and change.committed:
            self.fail(f"{change.named!r} was told to be rolled back, and commits")

    def cut(self, kept: int, changes: list[Change]) -> None:
        self._rolled_back = {name: end for name, end in self._rolled_back.items() if end <= kept}


class LockedStays(Checker):
    """What a prepared branch dequeues is handed to no client."""

    promise = "P3"

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        there = self.truth.reference.by_name.get(queue)
        for xid, held in self.truth.reference.branches.prepared.items():
            for number, offset in held:
                if there is not None and there.number == number and there.contents.get(offset, (0, ""))[1] == body:
                    self.fail(f"{process.name} hands {body} of {queue} to {consumer}, and branch {xid} has dequeued it")


class BranchAgreement(Checker):
    """Where a node has applied as much as another, it lists the same branches and remembers the same outcomes."""

    promise = "P7"

    def stands_at(self, process: Process, applied: Position) -> None:
        if process.core.replica.resyncing:
            return
        table = process.core.replica.contents.table
        meta = table.outcomes.meta
        found = frozenset(table.prepared), meta.count, meta.digest
        wanted = self.truth.reference.branches.as_of(applied.sequence)
        if found != wanted:
            self.fail(
                f"{process.name} at {applied} holds {len(found[0])} prepared branches and {found[1]} outcomes, "
                f"where the stream leads to {len(wanted[0])} and {wanted[1]}, or to others"
            )


class PreparedIsListed(Checker):
    """A serving primary's answer names every branch in doubt, and what operators have decided."""

    promise = "P12"

    def listed(self, process: Process, branches: list[Xid]) -> None:
        prepared, _, _ = self.truth.reference.branches.as_of(process.core.replica.applied.sequence)
        decided = {buffer.name for buffer in process.core.replica.buffers.values() if buffer.decided is not None} | {
            xid for xid in prepared if process.core.replica.contents.table.decision(xid.globally) is not None
        }
        if missing := prepared - set(branches) - decided:
            self.fail(f"{process.name} does not list {sorted(missing)}, which are prepared")
        reference = self.truth.reference
        if process.core.replica.applied.sequence == reference.end:
            outcomes = reference.branches.outcomes.items()
            heuristic = {name for name, (_, kind) in outcomes if kind == HEURISTIC and isinstance(name, Xid)}
            if missing := heuristic - set(branches):
                self.fail(f"{process.name} does not list {sorted(missing)}, which an operator has decided")
