"""The queues that the stream leads to, computed anew and in the plainest way; nothing of the product's code is asked.

One event after another, as it passes the commit point. For every queue it remembers count and digest after each change,
so that a node that is behind can be compared as of its own position.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.reference_branches import ReferenceBranches
from tests.simulation.reference_names import ReferenceNames, carried_out
from tests.simulation.user_reference import UserReference
from txobserver.configuration import DECLARE_QUEUE, DELETE_QUEUE
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
    Event,
    Publish,
    Purge,
    Settle,
    Terms,
    TxDecision,
    TxDequeue,
    TxEnqueue,
)
from txobserver.xid import Xid

_MASK = (1 << 64) - 1


def fingerprint(offset: int, rid: int) -> int:
    """The product's digest of one message (``txobserver.ports.store.mix``), written down a second time."""
    value = (offset * 0x9E3779B97F4A7C15 ^ rid * 0xC2B2AE3D27D4EB4F) & _MASK
    value = ((value ^ (value >> 29)) * 0xBF58476D1CE4E5B9) & _MASK
    return value ^ (value >> 32)


@dataclass
class ReferenceQueue:
    """``contents``: offset -> (replication id, body). ``changed_at``: sequences, with (count, digest) after each;
    ``marked_at``: the same for delivery watermarks. ``step``: the id of the one that declared it.
    """

    name: str
    number: int
    step: int
    contents: dict[int, tuple[int, str]] = field(default_factory=dict)
    digest: int = 0
    watermark: int = 0
    changed_at: list[int] = field(default_factory=list)
    summaries: list[tuple[int, int]] = field(default_factory=list)
    marked_at: list[int] = field(default_factory=list)
    watermarks: list[int] = field(default_factory=list)

    def watermark_as_of(self, sequence: int) -> int:
        """Up to which offset messages might have been handed out after the event at this sequence."""
        at = bisect_right(self.marked_at, sequence)
        return self.watermarks[at - 1] if at else 0

    def as_of(self, sequence: int) -> tuple[int, int]:
        """(count, digest) after the event at this sequence."""
        at = bisect_right(self.changed_at, sequence)
        return self.summaries[at - 1] if at else (0, 0)


@dataclass
class Change:
    """What one event did to the queues, as (queue, offset, body)."""

    inserted: list[tuple[str, int, str]] = field(default_factory=list)
    rids: list[int] = field(default_factory=list)
    """The replication id of each message that it brought, to however many queues"""
    removed: list[tuple[str, int, str]] = field(default_factory=list)
    dropped: list[tuple[str, int, str]] = field(default_factory=list)
    """What went with its queue"""
    configured: bool = False
    decided: int | None = None
    """The transaction that it decided"""
    committed: bool = False
    named: Xid | bytes | None = None
    """Which branch it prepared, or which transaction with a name it decided"""


class Deletions(NamedTuple):
    """Of one name: whether there is a queue and what it holds; how often one was deleted, or kept since it was not
    empty; how many messages came."""

    there: bool
    held: int
    carried_out: int
    refused: int
    came: int


