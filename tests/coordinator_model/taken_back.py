"""Answers of COMMIT PREPARED that a standby has taken back, and what became of the branch then.

Who got such an answer ends the commit, whatever an administrator does meanwhile to the branch that came back, and
it is not looked for again (docs/coordinators.md, "Standbys"). A process that has not got it has to notice.
"""

from __future__ import annotations

import re

from recovery.coordinator.log_lines import Line, end_line
from tests.coordinator_model.schedule import Process, Schedule

_COMMIT = re.compile(r"COMMIT PREPARED '(.+)'")


class TakenBack:
    """``ended``: commits that were ended by who had the answer, behind the administrator's rollback."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._told: dict[str, set[Process | None]] = {}
        self._rolled_back: dict[str, set[Process | None]] = {}
        self.ended: set[str] = set()

    def answered(self, what: str) -> None:
        """Whose turn it is has the answer to this message."""
        found = _COMMIT.fullmatch(what)
        if found is not None:
            self._told.setdefault(found[1], set()).add(self._schedule.current)

    def rolled_back(self, gid: str, name: str) -> None:
        """A branch, by an administrator. If its commit was answered, it has come back with a standby."""
        self._rolled_back[name] = set(self._told.get(gid, ()))

    def end_line(self, name: str, now: float) -> Line:
        """In the place of the product's: whose turn it is ends a commit."""
        if self._schedule.current in self._rolled_back.get(name, ()):
            self.ended.add(name)
        return end_line(name, now)
