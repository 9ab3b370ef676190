"""Hands: what a node does to its surroundings, one thing at a time, and what it keeps durably of that.

While an action runs, or the cursor is on its way to the disk, nothing else begins: so no skip and no undoing ever goes
on beside a running action. An action that never returns keeps the hands busy until the process ends.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.effects import Effect, KeepCalls, ReadAction, RunAction
from txobserver.calls import LocalCalls

Ran = Callable[[str | None], None]
"""Called when an action has returned: with what it failed with, None if it has succeeded."""
Read = Callable[[bytes | None, str], None]
"""Called with the arguments that are in force, or None and what the reading failed with."""


class Hands:
    """``local``: what is kept durably. ``running``: the action that runs; ``failed``: the last one's error."""

    def __init__(self, local: LocalCalls, emit: Callable[[Effect], None]) -> None:
        self.local = local
        self.running: RunAction | None = None
        self.failed: str | None = None
        self._emit = emit
        self._number = 0
        self._ran: Ran | None = None
        self._read: Read | None = None
        self._keeping: LocalCalls | None = None
        self._kept: Callable[[], None] = _nothing

    @property
    def busy(self) -> bool:
        """Whether something is under way."""
        return self._ran is not None or self._read is not None or self._keeping is not None

    def run(self, action: RunAction, then: Ran) -> None:
        """Run this action, whose number is given here."""
        assert not self.busy, "P13: an action runs beside another"
        self._number += 1
        self.running, self._ran = action._replace(number=self._number), then
        self._emit(self.running)

    def ran(self, number: int, error: str | None) -> None:
        """The shell's report: the action with this number has returned."""
        then = self._ran
        if then is not None and number == self._number:
            self.running, self._ran, self.failed = None, None, error
            then(error)

    def read(self, operation: str, version: int, name: str, then: Read) -> None:
        """Read what is in force."""
        assert not self.busy, "P13: what is in force is read beside a running action"
        self._number += 1
        self._read = then
        self._emit(ReadAction(self._number, operation, version, name))

    def has_read(self, number: int, arguments: bytes | None, error: str) -> None:
        """The shell's report: this was in force."""
        then = self._read
        if then is not None and number == self._number:
            self._read = None
            then(arguments, error)

    def keep(self, local: LocalCalls, then: Callable[[], None]) -> None:
        """Keep this durably."""
        assert not self.busy, "P13: a cursor moves beside a running action"
        self._keeping, self._kept = local, then
        self._emit(KeepCalls(local))

    def kept(self, local: LocalCalls) -> None:
        """The shell's report: this is durable."""
        if local is self._keeping:
            self.local, self._keeping = local, None
            self._kept()


def _nothing() -> None:
    """Nothing waits."""