class Reference:
    """All durable queues as of ``end``, and their history."""

    def __init__(self) -> None:
        self.end = 0
        self.queues: dict[int, ReferenceQueue] = {}
        self.by_name: dict[str, ReferenceQueue] = {}
        self.branches = ReferenceBranches()
        self.names = ReferenceNames()
        self.users = UserReference()
        self._carried_out: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._came: Counter[str] = Counter()
        self._open: dict[int, list[TxEnqueue | TxDequeue]] = {}

    def apply(self, sequence: int, event: Event) -> Change:
        """The next event."""
        self.end = sequence
        change = Change()
        if isinstance(event, Publish):
            self._insert(sequence << 20, event, change)
        elif isinstance(event, Settle):
            self._remove(event, change)
        elif isinstance(event, Purge):
            self._purge(event, change)
        elif isinstance(event, Delivered):
            queue = self.queues.get(event.queue)
            if queue is not None:
                queue.watermark = max(queue.watermark, event.offset)
                queue.marked_at.append(sequence)
                queue.watermarks.append(queue.watermark)
        elif isinstance(event, Configure):
            self.users.apply(sequence, event)
            self._configure(event, change)
        elif isinstance(event, TxEnqueue | TxDequeue):
            self._open.setdefault(event.tx, []).append(event)
        elif isinstance(event, TxDecision | DtxDecision):
            self._decide(sequence, event, change)
        change.named = self.branches.apply(sequence, event, self._open)
        for name in sorted({name for name, _, _ in change.inserted + change.removed}):
            queue = self.by_name[name]
            queue.changed_at.append(sequence)
            queue.summaries.append((len(queue.contents), queue.digest))
        return change

    def _insert(self, offset: int, event: Publish | TxEnqueue, change: Change) -> None:
        change.rids.append(event.rid)
        for number in event.queues:
            queue = self.queues.get(number)
            if queue is not None:
                body = event.message.body.decode()
                queue.contents[offset] = (event.rid, body)
                queue.digest = (queue.digest + fingerprint(offset, event.rid)) & _MASK
                change.inserted.append((queue.name, offset, body))
                self._came[queue.name] += 1

    def _remove(self, event: Settle | TxDequeue, change: Change) -> None:
        queue = self.queues.get(event.queue)
        for offset, _ in event.entries:
            self._take(queue, offset, change)

    def _purge(self, event: Purge, change: Change) -> None:
        queue = self.queues.get(event.queue)
        if queue is not None:
            for offset in [each for each in queue.contents if each <= event.offset and each not in event.spared]:
                self._take(queue, offset, change)

    @staticmethod
    def _take(queue: ReferenceQueue | None, offset: int, change: Change) -> None:
        found = queue.contents.pop(offset, None) if queue is not None else None
        if queue is not None and found is not None:
            queue.digest = (queue.digest - fingerprint(offset, found[0])) & _MASK
            change.removed.append((queue.name, offset, found[1]))

    def _configure(self, event: Configure, change: Change) -> None:
        change.configured = True
        parts = carried_out(event) if self.users.loads.get(event.config_id, "none") is None else []
        for part in parts:
            self._declare(part, event.config_id)
        done = self.names.apply(event, self._ready, parts)
        if event.operation == DECLARE_QUEUE:
            self._declare(event, event.config_id)
        elif event.operation == DELETE_QUEUE and not done:
            self._refused[event.name] += 1
        elif event.operation == DELETE_QUEUE and event.name in self.by_name:
            gone = self.queues.pop(self.by_name.pop(event.name).number)
            change.dropped += [(gone.name, offset, body) for offset, (_, body) in gone.contents.items()]
            self._carried_out[event.name] += 1

    def _declare(self, event: Configure, step: int) -> None:
        number = event.config_id
        if event.operation == DECLARE_QUEUE and event.name not in self.by_name:
            self.by_name[event.name] = self.queues[number] = ReferenceQueue(event.name, number, step)

    def _ready(self, number: int, terms: Terms) -> bool:
        """Whether a queue holds what is neither in a client's hands nor in those of a prepared branch."""
        locked = {offset for held in self.branches.prepared.values() for queue, offset in held if queue == number}
        behind = (offset for offset in self.queues[number].contents if offset > (terms.through or 0))
        return any(offset not in terms.spared and offset not in locked for offset in behind)

    def deletions(self, name: str) -> Deletions:
        """What became of a queue of this name so far."""
        queue = self.by_name.get(name)
        held = len(queue.contents) if queue is not None else 0
        counts = self._carried_out[name], self._refused[name], self._came[name]
        return Deletions(queue is not None, held, *counts)

    def _decide(self, sequence: int, event: TxDecision | DtxDecision, change: Change) -> None:
        change.decided, change.committed = event.tx, event.commit
        events = self._open.pop(event.tx, [])
        if event.commit:
            for index, part in enumerate(events):
                if isinstance(part, TxEnqueue):
                    self._insert(sequence << 20 | index, part, change)
                else:
                    self._remove(part, change)
