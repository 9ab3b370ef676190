"""How the load went over time: commits and their latencies second by second, and what each fault did to them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from python_tests.harness.history import OK, History


@dataclass(frozen=True)
class Second:
    """One second of load. ``at`` in monotonic seconds, latencies in seconds from commit to commit-ok."""

    at: int
    committed: int
    p50: float
    p99: float
    longest: float


@dataclass
class Timeline:
    """All seconds in which load ran, in order. Drains are left out: nothing is published then."""

    seconds: list[Second] = field(default_factory=list)

    def add(self, history: History, began: float, ended: float) -> None:
        """The transactions of a history, over the time for which its load ran."""
        latencies: dict[int, list[float]] = defaultdict(list)
        for attempt in history.attempts:
            if attempt.outcome == OK and not attempt.plain and attempt.answered and attempt.commit_sent:
                latencies[int(attempt.answered)].append(attempt.answered - attempt.commit_sent)
        for at in range(int(began), int(ended) + 1):
            ordered = sorted(latencies[at])
            count = len(ordered)
            self.seconds.append(
                Second(at, count, ordered[count // 2], ordered[count * 99 // 100], ordered[-1])
                if ordered
                else Second(at, 0, 0.0, 0.0, 0.0)
            )


class Answers:
    """When anything was answered ok, and when its commit had been sent: sorted once, for many questions."""

    def __init__(self, history: History) -> None:
        pairs = sorted(
            (attempt.answered, attempt.commit_sent)
            for attempt in history.attempts
            if attempt.outcome == OK and attempt.answered is not None and attempt.commit_sent is not None
        )
        self._answered = [answered for answered, _ in pairs]
        self._sent = [sent for _, sent in pairs]

    def next_ok(self, moment: float) -> float | None:
        """Seconds from a moment to the first answer ok to what was sent after it; None if none came."""
        for index in range(bisect_right(self._answered, moment), len(self._answered)):
            if self._sent[index] > moment:
                return self._answered[index] - moment
        return None

    def pause(self, began: float, ended: float) -> float | None:
        """The longest time without an answer that began in this period, in seconds; None if no answer came after it."""
        first, last = bisect_left(self._answered, began), bisect_right(self._answered, ended)
        moments = [began, *self._answered[first : last + 1]]
        if last >= len(self._answered):
            return None
        return max(_gaps(moments))


def _gaps(moments: list[float]) -> Iterable[float]:
    return (later - earlier for earlier, later in pairwise(moments))
