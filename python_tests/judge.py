"""The judge: from the clients' record to a verdict on the promises that clients can see.

P1 no transaction is partly visible; P2 nothing answered ok is lost; P3 nothing is seen twice but with the redelivered
flag, and no input takes effect twice; P4 nothing rolled back or failed is seen, nothing is seen before its commit was
sent; P5 nothing is seen that was not published; P8 one worker's messages come in order within a queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from python_tests.history import FAILED, OK, ROLLED_BACK, UNKNOWN, Attempt, History, Sighting


@dataclass
class Verdict:
    """Counts of everything; the lists name what broke a promise."""

    committed: int = 0
    rolled_back: int = 0
    failed: int = 0
    unknown_whole: int = 0
    unknown_absent: int = 0
    redelivered: int = 0
    partial: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    phantom: list[str] = field(default_factory=list)
    from_nowhere: list[str] = field(default_factory=list)
    out_of_order: list[str] = field(default_factory=list)
    miscounted: list[str] = field(default_factory=list)
    takeovers: list[float | None] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """Every broken promise, in words."""
        names = ("partial", "lost", "duplicated", "phantom", "from_nowhere", "out_of_order", "miscounted")
        return [f"{name.replace('_', ' ')}: {what}" for name in names for what in getattr(self, name)]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**asdict(self), "broken": self.broken}


def judge(history: History, outputs: Sequence[str]) -> Verdict:
    """The verdict after everything has been drained. ``outputs`` are the queues that each transaction publishes to."""
    verdict = Verdict()
    attempts = {attempt.id: attempt for attempt in history.attempts}
    seen: dict[str, dict[str, list[Sighting]]] = defaultdict(lambda: defaultdict(list))
    for sighting in history.sightings:
        seen[sighting.id][sighting.queue].append(sighting)
    for attempt in history.attempts:
        _judge_attempt(verdict, attempt, seen.get(attempt.id, {}), outputs)
    _judge_sightings(verdict, attempts, seen)
    _judge_inputs(verdict, history, seen, outputs)
    _judge_order(verdict, history, attempts)
    _judge_counts(verdict, history)
    verdict.takeovers = [takeover(history, at) for at in history.kills]
    return verdict


def _judge_attempt(verdict: Verdict, attempt: Attempt, seen: dict[str, list[Sighting]], outputs: Sequence[str]) -> None:
    where = [queue for queue in outputs if queue in seen]
    if where and len(where) < len(outputs):
        verdict.partial.append(f"{attempt.id} ({attempt.outcome}) is in {', '.join(where)} only")
    if attempt.outcome == OK:
        verdict.committed += 1
        if not where:
            verdict.lost.append(f"{attempt.id} was committed and is nowhere")
    elif attempt.outcome == UNKNOWN:
        verdict.unknown_whole += bool(where)
        verdict.unknown_absent += not where
    else:
        verdict.failed += attempt.outcome == FAILED
        verdict.rolled_back += attempt.outcome == ROLLED_BACK
        if where:
            verdict.phantom.append(f"{attempt.id} ({attempt.outcome}) is in {', '.join(where)}")


def _judge_sightings(
    verdict: Verdict, attempts: dict[str, Attempt], seen: dict[str, dict[str, list[Sighting]]]
) -> None:
    for identifier, queues in seen.items():
        attempt = attempts.get(identifier)
        if attempt is None:
            verdict.from_nowhere.append(f"{identifier} in {', '.join(queues)}")
            continue
        for queue, sightings in queues.items():
            verdict.redelivered += sum(s.redelivered for s in sightings)
            if any(not s.redelivered for s in sightings[1:]):
                verdict.duplicated.append(f"{identifier} came {len(sightings)} times from {queue}")
            if attempt.commit_sent is None or sightings[0].at < attempt.commit_sent:
                verdict.phantom.append(f"{identifier} was seen in {queue} before its commit was sent")


def _judge_inputs(
    verdict: Verdict, history: History, seen: dict[str, dict[str, list[Sighting]]], outputs: Sequence[str]
) -> None:
    """Each input takes effect exactly once: its acknowledgement is a part of the transaction."""
    effects: dict[str, list[str]] = defaultdict(list)
    for attempt in history.attempts:
        if attempt.outcome == OK or (attempt.outcome == UNKNOWN and attempt.id in seen):
            effects[attempt.source].append(attempt.id)
    for source, confirmed in history.fed.items():
        if len(effects[source]) > 1:
            verdict.duplicated.append(f"input {source} took effect in {', '.join(effects[source])}")
        elif not effects[source] and confirmed:
            verdict.lost.append(f"input {source} was confirmed and took no effect")


def _judge_order(verdict: Verdict, history: History, attempts: dict[str, Attempt]) -> None:
    last: dict[tuple[str, str], Attempt] = {}
    for sighting in history.sightings:
        attempt = attempts.get(sighting.id)
        if attempt is None or sighting.redelivered:
            continue
        before = last.get((attempt.worker, sighting.queue))
        if before is not None and before.number > attempt.number:
            verdict.out_of_order.append(f"{attempt.id} came behind {before.id} from {sighting.queue}")
        last[attempt.worker, sighting.queue] = attempt


def _judge_counts(verdict: Verdict, history: History) -> None:
    """A queue never counts more than was, or may have been, committed when the count was answered."""
    sent = sorted(attempt.commit_sent for attempt in history.attempts if attempt.commit_sent is not None)
    at = 0
    for count in sorted(history.counts, key=lambda each: each.at):
        while at < len(sent) and sent[at] <= count.at:
            at += 1
        if count.messages > at:
            verdict.miscounted.append(f"{count.queue} counted {count.messages} when {at} commits had been sent")


def takeover(history: History, killed: float) -> float | None:
    """Seconds from a kill to the first commit that was sent after it and answered ok."""
    times = [
        attempt.answered - killed
        for attempt in history.attempts
        if attempt.outcome == OK
        and attempt.answered is not None
        and attempt.commit_sent is not None
        and attempt.commit_sent > killed
    ]
    return min(times, default=None)
