"""In what order things become visible: transactions in one step (P1), a channel's messages as they were sent (P8).

Both are read off the order in which one consumer at a time was handed the messages of a queue. A queue is first in,
first out; only what is redelivered may come at another place, so only first deliveries without the mark count.
"""

from __future__ import annotations

from collections.abc import Iterator

from python_tests.harness.evidence import Evidence
from python_tests.harness.history import Attempt, Sighting


def _fresh(evidence: Evidence, queue: str) -> Iterator[tuple[Sighting, Attempt]]:
    for sighting in evidence.by_queue[queue]:
        if not sighting.redelivered:
            yield sighting, evidence.publisher[sighting.id]


def seen_in_parts(evidence: Evidence, queue: str) -> list[str]:
    """P1: what was visible (answered ok, or seen in any queue) before X was sent stands before X in every queue.

    If it comes behind X, then at the moment when X was sent it was visible in one queue and not yet in this one.
    """
    found = []
    latest: Attempt | None = None
    for sighting, attempt in _fresh(evidence, queue):
        if latest is not None and latest is not attempt:
            since = evidence.visible_since(attempt)
            assert latest.commit_sent is not None
            if since is not None and since < latest.commit_sent:
                found.append(f"{sighting.id} came from {queue} behind {latest.id}, which was sent when it was visible")
        if attempt.commit_sent is not None and (latest is None or attempt.commit_sent > (latest.commit_sent or 0)):
            latest = attempt
    return found


def out_of_order(evidence: Evidence, queue: str) -> list[str]:
    """P8: what one channel sent to a queue comes in the order in which it was sent, also inside a transaction."""
    found = []
    last: dict[str, tuple[int, int, str]] = {}
    for sighting, attempt in _fresh(evidence, queue):
        order = (attempt.number, int(sighting.id.rpartition("/")[2]), sighting.id)
        before = last.get(attempt.channel)
        if before is not None and before > order:
            found.append(f"{sighting.id} came from {queue} behind {before[2]}")
        last[attempt.channel] = max(order, before or order)
    return found
