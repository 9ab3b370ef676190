"""The storm itself: so many calls from all nodes at once, while nodes and the primary are killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from python_tests.suites.calls_storm.site import CLOSED, FLAG, LISTENERS, NAMES, OPEN, NotThere, Row, StormSite

AT_ONCE = 24
"""Callers of one node; each waits for its answer before it makes the next call."""
CALL_SECONDS = 120.0
AGAIN = 0.2
"""Seconds until a node that does not run is asked again."""
BETWEEN_KILLS = 5, 40
"""Calls that are answered between two kills"""
LOOK = 0.02
"""Seconds between two looks at how many are"""
LEVELS = ("warning", "error")
ONE, ALL = 1, "all"
GIVEN: dict[str, Callable[[str], dict[str, list[str]]]] = {
    "log_level": lambda argument: {"level": [argument]},
    "listener": lambda argument: {"open": [argument]},
    "flag": lambda argument: {},
    "hook": lambda argument: {"arg": [argument]},
}
"""The arguments of a call, as the command line gives them"""
Say = Callable[[str], None]


class Made(NamedTuple):
    """A call as its caller saw it. ``seconds`` until the answer; ``need``: how many nodes were waited for."""

    node: str
    operation: str
    name: str
    argument: str
    need: int | str
    answer: Row
    seconds: float


class Storm:
    """Drawn by ``seed``; ``deeds`` counts what was killed."""

    def __init__(self, site: StormSite, calls: int, seed: int, kills: bool = True) -> None:
        self.made: list[Made] = []
        self.deeds: dict[str, int] = {"primary": 0, "backup": 0}
        self._site = site
        self._random = random.Random(seed)
        self._wanted = [self._drawn(number) for number in range(calls)]
        self._calls = calls
        self._kills = kills
        self._mutex = threading.Lock()
        self._failed: list[BaseException] = []

    def play(self, say: Say) -> float:
        """Make all calls; returns the seconds that took. Raises what a caller has failed with."""
        began = time.monotonic()
        threads = [
            threading.Thread(target=self._caller, args=(node,), daemon=True)
            for node in self._site.nodes
            for _ in range(AT_ONCE)
        ]
        for thread in threads:
            thread.start()
        self._kill_meanwhile(threads, say)
        for thread in threads:
            thread.join()
        if self._failed:
            raise self._failed[0]
        return time.monotonic() - began

    def _drawn(self, number: int) -> tuple[str, str, str, int | str]:
        need: int | str = self._random.choice((ONE, ALL))
        which = self._random.random()
        if which < 0.2:
            return "log_level", "", self._random.choice(LEVELS), need
        if which < 0.35:
            return "listener", self._random.choice(LISTENERS), self._random.choice((OPEN, CLOSED)), need
        if which < 0.37:
            return "flag", FLAG, "", need
        return "hook", self._random.choice(NAMES), f"v{number}", need

    def _caller(self, node: str) -> None:
        try:
            while True:
                with self._mutex:
                    if not self._wanted:
                        return
                    operation, name, argument, need = self._wanted.pop()
                given = {**({"name": [name]} if name else {}), **GIVEN[operation](argument)}
                began, answer = self._answered(node, operation, given, need)
                made = Made(node, operation, name, argument, need, answer, time.monotonic() - began)
                with self._mutex:
                    self.made.append(made)
        except BaseException as error:
            self._failed.append(error)

    def _answered(self, node: str, operation: str, given: dict[str, list[str]], need: int | str) -> tuple[float, Row]:
        """When it was asked, and the answer; a node that does not run is waited for."""
        while True:
            began = time.monotonic()
            try:
                return began, self._site.make(node, operation, given, need, CALL_SECONDS)
            except NotThere:
                time.sleep(AGAIN)

    def _kill_meanwhile(self, threads: list[threading.Thread], say: Say) -> None:
        """One node after the other, the primary every second time, when so many calls more have been answered and all
        are ready again."""
        while any(thread.is_alive() for thread in threads):
            answered = len(self.made) + self._random.randint(*BETWEEN_KILLS)
            while len(self.made) < answered and any(thread.is_alive() for thread in threads):
                time.sleep(LOOK)
            say(f"{len(self.made)} of {self._calls} calls answered, {sum(self.deeds.values())} nodes killed")
            if not self._kills or not any(thread.is_alive() for thread in threads):
                continue
            primary, backups = self._site.cluster.primary(), self._site.cluster.backups()
            if primary is None or len(backups) < 2:
                continue
            kind = "primary" if self.deeds["primary"] <= self.deeds["backup"] else "backup"
            self._site.kill_and_start(primary if kind == "primary" else self._random.choice(backups))
            self.deeds[kind] += 1
