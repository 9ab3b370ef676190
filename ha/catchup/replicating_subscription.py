"""ReplicatingSubscription: the primary's end of one queue's catch-up (seeds 001 and 003).

A queue is walked in order of offsets, page by page; the *cursor* says how far the joiner has been told. What changes at
or before the cursor is sent live, what changes behind it will be seen by a later page. New messages always come
behind everything else, so they are live once the walk has reached the end. At any moment the joiner's copy up to
the cursor is the queue's, whatever load runs meanwhile, and no step costs more than a page.

What is live waits here until the joiner has room. If too much waits, the walk is *turned back* to before the first of
it: that is forgotten, and the walk sees it again. So memory is bounded, however slow the joiner is. A purge turns the
walk back to the queue's beginning, since little is left in the queue then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from ha.messages.sizes import ENTRY, message_bytes, slices
from txobserver.events import Message
from txobserver.ports.store import END
from txobserver.state.contents import Contents

PAGE = 500
Live = tuple[list[tuple[int, int, Message]], list[tuple[int, int]]]
"""Messages (offset, replication id, message) that were added, and (offset, replication id) of those that went"""


class ReplicatingSubscription:
    """One queue's walk and live changes; ``waiting`` is how many bytes of those are not sent yet."""

    def __init__(self, queue: int) -> None:
        self.queue = queue
        self.cursor = -1
        self.waiting = 0
        self._added: list[tuple[int, int, Message]] = []
        self._removed: list[tuple[int, int]] = []

    @property
    def live(self) -> bool:
        """Whether the joiner has been told of everything in the queue."""
        return self.cursor == END

    def next_page(self, contents: Contents) -> tuple[int, int, list[tuple[int, int]]]:
        """The next (after, through, ids)."""
        after = self.cursor
        page = contents.messages.ids_page(self.queue, after, PAGE)
        self.cursor = page.through
        return after, self.cursor, page.entries

    def enqueued(self, offset: int, rid: int, message: Message) -> None:
        """A message entered the queue."""
        if offset <= self.cursor:
            self._added.append((offset, rid, message))
            self.waiting += message_bytes(message)

    def gone(self, entries: Sequence[tuple[int, int]]) -> None:
        """Messages left the queue."""
        known = [entry for entry in entries if entry[0] <= self.cursor]
        self._removed.extend(known)
        self.waiting += ENTRY * len(known)

    def turn_back(self, cursor: int | None = None) -> None:
        """Walk again from here on, by default from before the first change that waits; none waits any more."""
        if cursor is None:
            changed = (*(offset for offset, _, _ in self._added[:1]), *(offset for offset, _ in self._removed))
            first = min(changed, default=self.cursor + 1)
            cursor = first - 1
        self.cursor = min(self.cursor, cursor)
        self.take_changes(0)

    def take_changes(self, limit: int) -> Iterator[Live]:
        """Live changes since the last call, at most ``limit`` bytes in each. Nothing is removed before it was added."""
        added, removed = self._added, self._removed
        self._added, self._removed, self.waiting = [], [], 0
        return _live(added, removed, limit)


def _live(added: list[tuple[int, int, Message]], removed: list[tuple[int, int]], limit: int) -> Iterator[Live]:
    for run in slices(added, lambda each: message_bytes(each[2]), limit):
        yield run, []
    for gone in slices(removed, lambda entry: ENTRY, limit):
        yield [], gone


def content(contents: Contents, queue: int, offsets: deque[int], limit: int) -> list[tuple[int, int, Message]]:
    """The messages at the first of these offsets that are still there: up to ``limit`` bytes, or one message.

    Those offsets are taken away from ``offsets``.
    """
    found: list[tuple[int, int, Message]] = []
    taken = 0
    while offsets and (taken < limit or not found):
        entry = contents.messages.get(queue, offsets[0])
        if entry is not None:
            taken += message_bytes(entry.message)
            if found and taken > limit:
                break
            found.append((offsets[0], entry.rid, entry.message))
        offsets.popleft()
    return found
