"""What the core asks of a store: queue contents by page, checkpoints, the stream's log.

The log is the truth; the queue state is what the log leads to, as of an applied position. The same interfaces are
met by LMDB and segments (``recovery``) and by plain memory (simulator, tests).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec

from txobserver.access import Access
from txobserver.calls import KeptCalls
from txobserver.configuration import Configuration
from txobserver.digest import MASK, mix
from txobserver.errors import Error
from txobserver.events import Message, TxEvent
from txobserver.ids import Position
from txobserver.message_size import size_of
from txobserver.outcomes import OutcomesMeta, Remembered

PAGE = 1000
"""Messages that are read at a time by what goes through a whole queue."""
IDS_BYTES = 8 << 20
"""Bytes of messages whose ids are looked for at a time: LMDB's Python binding reads every page of a value."""
IDS_PASSED = 10_000
"""Messages that are passed over at a time where ids are looked for: they have left the queue since the checkpoint."""
END = (1 << 63) - 1
"""Behind every offset"""


class StoreError(Error):
    """Raised when a file (a decision log, a node's log or state) cannot be read or written; one sentence says why."""


class StoreFull(StoreError):
    """Raised when no space is left for a file, or it must not be written to."""


class StoreBusy(StoreError):
    """Raised when another process has the file, or memory or descriptors are short: it may go well at another time.

    Nothing is known to be wrong with the file.
    """


class StoreDamaged(StoreError):
    """Raised when a checksum does not match, or a file is as no crash leaves it: it must not be served or believed."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A message in a queue. Millions may be in memory, so the collector does not look at them."""

    rid: int
    message: Message


class QueueSummary(msgspec.Struct, array_like=True):
    """What is known of a queue without reading it.

    ``digest`` is order-independent over (offset, replication id), modulo 2**64; since offsets order a queue, equal
    digests mean equal content in equal order (P7). Offsets up to ``watermark`` may have been handed to a consumer.
    """

    count: int = 0
    digest: int = 0
    watermark: int = 0

    def put(self, offset: int, rid: int) -> None:
        """A message came."""
        self.count += 1
        self.digest = self.digest + mix(offset, rid) & MASK

    def take(self, offset: int, rid: int) -> None:
        """A message went."""
        self.count -= 1
        self.digest = self.digest - mix(offset, rid) & MASK


class Meta(msgspec.Struct):
    """Everything of a checkpoint but messages, open transactions and outcomes.

    ``history`` lists for each generation the position of its first event. ``resyncing`` is set while the queues are
    being overwritten by a primary's snapshot: such a store holds no consistent state and may only go on resyncing.
    """

    applied: Position = Position(0, 0)
    history: list[Position] = []
    configuration: Configuration = msgspec.field(default_factory=Configuration)
    summaries: dict[int, QueueSummary] = {}
    resyncing: bool = False
    outcomes: OutcomesMeta = OutcomesMeta()
    calls: KeptCalls = msgspec.field(default_factory=KeptCalls)
    access: Access = msgspec.field(default_factory=Access)


Changes = dict[int, dict[int, Entry | None]]
"""queue -> offset -> the entry that is there now, or None where one was removed"""


class Dropped(NamedTuple):
    """A queue that was deleted or purged: of what the base holds of it only ``kept`` remains, offsets with their
    ids."""

    queue: int
    kept: Mapping[int, int] = MappingProxyType({})


class TxRun(NamedTuple):
    """Some events of a transaction that is open, in order, with their sequences."""

    tx: int
    events: list[tuple[int, TxEvent]]


class Checkpoint(NamedTuple):
    """Everything that changed since the last checkpoint; written in one atomic step."""

    meta: Meta
    changes: Changes
    """No caller changes it while it is written, so a thread may read it."""
    dropped: list[Dropped]
    """Carried out before ``changes``."""
    tx_events: list[TxRun]
    """Of transactions that are open as of ``meta.applied``; no caller changes them while they are written"""
    tx_ended: list[int]
    """Transactions whose events are no longer needed"""
    remembered: Mapping[bytes, Remembered | None] = MappingProxyType({})
    """Outcomes by their keys; None where one was forgotten"""
    remember_anew: bool = False
    """Nothing that was remembered before counts. Carried out before ``remembered``."""


class Loaded(NamedTuple):
    """What a store holds of the last checkpoint beside the queues' messages."""

    meta: Meta
    transactions: dict[int, list[tuple[int, TxEvent]]]
    """(sequence, event) of the transactions that are open as of ``meta.applied``"""
    remembered: list[Remembered]


class Above(NamedTuple):
    """Asks for a page of a queue: what stands above ``after``, so many messages, and bytes of them, or one message."""

    queue: int
    after: int
    limit: int
    max_bytes: int


class At(NamedTuple):
    """Asks for the messages at the first of these offsets: so many bytes of them, or one message."""

    queue: int
    offsets: tuple[int, ...]
    max_bytes: int


Asked = Above | At


class Page(NamedTuple):
    """What was asked for, in order; ``more``: other messages of the queue stand behind it."""

    entries: list[tuple[int, Entry]]
    more: bool


