"""Where a broker meets the replication: what it asks (Ledger) and what it is told (Host).

A broker never changes a durable queue by itself. It asks the ledger, which makes the change an event of the
stream; when the event has passed the commit point (durable on every node that counts) the host is told, in stream
order, and only then may anything of it be seen: delivered, got, counted, confirmed (PROTOCOL, "A transaction", 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from txobserver.configuration import Configuration
from txobserver.events import Configure, Message, Removal
from txobserver.store import Entry, QueueSummary

Done = Callable[[str | None], None]
"""Called exactly once when the outcome is known: None for done, else one sentence saying why it was refused or
rolled back. It is never called when the outcome is unknown; then ``Host.on_inactive`` closes the clients."""


class Observer(Protocol):
    """The TransactionObserver of one transaction (seed 003). After commit or rollback it takes nothing more."""

    tx: int

    def enqueue(self, queues: Sequence[int], message: Message) -> None:
        """A publish inside the transaction to these durable queues. Nothing is visible before the commit."""
        ...

    def dequeue(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal = Removal.ACKED) -> None:
        """Messages (place, replication id) settled inside the transaction; they leave the queue at commit."""
        ...

    def commit(self, done: Done) -> None:
        """Prepare, decide, and call ``done`` when every node that counts has the decision on disk."""
        ...

    def rollback(self) -> None:
        """Forget everything. May be answered at once."""
        ...


class Ledger(Protocol):
    """What the broker at the active primary may ask. A refusal is told through ``done``."""

    def configure(self, step: Configure, done: Done) -> None:
        """A step of durable configuration; the ledger gives the config_id. The host is told by ``on_configured``."""
        ...

    def publish(self, queues: Sequence[int], message: Message, done: Done | None) -> None:
        """A message outside transactions to one or more durable queues. ``done(None)`` is a publisher confirm."""
        ...

    def settle(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages (place, replication id) leave the queue outside transactions. The host is told by ``on_removed``."""
        ...

    def purge(self, queue: int, place: int, spared: Sequence[int], done: Done) -> None:
        """Everything up to ``place`` but ``spared`` leaves the queue."""
        ...

    def mark(self, queue: int, place: int) -> None:
        """Ask for leave to hand out messages up to ``place``; the host is told by ``on_mark``."""
        ...

    def begin(self) -> Observer:
        """A new transaction with its tx-queue. Costs no round trip and never fails (a refusal comes at commit)."""
        ...


class Content(Protocol):
    """Reading access to the durable queues as of what has been applied."""

    @property
    def configuration(self) -> Configuration:
        """The durable configuration. The host must not change it."""
        ...

    def summary(self, queue: int) -> QueueSummary:
        """Count, digest and mark of a queue; zeros for one that is not known."""
        ...

    def get(self, queue: int, place: int) -> Entry | None:
        """One entry, or None if it is gone. Raises StoreDamaged."""
        ...

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to ``limit`` entries above ``after``, in order. Raises StoreDamaged."""
        ...


class Host(Protocol):
    """What the broker is told. All calls come from the event loop, in stream order, and must not block or raise."""

    def on_active(self, ledger: Ledger, content: Content) -> None:
        """This node is the active primary: serve clients from ``content``.

        Messages at places up to a queue's mark are redelivered.
        """
        ...

    def on_inactive(self, reason: str) -> None:
        """No longer: close every client connection, answer nothing that is outstanding, forget every queue."""
        ...

    def appetite(self, queue: int, offered: int) -> int:
        """How many of the ``offered`` messages, now on their way into the queue, consumers could take at once.

        Asked exactly once for each group of events that adds messages to a queue; the ledger marks that many of them
        as delivered in the same group, so that handing them out costs no second round.
        """
        ...

    def on_configured(self, step: Configure) -> None:
        """A configuration step has been applied to ``content.configuration``."""
        ...

    def on_enqueued(self, queue: int, place: int, rid: int, message: Message) -> None:
        """A message is now in the queue, behind all that were there."""
        ...

    def on_removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages have left the queue."""
        ...

    def on_purged(self, queue: int, place: int, spared: Sequence[int], count: int) -> None:
        """``count`` messages up to ``place``, all but ``spared``, have left the queue."""
        ...

    def on_mark(self, queue: int, place: int) -> None:
        """Messages up to ``place`` may be handed out from now on."""
        ...


def pages(content: Content, queue: int, size: int = 1000) -> Iterator[tuple[int, Entry]]:
    """Every entry of a queue in order, read page by page."""
    after = -1
    while page := content.page(queue, after, size):
        yield from page
        after = page[-1][0]
