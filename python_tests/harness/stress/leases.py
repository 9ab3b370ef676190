"""Who says that it is primary, looked at all the time; and whether a node went on without a lease (P10).

A node that reaches no majority of etcd can renew no lease. When its lease is over it is primary no more, and tells
clients nothing. The clients' record alone would not show it: with no other primary about, what such a node
acknowledges is neither lost nor doubled. So three things are held against each other: when faults kept a node from
etcd, what it said of itself meanwhile, and what its clients were told.

A node that was stopped may answer one question with what was so before it has seen its clock. So a finding takes two
looks with ``LASTS`` seconds between them.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from python_tests.harness.history import OK, History
from python_tests.harness.stress.results import Injection

LOOK_SECONDS = 0.4
"""Between looks at all nodes"""
SLACK = 1.0
"""Seconds after the longest that a lease can last, before anything is held against a node"""
LASTS = 0.3
"""For so long, in seconds, a node must have said what is held against it"""


@dataclass(frozen=True)
class Word:
    """A node has said that it is the active primary, of this generation. Times are monotonic seconds."""

    asked: float
    answered: float
    node: str
    generation: int


class LeaseWatch:
    """Asks every node who it is, in a thread of its own. ``ask``: what each says of itself. A context manager.

    ``lease_ttl``: seconds. ``nodes``: the name of each by the URL at which its clients connect.
    """

    def __init__(self, ask: Callable[[], Sequence[Mapping[str, Any]]], lease_ttl: float, nodes: Mapping[str, str]):
        self._ask = ask
        self._lease = lease_ttl
        self._nodes = nodes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.words: list[Word] = []

    def __enter__(self) -> LeaseWatch:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            asked = time.monotonic()
            said = self._ask()
            answered = time.monotonic()
            self.words += [
                Word(asked, answered, str(each["name"]), int(each["generation"]))
                for each in said
                if each["state"] == "active"
            ]

    def judge(self, injections: Sequence[Injection], history: History) -> list[str]:
        """What is wrong, in words; each injection learns how many take-overs there were. Forgets what it has looked at.

        Take-overs count from the fault's beginning until a lease that ended with it has found a successor, or until the
        next fault begins.
        """
        words, self.words = self.words, []
        for number, each in enumerate(injections):
            until = each.healed + self._lease + SLACK
            if number + 1 < len(injections):
                until = min(until, max(each.healed, injections[number + 1].began))
            each.take_overs = take_overs(words, each.began, until)
        wrong = list(two_primaries(words))
        for each in injections:
            wrong += self._without_a_lease(each, words, history)
        return wrong

    def _without_a_lease(self, injection: Injection, words: Iterable[Word], history: History) -> Iterator[str]:
        begin, end = injection.in_force + self._lease + SLACK, injection.lifted
        if not injection.leaseless or begin >= end:
            return
        injection.leases_judged = True
        what = f"round {injection.round}, {injection.done}"
        mine = [w for w in words if w.node in injection.leaseless and w.asked >= begin and w.answered <= end]
        for node, said in groupby(sorted(mine, key=lambda word: (word.node, word.asked)), key=lambda word: word.node):
            if (lasting := _lasting(list(said))) is not None:
                yield (
                    f"without a lease: {what}: {node} was active {lasting.asked - injection.in_force:.1f} s after it "
                    f"could renew its lease of {self._lease:g} s last"
                )
        told = [
            attempt
            for attempt in list(history.attempts)
            if attempt.outcome == OK
            and attempt.commit_sent is not None
            and attempt.answered is not None
            and attempt.commit_sent >= begin
            and attempt.answered <= end
            and self._nodes.get(attempt.node) in injection.cut_off
        ]
        if told:
            first = min(attempt.answered or 0.0 for attempt in told) - injection.in_force
            yield (
                f"without a lease: {what}: {len(told)} commits and publishes were acknowledged, the first "
                f"{first:.1f} s after a lease of {self._lease:g} s could be renewed last"
            )


def take_overs(words: Sequence[Word], began: float, until: float) -> int:
    """How many generations of active primaries more than before there were in this time; failed elections count too."""
    asked = [word.asked for word in words]
    before = max((word.generation for word in words[: bisect_left(asked, began)]), default=None)
    seen = [word.generation for word in words if began <= word.asked <= until]
    if before is None:
        before = min(seen, default=0)
    return max(0, max(seen, default=before) - before)


def two_primaries(words: Iterable[Word]) -> Iterator[str]:
    """A node that goes on as primary of a generation, when another has been active in a later one for some time."""
    newest: dict[int, Word] = {}
    stale: dict[tuple[str, int], list[Word]] = {}
    for word in sorted(words, key=lambda word: word.asked):
        newest.setdefault(word.generation, word)
        later = [first for number, first in newest.items() if number > word.generation]
        if any(word.asked > first.answered + SLACK for first in later):
            stale.setdefault((word.node, word.generation), []).append(word)
    for (node, generation), said in stale.items():
        if (lasting := _lasting(said)) is not None:
            last = newest[max(newest)]
            yield (
                f"two primaries: {node} said that it was active in generation {generation}, "
                f"{lasting.asked - last.answered:.1f} s after {last.node} was in {last.generation}"
            )


def _lasting(said: Sequence[Word]) -> Word | None:
    """The last of them, if they last long enough."""
    return said[-1] if said and said[-1].asked - said[0].answered >= LASTS else None
