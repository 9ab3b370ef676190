"""Lengths of queues against the record: a count may lie between what must be there and what can be there (P1, P2, P4).

The broker counts what waits, without what a consumer has in its hands. So, for a count asked for at *a* and answered
at *z*:

- a message **can** be counted if its commit was sent before *z* and it was seen for the last time after *a*. After
  its last sighting it was in a consumer's hands, and then gone: else it would have been seen again, since all queues
  were emptied in the end. For the same reason what was never seen cannot be counted either;
- a message **must** be counted if it was visible for certain before *a* and not seen by anybody before *z*. But as many
  as sessions may hold hidden in their hands can be missing, of each session that was not over before *a*.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from python_tests.evidence import Evidence
from python_tests.history import Count

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
class _Record:
    """What is known of one queue, sorted so that a count is judged without a look at every message."""

    sent: list[float]
    """When the commit of each message that was ever seen was sent"""
    last_seen: list[float]
    """When each of them was seen for the last time"""
    visible: list[tuple[float, float]]
    """For each message: since when it was visible for certain, and when it was first seen (not before)"""
    first_seen: list[float]
    hidden: list[tuple[float, float, int]]
    """For each session: when it began, when it was over, and how many messages it may have held unrecorded"""

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
        hidden = [(s.began, history.over_by(s), s.hidden) for s in history.sessions if s.queue == queue]
        return cls(sorted(sent), sorted(last_seen), sorted(visible), sorted(seen for _, seen in visible), hidden)

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
        return max(
            0, waiting - sum(n for began, over, n in self.hidden if began <= count.answered and over >= count.asked)
        )
