"""ReplicatingSubscription: the primary's end of one queue's catch-up (seeds 001 and 003).

A queue is walked in order of places, page by page; the *cursor* says how far the joiner has been told. What changes at
or before the cursor is sent live, what changes behind it will be seen by a later page. New messages always come
behind everything else, so they are live once the walk has reached the end. At any moment the joiner's copy up to
the cursor is the queue's, whatever load runs meanwhile, and no step costs more than a page.
"""

from __future__ import annotations

from collections.abc import Sequence

from txobserver.contents import Contents
from txobserver.events import Message

PAGE = 500
END = (1 << 63) - 1


class ReplicatingSubscription:
    """One queue's walk and live changes."""

    def __init__(self, queue: int) -> None:
        self.queue = queue
        self.cursor = -1
        self.added: list[tuple[int, int, Message]] = []
        self.removed: list[int] = []

    @property
    def live(self) -> bool:
        """Whether the joiner has been told of everything in the queue."""
        return self.cursor == END

    def next_page(self, contents: Contents) -> tuple[int, int, list[tuple[int, int]]]:
        """The next (after, through, ids)."""
        after = self.cursor
        page = contents.page(self.queue, after, PAGE)
        self.cursor = page[-1][0] if len(page) == PAGE else END
        return after, self.cursor, [(place, entry.rid) for place, entry in page]

    def content(self, contents: Contents, places: Sequence[int]) -> list[tuple[int, int, Message]]:
        """The messages at these places that are still there."""
        found = []
        for place in places:
            entry = contents.get(self.queue, place)
            if entry is not None:
                found.append((place, entry.rid, entry.message))
        return found

    def enqueued(self, place: int, rid: int, message: Message) -> None:
        """A message entered the queue."""
        if place <= self.cursor:
            self.added.append((place, rid, message))

    def gone(self, places: Sequence[int]) -> None:
        """Messages left the queue."""
        self.removed.extend(place for place in places if place <= self.cursor)

    def take_changes(self) -> tuple[list[tuple[int, int, Message]], list[int]]:
        """Live changes since the last call. Nothing is removed before it was added."""
        added, removed = self.added, self.removed
        self.added, self.removed = [], []
        return added, removed
