"""The judge: from the clients' record to a verdict on the promises that clients can see.

P1 a transaction is seen whole or not at all, and no client sees a part of it first (``visibility``, ``counts``); P2
nothing answered ok is lost; P3 nothing is seen twice but with the redelivered flag, the flag is on nothing that no
consumer could have been sent (``deliveries``), and what a transaction consumes takes effect once; P4 nothing rolled
back or failed is seen, nothing is seen before its commit was sent; P5 nothing is seen that was not published; P8 what
one channel sent comes in order within a queue (``visibility``).

An unknown outcome may be either, but is one of the two: whole or absent, and what it consumed takes effect through it
or through exactly one other.

The record must reach to the end: every queue was emptied by recorded consumers before it is judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from python_tests.harness.counts import wrong_counts
from python_tests.harness.deliveries import duplicates, misplaced, seen_too_early, wrongly_marked
from python_tests.harness.evidence import Evidence
from python_tests.harness.history import FAILED, OK, ROLLED_BACK, UNKNOWN, Attempt, History
from python_tests.harness.visibility import out_of_order, seen_in_parts

PROMISES = ("partial", "lost", "duplicated", "phantom", "from_nowhere", "out_of_order", "miscounted", "mismarked")


@dataclass
class Verdict:
    """Counts of transactions by outcome; the lists name what broke a promise."""

    committed: int = 0
    rolled_back: int = 0
    failed: int = 0
    unknown_whole: int = 0
    unknown_absent: int = 0
    confirmed: int = 0
    """Plain publishes that were confirmed"""
    refused: int = 0
    """Plain publishes that were not: an error said so"""
    unconfirmed_seen: int = 0
    """Plain publishes without an answer, and seen"""
    unconfirmed_absent: int = 0
    """Plain publishes without an answer, and never seen"""
    redelivered: int = 0
    sightings: int = 0
    counts: int = 0
    partial: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    from_nowhere: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    mismarked: list[str] = field(default_factory=list)
    takeovers: list[float | None] = field(default_factory=list)
    """Seconds, for each kill"""
    in_flight: list[tuple[int, int]] = field(default_factory=list)
    """For each kill: transactions that had published and were not answered, and those of them that were committing"""

    def add(self, other: Verdict) -> None:
        """The verdict on another part of the same run."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))

    @property
    def broken(self) -> list[str]:
        """Every broken promise, in words."""
        return [f"{name.replace('_', ' ')}: {what}" for name in PROMISES for what in getattr(self, name)]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**asdict(self), "broken": self.broken}


def judge(history: History, watched: Sequence[str]) -> Verdict:
    """The verdict. ``watched``: the queues drained by one consumer at a time that never gave anything back."""
    evidence = Evidence.of(history)
    verdict = Verdict(sightings=len(history.sightings), counts=len(history.counts))
    verdict.redelivered = sum(sighting.redelivered for sighting in history.sightings)
    for attempt in history.attempts:
        _judge_attempt(verdict, attempt, evidence)
    _judge_effects(verdict, history, evidence)
    verdict.from_nowhere += misplaced(evidence)
    verdict.phantom += seen_too_early(evidence)
    verdict.duplicated += duplicates(evidence, watched)
    for queue in watched:
        verdict.partial += seen_in_parts(evidence, queue)
        verdict.out_of_order += out_of_order(evidence, queue)
        verdict.mismarked += wrongly_marked(evidence, queue)
        verdict.miscounted += wrong_counts(evidence, queue)
    verdict.takeovers = [takeover(history, at) for at in history.kills]
    verdict.in_flight = [history.undecided_at(at) for at in history.kills]
    return verdict


def _judge_attempt(verdict: Verdict, attempt: Attempt, evidence: Evidence) -> None:
    """Whole, absent, partial; what each outcome allows."""
    seen = evidence.seen_of(attempt)
    if 0 < len(seen) < len(attempt.messages):
        missing = next(each for each in attempt.messages if each not in seen)
        verdict.partial.append(
            f"{attempt.id} ({attempt.outcome}): {len(seen)} of {len(attempt.messages)} messages were seen, "
            f"{missing} in {attempt.messages[missing]} was not"
        )
    if attempt.outcome == OK and attempt.messages and not seen:
        verdict.lost.append(f"{attempt.id} was committed and is nowhere")
    if attempt.outcome in (FAILED, ROLLED_BACK) and seen:
        verdict.phantom.append(f"{attempt.id} ({attempt.outcome}) was seen in {attempt.messages[seen[0]]}")
    if attempt.plain:
        verdict.confirmed += attempt.outcome == OK
        verdict.refused += attempt.outcome in (FAILED, ROLLED_BACK)
        verdict.unconfirmed_seen += attempt.outcome == UNKNOWN and bool(seen)
        verdict.unconfirmed_absent += attempt.outcome == UNKNOWN and not seen
    else:
        verdict.committed += attempt.outcome == OK
        verdict.failed += attempt.outcome == FAILED
        verdict.rolled_back += attempt.outcome == ROLLED_BACK
        verdict.unknown_whole += attempt.outcome == UNKNOWN and bool(seen)
        verdict.unknown_absent += attempt.outcome == UNKNOWN and not seen


def _judge_effects(verdict: Verdict, history: History, evidence: Evidence) -> None:
    """Whatever is consumed inside transactions takes effect exactly once: its acknowledgement is a part of one."""
    effects: dict[str, list[Attempt]] = defaultdict(list)
    possible: set[str] = set()
    for attempt in history.attempts:
        happened = attempt.outcome == OK or (attempt.outcome == UNKNOWN and evidence.seen_of(attempt))
        for source in attempt.consumed:
            if happened:
                effects[source].append(attempt)
            elif attempt.outcome == UNKNOWN and not attempt.messages:
                possible.add(source)  # it only acknowledged, so nothing shows whether it did
    consumed = {source for attempt in history.attempts for source in attempt.consumed}
    queues = {evidence.queue_of(source) for source in consumed} - {None}
    for attempt in history.attempts:
        for source, queue in attempt.messages.items():
            if queue not in queues:
                continue
            took = effects.get(source, [])
            if len(took) > 1:
                verdict.duplicated.append(f"{source} took effect in {' and in '.join(each.id for each in took)}")
            elif not took and source not in possible and (attempt.outcome == OK or source in evidence.seen):
                verdict.lost.append(f"{source} ({attempt.outcome}) took no effect")


def takeover(history: History, killed: float) -> float | None:
    """Seconds from a kill to the first answer ok to anything whose commit was sent after it."""
    times = [
        attempt.answered - killed
        for attempt in history.attempts
        if attempt.outcome == OK
        and attempt.answered is not None
        and attempt.commit_sent is not None
        and attempt.commit_sent > killed
    ]
    return min(times, default=None)
