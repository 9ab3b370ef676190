"""TransactionTable: the transactions that have a name. Those that live, the branches in doubt, the outcomes.

What lives is known as soon as its events are received, since its name is in use from then on. What is *prepared*, and
what is remembered, is so as of the applied prefix of the stream: only that may be told (PROTOCOL, "A transaction", 4).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from txobserver.events import DtxDecision, GlobalDecision, TxDecision
from txobserver.ids import generation_of
from txobserver.outcomes import (
    BranchOutcome,
    Kind,
    Name,
    Outcomes,
    OutcomesMeta,
    PreparedBranch,
    Remembered,
    remembered_of,
)
from txobserver.tx_buffer import ABORTED, DtxBuffer, TxBuffer
from txobserver.xid import Global, Xid


class TransactionTable:
    """``prepared``: branches that are prepared and have not ended, the oldest first. ``deciding``: global decisions of
    this primary that have not passed the commit point."""

    def __init__(self, meta: OutcomesMeta, remembered: Iterable[Remembered]) -> None:
        self.outcomes = Outcomes(meta, remembered)
        self.prepared: dict[Xid, DtxBuffer] = {}
        self.deciding: dict[Global, bool] = {}
        self._live: dict[Name, TxBuffer] = {}
        self._branches: dict[Global, dict[int, DtxBuffer]] = {}

    # -- what happens to transactions

    def named(self, buffer: TxBuffer) -> None:
        """A transaction with a name lives."""
        assert buffer.name is not None
        self._live[buffer.name] = buffer
        if isinstance(buffer, DtxBuffer):
            self._branches.setdefault(buffer.xid.globally, {})[buffer.tx] = buffer

    def rebuilt(self, buffers: Iterable[TxBuffer], applied: int) -> None:
        """These are all the transactions that live, as of the applied sequence."""
        self._live.clear()
        self._branches.clear()
        self.deciding.clear()
        self.prepared.clear()
        named = [buffer for buffer in buffers if buffer.name is not None]
        for buffer in sorted(named, key=lambda each: each.opened):
            self.named(buffer)
        prepared = {buffer.prepared: buffer for buffer in named if buffer.prepared is not None}
        for sequence in sorted(prepared):
            buffer = prepared[sequence]
            if isinstance(buffer, DtxBuffer) and buffer.stays and sequence <= applied:
                self.branch_prepared(buffer)

    def branch_prepared(self, buffer: DtxBuffer) -> None:
        """The prepare of a branch has been applied: it is in doubt, and what it dequeues is locked."""
        self.prepared[buffer.xid] = buffer

    def ended(self, buffer: TxBuffer, event: TxDecision | DtxDecision, sequence: int) -> None:
        """The decision of a transaction with a name has been applied."""
        assert buffer.name is not None
        if self._live.get(buffer.name) is buffer:
            del self._live[buffer.name]
        if isinstance(buffer, DtxBuffer):
            self._branch_ended(buffer)
        if isinstance(event, DtxDecision):
            outcome = remembered_of(buffer.name, event.commit, event.heuristic, sequence, event.at_ms)
            self.outcomes.remember(outcome)

    def _branch_ended(self, buffer: DtxBuffer) -> None:
        siblings = self._branches[buffer.xid.globally]
        del siblings[buffer.tx]
        if not siblings:
            del self._branches[buffer.xid.globally]
        if buffer.stays:
            del self.prepared[buffer.xid]

    def globally_decided(self, event: GlobalDecision, sequence: int) -> None:
        """A global decision has been applied."""
        globally = Global(event.format_id, event.gtrid)
        self.deciding.pop(globally, None)
        self.outcomes.remember(
            Remembered(Kind.GLOBAL, event.format_id, event.gtrid, b"", event.commit, sequence, event.at_ms)
        )

    # -- what follows from it

    def locked(self, queue: int) -> set[int]:
        """The offsets of a queue that prepared branches dequeue: they are looked up in the branches' own events."""
        return {
            offset
            for buffer in self.prepared.values()
            if queue in buffer.dequeued
            for event in buffer.removals
            if event.queue == queue
            for offset, _ in event.entries
        }

    def in_use(self, name: Name) -> bool:
        """Whether no transaction may begin under this name: one lives, has committed, or was decided by an operator."""
        buffer = self._live.get(name)
        if buffer is not None and buffer.state != ABORTED:
            return True
        found = self.outcomes.find(name)
        return found is not None and (found.commit or found.kind is Kind.HEURISTIC)

    def decision(self, globally: Global) -> bool | None:
        """What this global transaction is decided to, on its way or remembered; None while it is not."""
        if globally in self.deciding:
            return self.deciding[globally]
        found = self.outcomes.find(globally)
        return None if found is None else found.commit

    def in_doubt(self, xid: Xid) -> DtxBuffer | None:
        """The branch, if it is prepared and nothing has decided it yet."""
        buffer = self.prepared.get(xid)
        undecided = buffer is not None and buffer.decided is None and self.decision(xid.globally) is None
        return buffer if undecided else None

    def live_branches(self, globally: Global) -> list[DtxBuffer]:
        """The branches of a global transaction that have not ended."""
        return list(self._branches.get(globally, {}).values())

    # -- questions (``txobserver.ports.ledger.Content``)

    def branches(self) -> list[PreparedBranch]:
        """Every branch in doubt, the oldest first."""
        return [described(buffer) for xid, buffer in self.prepared.items() if self.in_doubt(xid)]

    def outcome(self, name: Name, since: int = 0) -> BranchOutcome:
        """What may be told of a transaction. ``since`` as for ``Outcomes.of``."""
        buffer = self._live.get(name)
        if buffer is None:
            return self.outcomes.of(name, since)
        if buffer.prepared is None and buffer.decided is None:
            return BranchOutcome.ACTIVE
        return BranchOutcome.PREPARED if isinstance(name, Xid) and self.in_doubt(name) else BranchOutcome.PENDING

    def global_decision(self, globally: Global) -> BranchOutcome:
        """What may be told of a global decision."""
        return BranchOutcome.PENDING if globally in self.deciding else self.outcomes.of(globally)

    def global_outcome(self, globally: Global) -> BranchOutcome:
        """The same, and of branches that an operator decided otherwise."""
        decided = self.global_decision(globally)
        if decided not in (BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK):
            return decided
        told = {self.outcomes.of(xid) for xid in self.outcomes.branches_of(globally)}
        other = (
            BranchOutcome.HEURISTICALLY_ROLLED_BACK
            if decided is BranchOutcome.COMMITTED
            else BranchOutcome.HEURISTICALLY_COMMITTED
        )
        if other not in told:
            return decided
        return other if told == {other} else BranchOutcome.MIXED

    def branches_of(self, globally: Global) -> dict[Xid, BranchOutcome]:
        """Every branch of a global transaction that lives or is remembered."""
        known = [buffer.xid for buffer in self.live_branches(globally)] + self.outcomes.branches_of(globally)
        return {xid: self.outcome(xid) for xid in known}


def described(buffer: DtxBuffer) -> PreparedBranch:
    """What there is to say of a prepared branch."""
    return PreparedBranch(
        buffer.xid, buffer.tx, generation_of(buffer.tx), buffer.prepared_ms, dict(buffer.enqueued), _locked(buffer)
    )


def _locked(buffer: DtxBuffer) -> dict[int, list[tuple[int, int]]]:
    """The messages that a branch dequeues."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in buffer.removals:
        found[event.queue].extend(event.entries)
    return dict(found)
