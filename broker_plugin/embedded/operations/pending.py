"""Steps that are on their way, and answers that wait for those that began before them."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable

Answer = Callable[[], None]


class Pending:
    """An answer never waits for a step that began behind it, so none waits for ever where steps keep coming.

    But it waits for what a step that it waits for has led to (``a_second_generation_of_exchanges_goes``).
    """

    def __init__(self) -> None:
        self._last = 0
        self._begun: OrderedDict[int, int] = OrderedDict()  # its first is found at once, however many have ended
        self._waiting: deque[tuple[int, Answer]] = deque()

    def begin(self, cause: int | None = None) -> int:
        """A step begins; returns the number by which it ends. One that ``cause``, which has not ended, has led to has
        its number, and ``end`` is called once for each of them.
        """
        if cause is not None:
            self._begun[cause] += 1
            return cause
        self._last += 1
        self._begun[self._last] = 1
        return self._last

    def end(self, step: int) -> None:
        """It has passed, or is not needed: give the answers that waited for it."""
        self._begun[step] -= 1
        if self._begun[step]:
            return
        del self._begun[step]
        while self._waiting and self._waiting[0][0] < next(iter(self._begun), self._last + 1):
            self._waiting.popleft()[1]()

    def then(self, answer: Answer) -> None:
        """Give this answer when every step that has begun has ended, with all that it led to. It must not raise."""
        if self._begun:
            self._waiting.append((self._last, answer))
        else:
            answer()