class Ids(NamedTuple):
    """(offset, replication id) of messages, in order: all of the queue's up to ``through``."""

    entries: list[tuple[int, int]]
    through: int

    @property
    def more(self) -> bool:
        """Whether other messages of the queue may stand behind these."""
        return self.through < END


class Base(Protocol):
    """Queue contents as of the last checkpoint. Reads are short and may be made from the event loop, but ``read``."""

    def read(self, asked: Asked) -> Page:
        """Messages, also large ones: to be asked by a thread that nothing else waits for. Raises StoreDamaged."""
        ...

    def holds(self, queue: int, offset: int) -> bool:
        """Whether a message stands there; none is read, however large it is. Raises StoreDamaged."""
        ...

    def get(self, queue: int, offset: int) -> Entry | None:
        """The entry, or None. Raises StoreDamaged."""
        ...

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        """Up to ``limit`` (offset, entry) with offsets above ``after``, in order. Raises StoreDamaged."""
        ...

    def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int] = ()) -> Ids:
        """Up to ``limit`` that are not ``hidden``, without the messages; fewer where those are large, but one, or where
        more than ``IDS_PASSED`` are hidden, perhaps none. Raises StoreDamaged.
        """
        ...

    def ids(self, queue: int) -> Iterator[tuple[int, int]]:
        """All (offset, replication id) of a queue, in order."""
        ...


def fitting(there: list[tuple[int, Entry]], max_bytes: int) -> list[tuple[int, Entry]]:
    """The first of these: so many bytes of them, or one."""
    taken = 0
    for index, (_, entry) in enumerate(there):
        taken += size_of(entry.message)
        if index and taken > max_bytes:
            return there[:index]
    return there


class MemoryBase:
    """A base in plain memory, for the simulator and for tests."""

    def __init__(self) -> None:
        self.meta = Meta()
        self.queues: dict[int, dict[int, Entry]] = {}
        self.transactions: dict[int, dict[int, TxEvent]] = {}
        self.remembered: dict[bytes, Remembered] = {}
        self.log_begun = False

    def confirm(self, log_begun: bool) -> None:
        """What is here counts from now on."""
        self.log_begun = log_begun

    def read(self, asked: Asked) -> Page:
        content = self.queues.get(asked.queue, {})
        if isinstance(asked, At):
            there = [(offset, content[offset]) for offset in asked.offsets if offset in content]
            limit = len(there)
        else:
            there = [(offset, content[offset]) for offset in sorted(p for p in content if p > asked.after)]
            limit = asked.limit
        found = fitting(there[:limit], asked.max_bytes)
        return Page(found, len(found) < len(there))

    def holds(self, queue: int, offset: int) -> bool:
        return offset in self.queues.get(queue, {})

    def get(self, queue: int, offset: int) -> Entry | None:
        return self.queues.get(queue, {}).get(offset)

    def page(self, queue: int, after: int, limit: int) -> list[tuple[int, Entry]]:
        content = self.queues.get(queue, {})
        return [(offset, content[offset]) for offset in sorted(p for p in content if p > after)[:limit]]

    def ids_page(self, queue: int, after: int, limit: int, hidden: Container[int] = ()) -> Ids:
        content = self.queues.get(queue, {})
        found: list[tuple[int, int]] = []
        taken = passed = 0
        last = after
        for offset in sorted(offset for offset in content if offset > after):
            if offset not in hidden:
                taken += size_of(content[offset].message)
                if found and (len(found) == limit or taken > IDS_BYTES):
                    return Ids(found, found[-1][0])
                found.append((offset, content[offset].rid))
            elif (passed := passed + 1) > IDS_PASSED:
                return Ids(found, last)
            last = offset
        return Ids(found, END)

    def ids(self, queue: int) -> Iterator[tuple[int, int]]:
        content = self.queues.get(queue, {})
        return iter([(offset, content[offset].rid) for offset in sorted(content)])

    def load(self) -> Loaded:
        transactions = {tx: sorted(events.items()) for tx, events in self.transactions.items()}
        return Loaded(self.meta, transactions, list(self.remembered.values()))

    def write(self, checkpoint: Checkpoint) -> None:
        """Bring the base forward."""
        for queue, kept in checkpoint.dropped:
            content = self.queues.pop(queue, {})
            if kept:
                self.queues[queue] = {offset: entry for offset, entry in content.items() if offset in kept}
        for queue, changed in checkpoint.changes.items():
            content = self.queues.setdefault(queue, {})
            for offset, entry in changed.items():
                if entry is None:
                    content.pop(offset, None)
                else:
                    content[offset] = entry
        for tx in checkpoint.tx_ended:
            self.transactions.pop(tx, None)
        for tx, events in checkpoint.tx_events:
            self.transactions.setdefault(tx, {}).update(events)
        if checkpoint.remember_anew:
            self.remembered.clear()
        for key, remembered in checkpoint.remembered.items():
            if remembered is None:
                self.remembered.pop(key, None)
            else:
                self.remembered[key] = remembered
        self.meta = checkpoint.meta
