"""The result in rows of words, for the terminal and for the page alike."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from python_tests.harness.judge import PROMISES
from python_tests.harness.stress.results import Injection, Result
from python_tests.harness.stress.site import PRIMARY

FAULT_HEADINGS = (
    *("fault", "times", "of a primary", "hit", "in flight", "next ok, median", "longest", "pause, longest"),
    "taken over",
)

PROMISED = dict(zip(PROMISES, ("P1", "P2", "P3", "P4", "P5", "P8", "P1, P2, P4", "P3"), strict=True))
"""The promise that each finding of the judge is about"""


def verdict_rows(result: Result) -> Iterator[tuple[str, str, bool]]:
    """What was counted, the number, and whether it is a broken promise."""
    verdict = result.verdict
    unknown = verdict.unknown_whole + verdict.unknown_absent
    plain = verdict.unconfirmed_seen + verdict.unconfirmed_absent
    yield "load", f"{result.rounds} rounds, {result.seconds:.0f} s", False
    yield "committed", f"{verdict.committed}, {result.rate:.0f}/s", False
    yield "rolled back, as meant or by a lost connection", str(verdict.rolled_back), False
    yield "failed, and said so", str(verdict.failed), False
    yield "unknown", f"{unknown}: {verdict.unknown_whole} whole, {verdict.unknown_absent} absent", False
    yield "plain publishes confirmed", str(verdict.confirmed), False
    seen, absent = verdict.unconfirmed_seen, verdict.unconfirmed_absent
    yield "plain publishes unknown", f"{plain}: {seen} seen, {absent} absent", False
    yield "redelivered, and said so", str(verdict.redelivered), False
    yield "judged", f"{verdict.sightings} messages seen, {verdict.counts} counts", False
    for what, number in result.stores.items():
        yield f"compared: {what}", str(number), False
    for name in PROMISES:
        count = len(getattr(verdict, name))
        yield f"{name.replace('_', ' ')} ({PROMISED[name]})", str(count), count > 0
    if result.stores:
        yield "nodes disagree (P6, P7)", str(len(result.disagreements)), bool(result.disagreements)
    judged = sum(each.leases_judged for each in result.injections)
    if judged or result.leases:
        yield "nodes longer than a lease without etcd", str(judged), False
    if any(each.take_overs is not None for each in result.injections):
        yield "primary without a lease (P10)", str(len(result.leases)), bool(result.leases)
    yield "did not go on (P12)", str(len(result.stalled)), bool(result.stalled)


def some_of_each(lines: Sequence[str], most: int) -> Iterator[str]:
    """Of the lines that begin alike up to the colon, the first ones, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for line in lines:
        kinds.setdefault(line.partition(":")[0], []).append(line)
    for kind, mine in kinds.items():
        yield from mine[:most]
        if len(mine) > most:
            yield f"{kind}: and {len(mine) - most} more"


def fault_rows(result: Result) -> Iterator[tuple[str, ...]]:
    """A row for each kind of fault, in the order of ``FAULT_HEADINGS``."""
    for kind in dict.fromkeys(each.kind for each in result.injections):
        mine = [each for each in result.injections if each.kind == kind]
        waits = [each.next_ok for each in mine if each.next_ok is not None]
        pauses = [each.pause for each in mine if each.pause is not None]
        yield (
            kind,
            str(len(mine)),
            str(sum(each.role == PRIMARY for each in mine)),
            str(sum(each.hit for each in mine)),
            _range(mine),
            _seconds(statistics.median(waits) if waits else None),
            _seconds(max(waits, default=None)),
            _seconds(max(pauses, default=None)),
            _take_overs(mine),
        )


def _take_overs(injections: list[Injection]) -> str:
    counted = [each.take_overs for each in injections if each.take_overs is not None]
    return str(sum(counted)) if counted else "not counted"


def _range(injections: list[Injection]) -> str:
    numbers = [each.in_flight for each in injections]
    return f"{min(numbers)} to {max(numbers)}"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.2f} s"
