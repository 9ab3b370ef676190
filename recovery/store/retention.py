"""Retention: from when on segments of the log are old enough to be removed.

A segment's age is told by wall clocks: when it was written, and now. A clock that jumps ahead by days makes all of them
old in one moment, and what readers of the log have not fetched yet would be gone. So the wall clock is held to one that
only counts seconds: where it has run ahead of that, nothing is removed for as long as segments are kept, and then all
goes on as before. The log grows by one more retention at most. The same holds when a node starts and its log was
last written longer ago than that: whether it was down or the clock was wrong, readers get their time.

A start writes the end of the log again, which makes that new, and the rest is as old as before. So until when nothing
is removed is noted beside the segments, and the next start goes on with it
(``a_second_start_takes_the_readers_time``). The note is the name of an empty file: there as a whole or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from recovery.store.files import REAL_FILES, Files, explain
from recovery.store.segment import segment_firsts, segment_path
from txobserver.invariants import CHECKS, checking

SLACK = 60.0
"""Seconds by which the wall clock may run ahead between two looks before it counts as a jump."""

NEVER = 0.0

NOTE = ".kept-until-"
"""Before the time, in seconds since 1970, in a file's name; it sorts before every segment."""


class Retention:
    """``seconds``: how long segments are kept. ``wall``: seconds since 1970. ``counted``: seconds, without jumps.

    ``last_written``: when the log was, by the wall clock; None for an empty one. ``noted``: what an earlier process has
    told ``note`` last: until when, by the wall clock, nothing is to be removed.
    """

    def __init__(
        self,
        seconds: float,
        wall: Callable[[], float],
        counted: Callable[[], float],
        last_written: float | None = None,
        noted: float = NEVER,
        note: Callable[[float], None] = lambda until: None,
    ) -> None:
        self._seconds = seconds
        self._wall = wall
        self._counted = counted
        self._note = note
        now, count = wall(), counted()
        self._seen = now, count
        self._held_until: float | None = None
        self._may_hold_again = True
        if noted > now:
            self._held_until = count + min(noted - now, seconds)
            if noted - now > seconds:  # the wall clock has been set back since
                note(now + seconds)
        elif last_written is not None and now - last_written > max(seconds, SLACK):
            self._hold(now, count)

    def removable_before(self) -> float:
        """Segments last written before this time, in seconds since 1970, may be removed now."""
        (wall_before, before), (wall, now) = self._seen, (self._wall(), self._counted())
        self._seen = wall, now
        jumped = wall - wall_before > now - before + SLACK
        if self._held_until is not None and now >= self._held_until:
            self._held_until = None
            if jumped and self._may_hold_again:
                self._hold(wall, now)
                self._may_hold_again = False
        elif jumped and self._held_until is not None:
            self._may_hold_again = False
            self._note(wall + self._held_until - now)
        elif jumped:
            self._hold(wall, now)
        if CHECKS.on:
            self.check_invariants()
        return wall - self._seconds if self._held_until is None else NEVER

    def check_invariants(self) -> None:
        """What must be so after each look. Raises InvariantBroken."""
        held = self._held_until
        with checking("the retention of the log"):
            assert self._seconds >= 0, f"P12: segments are kept for {self._seconds} s"
            assert self._seen[0] >= NEVER, f"P12: the wall clock shows {self._seen[0]}"
            longest = self._seen[1] + self._seconds
            assert held is None or held <= longest, f"P12: no segment goes before {held}, and it is {self._seen[1]}"
            assert held is None or held > self._seen[1], f"P12: what was held until {held} is held on"

    def _hold(self, wall: float, now: float) -> None:
        """Remove nothing for as long as segments are kept.

        A jump in the look that ends this makes it begin again (``a_jump_as_the_hold_ends``), but only once, and not
        where the clock jumped meanwhile too: one that jumps all the time fills no disk.
        """
        self._may_hold_again = True
        if self._seconds > 0:
            self._held_until = now + self._seconds
            self._note(wall + self._seconds)


def retention_of(
    log: Path, seconds: float, wall: Callable[[], float], counted: Callable[[], float], files: Files = REAL_FILES
) -> Retention:
    """That of the log in this directory, before it is recovered. Raises StoreError, here and at each look."""

    def note(until: float) -> None:
        _note(log, until, files)

    try:
        last = segment_firsts(log, files)[-1:]
        written = files.modified(segment_path(log, last[0])) if last else None
        return Retention(seconds, wall, counted, written, max(_notes(log, files).values(), default=NEVER), note)
    except OSError as error:
        raise explain(error, log) from error


def _notes(log: Path, files: Files) -> dict[str, float]:
    """The times that are noted there, by the names that hold them: one, or two after a crash."""
    found = [name for name in files.names(log) if name.startswith(NOTE) and name.removeprefix(NOTE).isdigit()]
    return {name: float(name.removeprefix(NOTE)) for name in found}


def _note(log: Path, until: float, files: Files) -> None:
    """Put this time in the place of those that are noted, durably. Raises StoreError."""
    name = f"{NOTE}{math.ceil(until)}"
    try:
        before = _notes(log, files)
        if name not in before:
            files.close(files.create(log / name))
        files.sync_directory(log)
        for other in before.keys() - {name}:
            files.remove(log / other)
    except OSError as error:
        raise explain(error, log) from error
