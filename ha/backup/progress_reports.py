"""ProgressReports: a backup tells its primary how far it has got with what it was sent, and that it is alive.

The primary takes a backup that says nothing for silent, and one that is full is sent nothing (PROTOCOL, P12).
"""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.checkpointing import behind
from ha.apply.replica import Replica
from ha.effects import Effect, Send
from ha.messages.attaching import Progress
from ha.settings import Settings


class ProgressReports:
    """Of one backup to one primary. ``taken``: how many parts of the snapshot have been taken and told of."""

    def __init__(
        self, primary: str, generation: int, replica: Replica, settings: Settings, emit: Callable[[Effect], None]
    ) -> None:
        self.taken = 0
        self._primary = primary
        self._generation = generation
        self._replica = replica
        self._settings = settings
        self._emit = emit
        self._told_full = False
        self._told_at = 0.0

    def ended(self) -> None:
        """The attachment has ended: the next one begins with nothing told."""
        self.taken = 0
        self._told_full = False

    def speak(self, session: int, now: float) -> None:
        """Once in a while, so that the primary takes no node for silent whose checkpoint takes long."""
        if now - self._told_at >= self._settings.speak_every:
            self._told_at = now
            self._report(session)
        else:
            self.tell_fullness(session)

    def tell_fullness(self, session: int) -> None:
        """Tell the primary when the checkpoints here fall behind, and when they have caught up."""
        if behind(self._replica, self._settings) != self._told_full:
            self._report(session)

    def took(self, session: int, taken: int) -> None:
        """So many parts of the snapshot have been taken by now; the primary is told if they are more than before."""
        if taken != self.taken:
            self.taken = taken
            self._report(session)

    def _report(self, session: int) -> None:
        self._told_full = behind(self._replica, self._settings)
        self._emit(Send(self._primary, Progress(self._generation, session, self.taken, self._told_full)))
