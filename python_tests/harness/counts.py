"""Lengths of queues against the record: a count may lie between what must be there and what can be there (P1, P2, P4).

The broker counts what waits, without what a consumer has in its hands. So, for a count asked for at *a* and answered
at *z*:

- a message **can** be counted if its commit was sent before *z* and it was seen for the last time after *a*. After
  its last sighting it was in a consumer's hands, and then gone: else it would have been seen again, since all queues
  were emptied in the end. For the same reason what was never seen cannot be counted either;
- a message **must** be counted if it was visible for certain before *a* and not seen by any client before *z*. But as
  many as sessions may hold hidden in their hands can be missing, of each session that was not over before *a*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate

from python_tests.harness.evidence import Evidence
from python_tests.harness.history import Count

NEVER = float("inf")


def wrong_counts(evidence: Evidence, queue: str) -> list[str]:
    """Every count of this queue that cannot be true."""
    record = _Record.of(evidence, queue)
    found = []
    for count in evidence.history.counts:
        if count.queue == queue:
            least, most = record.least(count), record.most(count)
            if not least <= count.messages <= most:
                found.append(f"{queue} counted {count.messages}, and can have held {least} to {most}")
    return found


@dataclass
class Rising:
    """Numbers, each at a moment: how much they come to, up to any moment."""

    moments: list[float]
    sums: list[int]
    """Of the numbers before each moment, and of all"""

    @classmethod
    def of(cls, entries: Iterable[tuple[float, int]]) -> Rising:
        """From (moment, number), in any order."""
        ordered = sorted(entries)
        return cls([moment for moment, _ in ordered], [0, *accumulate(number for _, number in ordered)])

    def upto(self, moment: float) -> int:
        """Of the numbers at this moment or earlier."""
        return self.sums[bisect_right(self.moments, moment)]

    def before(self, moment: float) -> int:
        """Of the numbers earlier than this moment."""
        return self.sums[bisect_left(self.moments, moment)]


@dataclass
class _Record:
    """What is known of one queue, sorted so that a count is judged without a look at every message."""

    sent: list[float]
    """When the commit of each message that was ever seen was sent"""
    last_seen: list[float]
    """When each of them was seen for the last time"""
    visible: list[tuple[float, float]]
    """For each message: since when it was visible for certain, and when it was first seen (not before)"""
    first_seen: list[float]
    begun: Rising
    """When each session began, with how many messages it may have held unrecorded"""
    over: Rising
    """When each session was over, with the same number"""

    @classmethod
    def of(cls, evidence: Evidence, queue: str) -> _Record:
        sent, last_seen, visible = [], [], []
        for attempt in evidence.history.attempts:
            since = evidence.visible_since(attempt)
            for message, where in attempt.messages.items():
                if where != queue:
                    continue
                sightings = evidence.seen.get(message, [])
                if since is not None:
                    visible.append((since, max(since, sightings[0].at) if sightings else NEVER))
                if sightings and attempt.commit_sent is not None:
                    sent.append(attempt.commit_sent)
                    last_seen.append(sightings[-1].at)
        history = evidence.history
        sessions = [session for session in history.sessions if session.queue == queue]
        begun = Rising.of((session.began, session.hidden) for session in sessions)
        over = Rising.of((history.over_by(session), session.hidden) for session in sessions)
        return cls(sorted(sent), sorted(last_seen), sorted(visible), sorted(seen for _, seen in visible), begun, over)

    def most(self, count: Count) -> int:
        """How many messages can have been counted."""
        return bisect_right(self.sent, count.answered) - bisect_right(self.last_seen, count.asked)

    def least(self, count: Count) -> int:
        """How many messages must have been counted."""
        begin, end = (
            bisect_left(self.visible, (count.asked, -NEVER)),
            bisect_right(self.visible, (count.answered, NEVER)),
        )
        meanwhile = sum(seen <= count.answered for _, seen in self.visible[begin:end])
        waiting = begin - (bisect_right(self.first_seen, count.answered) - meanwhile)
        return max(0, waiting - (self.begun.upto(count.answered) - self.over.before(count.asked)))
