"""BranchLedger: what a primary does with distributed transactions (PROTOCOL, "DTX"). The other half of the Ledger.

Promise: a branch whose prepare was answered stays until it is decided, whichever node is primary; no client
learns of a decision before it has passed the commit point; a global decision settles every branch that is prepared,
and fences the others.

Algorithm: a branch is a transaction whose prepare stays (``DtxPrepare``): a take-over leaves it alone. Whatever ends it
after that is a decision in the stream and is answered at the commit point, also a rollback, also after a failed vote:
until then a take-over may bring the prepared branch back (``dtx_rollback_answered_at_once``,
``dtx_failed_vote_answered_at_once``). A global decision is one record. Behind it, in the same group, stand the
decisions of the branches that are in doubt; those that a crash cuts off are made anew by the next primary, which finds
the record. A branch whose prepare is on its way when the record is made follows it when it has been prepared.
"""

from __future__ import annotations

from functools import partial

from ha.apply.replica import Replica
from ha.primary.commit_point import CommitPoint
from ha.primary.transactions import Decider, TransactionWatcher
from ha.primary.writer import Writer
from txobserver.events import DtxPrepare, Event, Forget, GlobalDecision, GlobalForget
from txobserver.observer import DtxObserver, TransactionObserverFactory
from txobserver.ports.ledger import Done, Host
from txobserver.state.transaction_table import described
from txobserver.tx_buffer import DtxBuffer
from txobserver.work_limits import OpenWork
from txobserver.xid import Global, Xid


