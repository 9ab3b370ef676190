"""When the queue state is brought forward, and which acknowledgements wait for that."""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.replica import Replica
from ha.effects import Acknowledge, Effect, WriteCheckpoint
from ha.settings import Settings

LAYERS = 3
"""How many checkpoints' worth of changes may be in memory: one that is written, and two that wait."""


def behind(replica: Replica, settings: Settings) -> bool:
    """Whether the checkpoints are so far behind that this node must take no more for now.

    Then there is enough for a checkpoint, if none is under way: so this ends.
    """
    return replica.contents.held_bytes > LAYERS * settings.checkpoint_bytes


class Checkpointing:
    """One checkpoint at a time: after so many bytes of change, after so long, or on demand. Times are seconds."""

    def __init__(self, replica: Replica, settings: Settings, emit: Callable[[Effect], None]) -> None:
        self._replica = replica
        self._settings = settings
        self._emit = emit
        self._running = False
        self._began_at = 0.0
        self._applied = replica.applied.sequence
        self._wanted: Acknowledge | None = None

    def tick(self, now: float) -> None:
        """Begin one if it is due and there is something to write; never in the middle of a decision.

        The next decision waits then, so that load that goes on keeps no checkpoint from beginning.
        """
        replica, settings = self._replica, self._settings
        if self._wanted is not None and not self._running:
            self._begin_wanted()
        large = replica.contents.dirty_bytes >= settings.checkpoint_bytes
        changed = replica.applied.sequence != self._applied or replica.resyncing
        due = changed and not self._running and (large or now - self._began_at >= settings.checkpoint_every)
        if due and not self._waits():
            self._began_at = now
            self._begin(None)

    def demand(self, then: Acknowledge) -> None:
        """Write one, now or after the one on its way, and acknowledge when it is durable."""
        self._wanted = then
        if not self._running:
            self._begin_wanted()

    def written(self) -> None:
        """The one on its way is on disk."""
        self._running = False
        self._replica.checkpoint_written()
        if self._wanted is not None:
            self._begin_wanted()

    def _begin_wanted(self) -> None:
        """Unless a decision is being applied in parts: then behind it (``demanded_in_the_middle_of_a_decision``)."""
        if not self._waits():
            wanted, self._wanted = self._wanted, None
            self._begin(wanted)

    def _waits(self) -> bool:
        """Whether a decision is being applied in parts: a checkpoint waits for its end, and the next one for that."""
        if self._replica.in_parts:
            self._replica.rests = True
        return self._replica.in_parts

    def _begin(self, then: Acknowledge | None) -> None:
        self._running = True
        self._replica.rests = False
        self._applied = self._replica.applied.sequence
        self._emit(WriteCheckpoint(self._replica.checkpoint(), then))
