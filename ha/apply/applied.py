"""What is told while the stream is applied: the primary (for its broker and its joiners), or nothing."""

from __future__ import annotations

from collections.abc import Sequence

from txobserver.configuration import Configured
from txobserver.events import Configure, Message, Removal
from txobserver.tx_buffer import DtxBuffer, TxBuffer


class Applied:
    """Told of each applied event, in stream order, after the contents have changed. This one does nothing with it."""

    def configured(self, step: Configure, done: Configured) -> None:
        """A configuration step, and what became of it."""

    def queue_deleted(self, queue: int) -> None:
        """A queue was deleted, with all it held."""

    def step_begins(self) -> None:
        """What ``enqueued`` and ``removed`` tell from here on is one step, and takes several turns."""

    def step_ends(self) -> None:
        """All of that step has been told."""

    def enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """A message entered a queue."""

    def removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages (offset, replication id) left a queue."""

    def watermark_raised(self, queue: int, offset: int) -> None:
        """Messages up to ``offset`` may be handed out."""

    def purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        """A purge up to ``offset``, all but ``spared``, removed so many messages."""

    def prepared(self, tx: int) -> None:
        """The prepare of a transaction has passed the commit point: every participant has it on disk."""

    def branch_prepared(self, buffer: DtxBuffer) -> None:
        """The same for a branch, which stays prepared until it is decided."""

    def ended(self, buffer: TxBuffer, committed: bool) -> None:
        """A transaction has been applied to every queue here, or was aborted."""
