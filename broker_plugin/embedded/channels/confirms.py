"""Publisher confirms: sequence numbers, and as few answers as can be."""

from __future__ import annotations

from collections.abc import Callable

from broker_plugin.embedded.queues.turn import Turn

Answer = Callable[[int, bool, bool], None]
"""Told (delivery tag, multiple, accepted)."""


class Confirms:
    """One channel in confirm mode. Answers are gathered until the turn ends."""

    def __init__(self, turn: Turn, answer: Answer) -> None:
        self._turn = turn
        self._answer = answer
        self._last = 0
        self._open: dict[int, None] = {}
        self._accepted: list[int] = []
        self._refused: list[int] = []

    def begin(self) -> int:
        """The number of the next publish."""
        self._last += 1
        self._open[self._last] = None
        return self._last

    @property
    def waits(self) -> bool:
        """Whether a publish has not been answered."""
        return bool(self._open or self._accepted or self._refused)

    def settle(self, tag: int, accepted: bool) -> None:
        """The outcome of a publish is known."""
        if not self._accepted and not self._refused:
            self._turn.later(self.flush)
        del self._open[tag]
        (self._accepted if accepted else self._refused).append(tag)

    def flush(self) -> None:
        """Answer what is known. A run of confirms up to the first open number is one answer (multiple)."""
        accepted, self._accepted = sorted(self._accepted), []
        refused, self._refused = self._refused, []
        for tag in refused:
            self._answer(tag, False, False)
        first_open = next(iter(self._open), self._last + 1)
        below = [tag for tag in accepted if tag < first_open]
        if below:
            self._answer(below[-1], len(below) > 1, True)
        for tag in accepted[len(below) :]:
            self._answer(tag, False, True)
