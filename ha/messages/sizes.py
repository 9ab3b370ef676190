"""How many bytes things take on the wire and in the log, about; and runs of them that are bounded by that.

Nothing is encoded in one piece that holds the event loop for long: whatever can be many is sent in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from txobserver.events import Configure, Event, Message, Publish, Purge, Settle, TxDequeue, TxEnqueue

OVERHEAD = 100
"""Bytes that a message or an event is counted for beside its contents."""
ENTRY = 20
"""Bytes of an offset and a replication id."""
COUNT = 12
"""Bytes of a transaction's number and that of its events."""
SETTLED = 1000
"""How many messages one event settles at most, outside transactions."""
EVENT_WORK = 300
ENTRY_WORK = 140
"""Bytes that an event, and an offset with a replication id, are counted for beside these where frames are filled: to
encode and decode many small things takes as long as to copy large ones."""

Item = TypeVar("Item")


def message_bytes(message: Message) -> int:
    """Bytes of a message."""
    return len(message.body) + len(message.properties) + len(message.routing_key) + OVERHEAD


def event_bytes(event: Event) -> int:
    """Bytes of an event."""
    if isinstance(event, Publish | TxEnqueue):
        return message_bytes(event.message) + ENTRY * len(event.queues)
    if isinstance(event, Settle | TxDequeue):
        return OVERHEAD + ENTRY * len(event.entries)
    if isinstance(event, Configure):
        spared = ENTRY * (len(event.terms.spared) if event.terms is not None else 0)
        return OVERHEAD + len(event.name) + len(event.arguments) + spared
    return OVERHEAD + ENTRY * len(event.spared) if isinstance(event, Purge) else OVERHEAD


def event_work(event: Event) -> int:
    """Bytes that an event is counted for where a frame is filled."""
    return event_bytes(event) + EVENT_WORK + ENTRY_WORK * entries_of(event)


def entries_of(event: Event) -> int:
    """How many messages an event settles."""
    return len(event.entries) if isinstance(event, Settle | TxDequeue) else 0


def slices(items: Iterable[Item], size: Callable[[Item], int], limit: int) -> Iterator[list[Item]]:
    """The items in order, in runs of at most ``limit`` bytes; a larger item makes a run by itself."""
    run: list[Item] = []
    taken = 0
    for item in items:
        more = size(item)
        if run and taken + more > limit:
            yield run
            run, taken = [], 0
        run.append(item)
        taken += more
    if run:
        yield run
