"""The record, sorted for the judge: which client published what, and where and when it was seen."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from python_tests.harness.history import OK, Attempt, History, Sighting


@dataclass
class Evidence:
    """A history and its indexes."""

    history: History
    publisher: dict[str, Attempt]
    """Message -> the attempt that published it"""
    seen: dict[str, list[Sighting]]
    """Message -> its sightings in the queue that it was published to, in the order in which they were recorded"""
    by_queue: dict[str, list[Sighting]]
    """Queue -> sightings of what was published to it"""
    elsewhere: list[Sighting]
    """Sightings of what was never published, or not to that queue"""
    _visible: dict[str, float | None] = field(default_factory=dict)
    """Attempt -> since when it was visible: asked for again for each of its messages"""

    @classmethod
    def of(cls, history: History) -> Evidence:
        """Sort a history."""
        publisher = {message: attempt for attempt in history.attempts for message in attempt.messages}
        built = cls(history, publisher, defaultdict(list), defaultdict(list), [])
        for sighting in history.sightings:
            attempt = publisher.get(sighting.id)
            if attempt is None or attempt.messages[sighting.id] != sighting.queue:
                built.elsewhere.append(sighting)
            else:
                built.seen[sighting.id].append(sighting)
                built.by_queue[sighting.queue].append(sighting)
        return built

    def seen_of(self, attempt: Attempt) -> list[str]:
        """Those of an attempt's messages that were seen."""
        return [message for message in attempt.messages if message in self.seen]

    def queue_of(self, message: str) -> str | None:
        """Where a message was published to; None if no client published it."""
        attempt = self.publisher.get(message)
        return attempt.messages[message] if attempt is not None else None

    def visible_since(self, attempt: Attempt) -> float | None:
        """A moment at which the whole attempt was visible for certain: it was answered ok, or a part of it was seen.

        The earliest such moment that the record shows; None if it shows none.
        """
        if attempt.id not in self._visible:
            self._visible[attempt.id] = self._find_visible_since(attempt)
        return self._visible[attempt.id]

    def _find_visible_since(self, attempt: Attempt) -> float | None:
        moments = [self.seen[message][0].at for message in attempt.messages if message in self.seen]
        if attempt.outcome == OK and attempt.answered is not None:
            moments.append(attempt.answered)
        return min(moments, default=None)
