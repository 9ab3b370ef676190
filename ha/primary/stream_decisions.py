"""StreamDecisions: how transactions and branches end at the primary, and why nothing new can be committed."""

from __future__ import annotations

from ha.apply.replica import Replica
from ha.primary.additions import Additions
from ha.primary.branch_ledger import BranchLedger
from ha.primary.commit_point import CommitPoint
from ha.primary.transactions import Transactions, TransactionWatcher
from ha.primary.writer import Writer
from ha.settings import Settings
from txobserver.events import DtxDecision, TxDecision, TxEvent
from txobserver.observer import TransactionObserverFactory
from txobserver.outcomes import Name
from txobserver.ports.ledger import Done, Host


class StreamDecisions:
    """What observers, transactions and branches do to the stream.

    ``watcher`` learns which tx-queues are closed, and how they end. Implements TxSink and Decider.
    """

    def __init__(
        self,
        writer: Writer,
        point: CommitPoint,
        replica: Replica,
        host: Host,
        settings: Settings,
        additions: Additions,
        watcher: TransactionWatcher,
    ) -> None:
        self.below_min_ready = False
        self.min_ready = settings.min_ready
        self._watcher = watcher
        self._writer = writer
        self._point = point
        self._replica = replica
        self._additions = additions
        self.factory = TransactionObserverFactory(writer.generation, self, writer.ids.next, settings.work)
        self.transactions = Transactions(writer, point, self)
        self.branches = BranchLedger(writer, point, self, replica, self.factory, host, watcher)

    # -- TxSink: what observers do

    def in_use(self, name: Name) -> bool:
        """Whether no transaction may begin under this name."""
        return self._replica.contents.table.in_use(name)

    def tx_event(self, event: TxEvent) -> None:
        """Append an event of a tx-queue."""
        self._writer.append(event)

    def tx_commit(self, tx: int, count: int, done: Done) -> None:
        """Close the tx-queue and prepare."""
        if self._writer.abandoned:
            return
        if (refusal := self.refusal()) is not None:
            self.tx_rollback(tx)
            done(refusal)
        else:
            self.transactions.prepare(tx, count, self._watcher.participants(), done)
            self._watcher.closed(self._replica.buffers[tx])

    def tx_rollback(self, tx: int) -> None:
        """Abort. The answer need not wait: without a decision it can only end in an abort."""
        self._writer.append(self._decision(tx, False, False))

    def decide(self, tx: int, commit: bool, done: Done | None, heuristic: bool = False) -> None:
        """The outcome gets its position; ``done`` is answered when that has passed the commit point."""
        sequence = self._writer.append(self._decision(tx, commit, heuristic))
        self._watcher.decided(tx, commit, sequence)
        if commit:
            self._additions.committed(self._replica.buffers[tx])
        if done is not None:
            self._point.wait(sequence, done)

    # -- what backups and the record bring

    def refusal(self) -> str | None:
        """Why nothing new can be committed now."""
        return self._too_few() if self.below_min_ready else self._writer.at_end

    def cancel(self, tx: int, reason: str) -> None:
        """A participant cannot prepare this transaction."""
        self.transactions.cancel(tx, reason)
        self.branches.cancel(tx, reason)

    def lost_min_ready(self, lost: bool) -> None:
        """Fewer members are ready than ``min_ready``: what is not decided rolls back, what is decided waits."""
        if lost and not self.below_min_ready:
            self.transactions.cancel_all(self._too_few())
            self.branches.cancel_all(self._too_few())
        self.below_min_ready = lost

    # -- inside

    def _decision(self, tx: int, commit: bool, heuristic: bool) -> TxDecision | DtxDecision:
        """The outcome of a transaction; one that has a name is remembered."""
        buffer = self._replica.buffers.get(tx)
        if buffer is None or buffer.name is None:
            return TxDecision(tx, commit)
        return DtxDecision(tx, commit, heuristic, self._writer.wall_ms)

    def _too_few(self) -> str:
        return f"fewer than {self.min_ready} nodes are ready, so nothing new can be committed"
