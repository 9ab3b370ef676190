"""Readings: what the queues of one generation's broker have asked the store for, and has not come yet.

A primary that is one no more has no use for what comes: the queues that asked are gone, and so is what they knew of
their contents (``a_page_comes_behind_the_role``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

from ha.effects import ReadQueue
from txobserver.ports.ledger import Found
from txobserver.ports.store import Above, Asked, Page
from txobserver.state.contents import Contents
from txobserver.state.page_reading import PageReading

Then = Callable[[Found], None]


class Readings:
    """``contents`` shows the queues as they are when a page has come."""

    def __init__(self, generation: int, contents: Contents) -> None:
        self._generation = generation
        self._contents = contents
        self._numbers = count(1)
        self._waiting: dict[int, Callable[[Page], None]] = {}
        self._open: dict[int, PageReading] = {}

    def begin(self, asked: Asked, then: Then) -> ReadQueue:
        """What the store is to be asked for."""
        number = next(self._numbers)
        if isinstance(asked, Above):
            reading = self._open[number] = self._contents.messages.begin_reading(asked.queue, asked.after)
            self._waiting[number] = partial(self._show, number, then)
            asked = reading.asked_of_base(asked)
        else:
            self._waiting[number] = lambda page: then(Found(page.entries, 0))
        return ReadQueue(self._generation, number, asked)

    def came(self, asked: ReadQueue, page: Page) -> None:
        """It has been read. Of another generation nothing is taken."""
        if asked.generation == self._generation and asked.number in self._waiting:
            self._waiting.pop(asked.number)(page)

    def abandon(self) -> None:
        """The caller waits no more."""
        for reading in self._open.values():
            self._contents.messages.end_reading(reading)
        self._open.clear()
        self._waiting.clear()

    def _show(self, number: int, then: Then, page: Page) -> None:
        reading = self._open.pop(number)
        self._contents.messages.end_reading(reading)
        then(Found(reading.shown(page), reading.through(page)))
