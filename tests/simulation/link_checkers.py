"""P12 of links: one on which nothing more comes is given up; where something comes it is not, nor is an old peer's; and
into one through which nothing comes no node writes for long."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ha.messages.beats import BEATS_FEATURE
from ha.messages.greeting import Hello
from tests.simulation.checker import Checker

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth

UNREAD = 0.02
"""Seconds in which what has arrived may not have been read yet by a process that runs"""
DRIFT = 0.03
"""By which clocks differ, as a fraction, and some more"""
LATEST = 0.15
"""Seconds behind the deadline in which a node that runs must have given a silent link up"""
UNHEARD = 5.0
"""Seconds in which a node that runs has closed its end of a link through which nothing comes to its peer, which runs
too: much less than its kernel would take"""


def beats(process: Process) -> bool:
    """Whether its release does."""
    return BEATS_FEATURE in process.release.features


class LinkLife(Checker):
    """``turned`` is when each process has ended a turn last, by true time and by its clock; ``jumped_at``: when its
    clock has gone ahead; ``linked``: since when it can reach each peer, and which process of that."""

    promise = "P12"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._turned: dict[Process, tuple[float, float]] = {}
        self._listens_since: dict[Process, float] = {}
        self._jumped_at: dict[Process, float] = {}
        self._linked: dict[tuple[Process, str], tuple[float, Process | None]] = {}
        self._down_at: dict[frozenset[str], float] = {}

    def linked(self, process: Process, greeting: Hello) -> None:
        cluster = self.truth.cluster
        self._linked[process, greeting.node] = cluster.world.now, cluster.processes.get(greeting.node)

    def given_up(self, process: Process, peer: str) -> None:
        cluster = self.truth.cluster
        other = cluster.processes.get(peer)
        if not (beats(process) and (other is None or beats(other))):
            self.fail(f"{process.name} gives its link with {peer} up, and one of them knows no {BEATS_FEATURE}")
        if other is not self._linked[process, peer][1]:
            return  # what comes is another process's, which has not greeted yet
        silent = cluster.world.now - cluster.network.arrived.get((peer, process.name), -1e9)
        deadline = cluster.settings.link_deadline
        if cluster.world.now - self._jumped_at.get(process, -1e9) <= deadline:
            deadline -= cluster.settings.longest_unheard  # so much of a jump of its clock counts, as of a long step
        if UNREAD < silent < deadline * (1 - DRIFT) - UNREAD:
            self.fail(f"{process.name} gives its link with {peer} up, of which something came {silent:.3f} s ago")

    def turned(self, process: Process) -> None:
        cluster = self.truth.cluster
        now, clock = cluster.world.now, process.clock.now()
        before, clock_before = self._turned.get(process, (now, clock))
        self._turned[process] = now, clock
        longest = cluster.settings.longest_unheard
        if clock - clock_before > (now - before) * (1 + DRIFT) + UNREAD:
            self._jumped_at[process] = now
        if process not in self._listens_since or max(now - before, clock - clock_before) > longest * (1 - DRIFT):
            self._listens_since[process] = now
        limit = cluster.settings.link_deadline * (1 + DRIFT) + LATEST
        for peer in process.core.linked if not process.core.failed else ():
            arrived = cluster.network.arrived.get((peer, process.name), -1e9)
            if BEATS_FEATURE not in process.core.features[peer] or arrived <= self._both_linked_at(process, peer):
                continue  # what has come may be but a greeting
            silent = now - max(arrived, self._listens_since[process])
            if silent > limit:
                self.fail(f"{process.name} keeps its link with {peer}, of which nothing has come for {silent:.3f} s")
        self._look_for_the_unheard(process)

    def _both_linked_at(self, process: Process, peer: str) -> float:
        """Since when the peer has had a link with this process, too: as soon as it has it, it says its first beat."""
        since, other = self._linked[process, peer]
        theirs, of_whom = self._linked.get((other, process.name), (math.inf, None)) if other else (math.inf, None)
        return max(since, theirs) if of_whom is process else math.inf

    def _look_for_the_unheard(self, process: Process) -> None:
        """Of a network that carries packets both ways again."""
        cluster = self.truth.cluster
        network, now = cluster.network, cluster.world.now
        self._down_at.update((frozenset(pair), now) for pair in network.down)
        for peer in process.core.linked if not process.core.failed else ():
            since, other = self._linked[process, peer]
            if other is None or other is not cluster.processes.get(peer) or other not in self._turned:
                continue
            if BEATS_FEATURE not in process.core.features[peer] or other.core.failed or other.paused:
                continue
            heard = network.arrived.get((process.name, peer), since)
            clear = self._down_at.get(frozenset((process.name, peer)), since)
            unheard = now - max(since, heard, clear, self._listens_since[process], self._listens_since[other])
            if unheard > UNHEARD:
                self.fail(f"{process.name} keeps its link with {peer}, to which nothing has come for {unheard:.3f} s")
