"""The teller: what has passed the commit point is told to the primary's broker, and to copies that are being made."""

from __future__ import annotations

from collections.abc import Sequence

from ha.apply.applied import Applied
from ha.primary.additions import Additions
from ha.primary.commit_point import CommitPoint
from ha.primary.refusals import Refusals
from ha.primary.stream_decisions import StreamDecisions
from ha.primary.transactions import TransactionWatcher
from txobserver.calls import CALLS
from txobserver.configuration import Configured
from txobserver.events import Configure, Message, Removal
from txobserver.ports.ledger import Host
from txobserver.tx_buffer import DtxBuffer, TxBuffer


class Teller(Applied):
    """``copies`` are told of everything, the host of what concerns it while clients are served."""

    def __init__(
        self,
        host: Host,
        point: CommitPoint,
        decisions: StreamDecisions,
        refusals: Refusals,
        additions: Additions,
        watcher: TransactionWatcher,
        copies: list[Applied],
    ) -> None:
        self._copies = copies
        self._watcher = watcher
        self._host = host
        self._point = point
        self._decisions = decisions
        self._refusals = refusals
        self._additions = additions

    def configured(self, step: Configure, done: Configured) -> None:
        """Tell the broker, and who asked for the step."""
        self._tell("configured", step, done)
        if self._point.serving:
            self._refusals.applied(step.config_id, done.refusal)
            if step.operation not in CALLS:
                self._host.on_configured(step, done)

    def queue_deleted(self, queue: int) -> None:
        """No backup holds anything of it any more, and no consumer waits for it."""
        self._additions.queue_deleted(queue)
        self._watcher.queue_deleted(queue)

    def step_begins(self) -> None:
        """Tell the broker. Copies are made message by message, and end in the middle of no step."""
        if self._point.serving:
            self._host.on_step_begins()

    def step_ends(self) -> None:
        """Tell the broker."""
        if self._point.serving:
            self._host.on_step_ends()

    def enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """Tell the broker."""
        for copy in self._copies:
            copy.enqueued(queue, offset, rid, message)
        if self._point.serving:
            self._host.on_enqueued(queue, offset, rid, message)

    def removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Tell the broker."""
        for copy in self._copies:
            copy.removed(queue, entries, reason)
        if self._point.serving:
            self._host.on_removed(queue, entries, reason)

    def watermark_raised(self, queue: int, offset: int) -> None:
        """Tell the broker."""
        self._tell("watermark_raised", queue, offset)
        if self._point.serving:
            self._host.on_watermark(queue, offset)

    def purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        """Tell the broker."""
        self._tell("purged", queue, offset, spared, count)
        if self._point.serving:
            self._host.on_purged(queue, offset, spared, count)

    def prepared(self, tx: int) -> None:
        """Every participant has prepared durably."""
        self._decisions.transactions.prepared(tx)

    def branch_prepared(self, buffer: DtxBuffer) -> None:
        """Every participant has prepared durably, to stay."""
        self._decisions.branches.prepared(buffer)

    def ended(self, buffer: TxBuffer, committed: bool) -> None:
        """The transaction has been applied to every queue here."""
        if isinstance(buffer, DtxBuffer) and buffer.stays:
            self._decisions.branches.ended(buffer, committed)

    def _tell(self, call: str, *arguments: object) -> None:
        for copy in self._copies:
            getattr(copy, call)(*arguments)
