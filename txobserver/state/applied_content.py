"""What the broker at the primary may read of what has been applied: ``txobserver.ports.ledger.Content``."""

from __future__ import annotations

from typing import Final

from txobserver.configuration import Configuration
from txobserver.ids import Position
from txobserver.outcomes import BranchOutcome, PreparedBranch
from txobserver.ports.store import Entry, QueueSummary
from txobserver.state.contents import Contents
from txobserver.state.transaction_table import described
from txobserver.xid import Global, Xid


class AppliedContent:
    """Implements ``Content`` by ``contents``, as they are at each question."""

    def __init__(self, contents: Contents) -> None:
        self._contents: Final = contents
        self._messages: Final = contents.messages
        self._table: Final = contents.table

    @property
    def configuration(self) -> Configuration:
        """The durable configuration."""
        return self._contents.configuration

    @property
    def applied(self) -> Position:
        """The last event that has been applied."""
        return self._contents.applied

    def summary(self, queue: int) -> QueueSummary:
        """Count, digest and delivery watermark of a queue; zeros for one that is not known."""
        return self._contents.queues.summary(queue)

    def recent(self, queue: int, offset: int) -> Entry | None:
        """An entry that is in memory, or None: it is to be read, or gone."""
        return self._messages.recent(queue, offset)

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to ``limit`` entries above ``after``, in order of their offsets. Raises StoreDamaged."""
        return self._messages.page(queue, after, limit)

    def branches(self) -> list[PreparedBranch]:
        """Every branch that is prepared and not decided, the oldest first."""
        return self._table.branches()

    def prepared_branch(self, xid: Xid) -> PreparedBranch | None:
        """The same for one branch."""
        buffer = self._table.in_doubt(xid)
        return None if buffer is None else described(buffer)

    def heuristic_branches(self) -> list[Xid]:
        """The branches that were decided heuristically and are not forgotten."""
        return list(self._table.outcomes.heuristics)

    def outcome(self, xid: Xid, since: int = 0) -> BranchOutcome:
        """What is known of a branch."""
        return self._table.outcome(xid, since)

    def outcome_of_token(self, token: bytes, since: int = 0) -> BranchOutcome:
        """What is known of a transaction that is no branch."""
        return self._table.outcome(token, since)

    def global_decision(self, format_id: int, gtrid: bytes) -> BranchOutcome:
        """The global decision, whatever became of the branches."""
        return self._table.global_decision(Global(format_id, gtrid))

    def global_outcome(self, format_id: int, gtrid: bytes) -> BranchOutcome:
        """What is known of a global decision."""
        return self._table.global_outcome(Global(format_id, gtrid))

    def branches_of(self, format_id: int, gtrid: bytes) -> dict[Xid, BranchOutcome]:
        """Every branch of a global transaction."""
        return self._table.branches_of(Global(format_id, gtrid))
