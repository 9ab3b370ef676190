"""What a durable queue hands out next, as far as it is in memory, and what has to be read for it.

The *window* is the beginning of what has never been handed out. While it holds all of that, new messages join it; when
it is full they do not, and it is filled again when it runs short. What was handed out and given back waits beside it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from broker_plugin.embedded.queues.given_back import GivenBack, Wanted
from broker_plugin.embedded.queues.windows import OVERHEAD, Windows
from txobserver.events import Message
from txobserver.message_size import size_of
from txobserver.ports.ledger import Content, Found
from txobserver.ports.store import Above, At, StoreDamaged

FIRST_PAGE = 64
"""Messages read at first; how many are read next follows from their mean size."""


class Supply:
    """Of one queue. ``window``: offset, replication id, message; ``window_bytes``: what its messages hold.

    Who takes the first out of the window hands it out, and says so (``left_window``).
    ``ready``, wherever it is asked for, is how many messages are in the queue and held by no client and no branch.
    """

    def __init__(self, number: int, content: Content, windows: Windows) -> None:
        self.window: deque[tuple[int, int, Message]] = deque()
        self.window_bytes = 0
        self.given_back = GivenBack(number, content, windows)
        self._number = number
        self._windows = windows
        self._limits = windows.limits
        self._cursor = -1
        self._mean = max(1, windows.limits.bytes // FIRST_PAGE)
        self._passed_over: set[int] = set()
        self._reading = False

    # -- what enters and leaves

    def enter(self, offset: int, rid: int, message: Message, ready: int) -> None:
        """A message has entered the queue, behind all others; it joins the window if nothing is missing between."""
        if self._is_complete(ready):
            held = len(self.window)
            if held < self._limits.messages and self._windows.room(held, self.window_bytes) > 0:
                self._append(offset, rid, message)

    def left_window(self, message: Message) -> None:
        """This message is no longer in the window: it is handed out, or has left the queue."""
        self.window_bytes -= size_of(message)
        self._windows.held -= size_of(message) + OVERHEAD

    def given_back_is_first(self, ready: int) -> bool:
        """Whether nothing stands before what was given back; it may do so beyond the window's end, and not be read."""
        first = self.given_back.entries[0][0]
        return first < self.window[0][0] if self.window else self._is_complete(ready) or first <= self._cursor

    def forget(self, offset: int, rid: int) -> None:
        """A message left the queue though no client or branch held it."""
        self.given_back.forget(offset, rid)
        for index, entry in enumerate(self.window):
            if entry[0] >= offset:
                if entry[0] == offset:
                    del self.window[index]
                    self.left_window(entry[2])
                return

    def pass_over(self, offsets: Iterable[int]) -> None:
        """The window never takes these from the store: they are in a branch's hands from the beginning."""
        self._passed_over.update(offsets)

    def purged(self, kept: Collection[int]) -> None:
        """All but what stands at these offsets has left the queue."""
        self._empty_window()
        self.given_back.purged(kept)

    def clear(self) -> list[tuple[int, int]]:
        """The queue is gone; returns the offsets and ids of what had been given back, to be let go of."""
        self._empty_window()
        return self.given_back.clear()

    # -- reading

    def next_page(self, ready: int) -> Wanted | None:
        """What must be read to hand out what is next, if it is neither here nor asked for; ``came`` ends that."""
        if self._reading:
            return None
        limits, windows, back = self._limits, self._windows, self.given_back
        held = len(self.window)
        room = windows.room(held, self.window_bytes)
        if back.entries and self.given_back_is_first(ready) and not back.is_loaded(back.entries[0][0]):
            wanted = back.ask(self._mean)
        elif not self._is_complete(ready) and held * 2 < limits.messages and room * 2 > windows.share:
            size = max(1, min(windows.messages(room, self._mean), limits.messages - held))
            wanted = Wanted(Above(self._number, self._cursor, size, room), windows.weight(room, size))
        else:
            return None
        self._reading = True
        windows.held += wanted.weight
        return wanted

    def came(self, wanted: Wanted) -> None:
        """The page has come, whether anything is taken from it or not."""
        self._reading = False
        self._windows.held -= wanted.weight

    def take_page(self, wanted: Wanted, found: Found, unchanged: bool) -> None:
        """What has been read. ``unchanged``: nothing has entered or left the queue since it was asked for.

        Raises StoreDamaged if the store does not hold what it must.
        """
        if isinstance(wanted.asked, At):
            self.given_back.came(found)
        elif not self._fill(wanted, found) and unchanged:
            raise StoreDamaged("the queue state does not hold a message that it counts")

    def _fill(self, wanted: Wanted, found: Found) -> bool:
        """So much of a page was asked for, whatever others hold by now. Returns whether it led anywhere."""
        limits, windows = self._limits, self._windows
        most = windows.held + wanted.weight
        before, passed = self.window_bytes, 0
        held = len(self.window)
        for offset, entry in found.entries:
            passed += 1
            if offset <= self._cursor:
                continue  # the window was emptied meanwhile, and new messages have joined it
            if offset in self._passed_over:
                self._cursor = offset
            elif windows.held >= most or self.window_bytes >= limits.bytes or len(self.window) >= limits.messages:
                break
            else:
                self._append(offset, entry.rid, entry.message)
        else:
            self._cursor = max(self._cursor, found.through)
        if len(self.window) > held:
            self._mean = (self.window_bytes - before) // (len(self.window) - held) + 1
            return True
        return bool(passed or found.through)

    # -- the window

    def _is_complete(self, ready: int) -> bool:
        """Whether the window holds all that was never handed out."""
        return len(self.window) + len(self.given_back.entries) >= ready

    def _append(self, offset: int, rid: int, message: Message) -> None:
        self.window.append((offset, rid, message))
        self.window_bytes += size_of(message)
        self._windows.held += size_of(message) + OVERHEAD
        self._cursor = offset

    def _empty_window(self) -> None:
        for _, _, message in self.window:
            self.left_window(message)
        self.window.clear()