class BranchLedger:
    """The branches of one primary. ``begin`` to ``forget_global`` are the Ledger's."""

    def __init__(
        self,
        writer: Writer,
        point: CommitPoint,
        decider: Decider,
        replica: Replica,
        factory: TransactionObserverFactory,
        host: Host,
        watcher: TransactionWatcher,
    ) -> None:
        self._writer = writer
        self._point = point
        self._decider = decider
        self._watcher = watcher
        self._replica = replica
        self._table = replica.contents.table
        self._factory = factory
        self._host = host
        self._preparing: dict[int, tuple[DtxBuffer, Done]] = {}
        self._voted: dict[int, Done] = {}

    # -- Ledger

    def begin(self, xid: Xid, client: OpenWork | None = None) -> DtxObserver:
        """The observer of a new branch. Raises NameInUse."""
        return self._factory.begin_branch(xid, self, client)

    def decide(self, xid: Xid, commit: bool, heuristic: bool, done: Done) -> None:
        """End a branch that is in doubt."""
        buffer = self._table.in_doubt(xid)
        if buffer is None:
            done(f"branch {xid} is not prepared, or its decision is on its way")
        else:
            self._decider.decide(buffer.tx, commit, done, heuristic)

    def forget(self, xid: Xid, done: Done) -> None:
        """Remember the outcome of a branch no more."""
        if self._table.outcomes.find(xid) is None:
            done(f"branch {xid} has no outcome that could be forgotten")
        else:
            self._record(Forget(xid), done)

    def decide_global(self, format_id: int, gtrid: bytes, commit: bool, done: Done) -> None:
        """Decide a global transaction, and its branches that are in doubt."""
        globally = Global(format_id, gtrid)
        decided = self._table.decision(globally)
        if decided is not None and decided is not commit:
            done(f"global transaction {globally} is decided to {'commit' if decided else 'roll back'}")
            return
        settled: list[DtxBuffer] = []
        if decided is None:
            settled = [each for each in self._table.live_branches(globally) if self._table.in_doubt(each.xid)]
            self._table.deciding[globally] = commit
            self._writer.append(GlobalDecision(format_id, gtrid, commit, self._writer.wall_ms))
            if not commit:
                self._cancel_preparing(globally)
            for buffer in settled:
                self._decider.decide(buffer.tx, commit, None)
        self._point.when_passed(self._replica.tail.sequence, done)

    def forget_global(self, format_id: int, gtrid: bytes, done: Done) -> None:
        """Remember a global decision no more."""
        globally = Global(format_id, gtrid)
        if self._table.decision(globally) is None:
            done(f"global transaction {globally} has no decision that could be forgotten")
        else:
            self._record(GlobalForget(format_id, gtrid), done)

    def _record(self, event: Event, done: Done) -> None:
        self._point.when_passed(self._writer.append(event), done)

    # -- BranchSink: what observers do

    def prepare(self, tx: int, count: int, done: Done) -> None:
        """Close the tx-queue, and prepare to stay."""
        buffer = self._replica.buffers.get(tx)
        if self._writer.abandoned or not isinstance(buffer, DtxBuffer):
            return
        refusal = self._decider.refusal() or self._fence(buffer)
        if refusal is not None:
            self._decider.tx_rollback(tx)
            done(refusal)
            return
        self._preparing[tx] = buffer, done
        self._count_prepared(buffer, 1)
        sequence = self._writer.append(DtxPrepare(tx, count, self._watcher.participants(), self._writer.wall_ms))
        self._watcher.closed(buffer)
        self._point.when_passed(sequence, partial(self._answer_prepare, tx))

    def _answer_prepare(self, tx: int, outcome: str | None) -> None:
        """Its prepare has passed the commit point. If it was cancelled before, its rollback will answer."""
        done = self._voted.pop(tx, None)
        if done is not None:
            done(outcome)

    def commit_one_phase(self, tx: int, count: int, done: Done) -> None:
        """Close the tx-queue, prepare and decide."""
        buffer = self._replica.buffers.get(tx)
        if self._writer.abandoned or not isinstance(buffer, DtxBuffer):
            return
        refusal = self._fence(buffer)
        if refusal is not None:
            self._decider.tx_rollback(tx)
            done(refusal)
        else:
            self._decider.tx_commit(tx, count, done)

    def _fence(self, buffer: DtxBuffer) -> str | None:
        """Why this branch comes too late."""
        globally = buffer.xid.globally
        if self._table.decision(globally) is None:
            return None
        return f"the branch was rolled back: global transaction {globally} has been decided without it"

    # -- what becomes of prepares

    def prepared(self, buffer: DtxBuffer) -> None:
        """Every participant has prepared durably: the branch is in doubt, unless it has been decided meanwhile."""
        if self._point.serving:
            self._host.on_branch_prepared(described(buffer))
        waiting = self._preparing.pop(buffer.tx, None)
        if waiting is not None:
            self._voted[buffer.tx] = waiting[1]
        self._follow_global(buffer)

    def cancel(self, tx: int, reason: str) -> None:
        """A participant failed: roll back everywhere, and answer when no node can find the prepare any more."""
        waiting = self._preparing.pop(tx, None)
        if waiting is not None:
            self._decider.decide(tx, False, _failing(waiting[1], f"the branch was rolled back: {reason}"))

    def cancel_all(self, reason: str) -> None:
        """Roll back everything whose prepare is on its way."""
        for tx in list(self._preparing):
            self.cancel(tx, reason)

    def ended(self, buffer: DtxBuffer, committed: bool) -> None:
        """A branch that was prepared to stay has ended here."""
        self._count_prepared(buffer, -1)
        if self._point.serving:
            self._host.on_branch_ended(described(buffer), committed)

    def inherit(self) -> int:
        """The branches that an earlier primary left prepared; returns how many of them are in doubt."""
        for event in self._replica.decisions_ahead():
            self._table.deciding[Global(event.format_id, event.gtrid)] = event.commit
        left = [each for each in self._replica.buffers.values() if isinstance(each, DtxBuffer) and each.stays]
        for buffer in sorted(left, key=lambda each: each.tx):
            self._count_prepared(buffer, 1)
            self._follow_global(buffer)
        return sum(buffer.decided is None for buffer in left)

    def _count_prepared(self, buffer: DtxBuffer, times: int) -> None:
        """Until it has ended, a branch that is prepared counts for what the node has open, and for no client."""
        self._factory.open_bytes += times * buffer.size
        self._factory.open_events += times * len(buffer.events)

    def _follow_global(self, buffer: DtxBuffer) -> None:
        """The global decision may have come while the prepare was on its way, or an earlier primary left it at that."""
        decided = self._table.decision(buffer.xid.globally)
        if decided is not None and buffer.decided is None:
            self._decider.decide(buffer.tx, decided, None)

    def _cancel_preparing(self, globally: Global) -> None:
        for tx, (buffer, _) in list(self._preparing.items()):
            if buffer.xid.globally == globally:
                self.cancel(tx, f"global transaction {globally} has been rolled back")


def _failing(done: Done, reason: str) -> Done:
    """Tells the reason when the rollback has passed the commit point."""
    return lambda outcome: done(outcome or reason)
