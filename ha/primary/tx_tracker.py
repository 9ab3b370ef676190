"""TxTracker: holds a joiner back from ``ready`` while it may hold part of a transaction (seed 003).

Promise (P9): no ready backup holds a proper subset of a transaction.

One tracker per (transaction, queue, joiner). It is set at prepare, before the local commit, for every joiner that does
not take part, and when a joiner connects for each transaction that is closed and has not ended. It is emptied only by

- the joiner's durable acknowledgement of the decision (never by the sending of it: ``tracker_cleared_on_send``),
- the joiner's durable acknowledgement of a snapshot that was cut behind the decision: it is the acknowledgement of
  the cut's position (``tracker_never_clears``; for a transaction that had ended before the joiner connected there is no
  tracker at all, ``tracker_for_what_snapshot_already_has``),
- a rollback, or the deletion of the queue,
- for a transaction without a decision: the joiner's having passed its guards with the prepare on its disk, which
  makes it a participant (``prepared_branch_blocks_joiner``).
"""

from __future__ import annotations

from heapq import heappop, heappush


class TxTrackers:
    """All TxTrackers of one joiner: transaction -> the queues in doubt.

    A joiner that catches up under load has many thousands, and acknowledges often. So the decided ones are kept in the
    order of their decisions, and an acknowledgement looks only at those that it empties. ``_prepared`` holds the rest.
    """

    def __init__(self) -> None:
        self._queues: dict[int, set[int]] = {}
        self._decided: list[tuple[int, int]] = []
        self._prepared: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(len(queues) for queues in self._queues.values())

    @property
    def clear(self) -> bool:
        """Whether nothing holds the joiner back."""
        return not self._queues

    def track(self, tx: int, queues: set[int], prepared: int) -> None:
        """The joiner does not take part in this closed transaction; its prepare stands at sequence ``prepared``."""
        if queues:
            self._queues[tx] = set(queues)
            self._prepared[tx] = prepared

    def decide(self, tx: int, sequence: int) -> None:
        """The transaction is decided to commit, at this sequence."""
        if self._prepared.pop(tx, None) is not None:
            heappush(self._decided, (sequence, tx))

    def rolled_back(self, tx: int) -> None:
        """The transaction was aborted: no backup holds anything of it."""
        self._forget(tx)

    def queue_deleted(self, queue: int) -> None:
        """No backup holds anything in this queue any more."""
        for tx in list(self._queues):
            self._discard(tx, queue)

    def acknowledged(self, sequence: int, past_guard: bool) -> None:
        """The joiner's log is durable up to ``sequence``."""
        while self._decided and self._decided[0][0] <= sequence:
            self._forget(heappop(self._decided)[1])
        if past_guard:
            for tx in [tx for tx, prepared in self._prepared.items() if prepared <= sequence]:
                self._forget(tx)

    def _discard(self, tx: int, queue: int) -> None:
        self._queues[tx].discard(queue)
        if not self._queues[tx]:
            self._forget(tx)

    def _forget(self, tx: int) -> None:
        self._queues.pop(tx, None)
        self._prepared.pop(tx, None)
