"""The surroundings of a node of the cluster in memory: actions run at the next turn, fail, hang or are lost as told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ha.effects import KeepCalls, ReadAction, RunAction

Outcome = Callable[[RunAction], str | None]


class MemorySurroundings:
    """Implements ``ha.interpreter.Surroundings``.

    ``outcome``: what an action fails with, None for success. ``held``: actions that do not return for now, as a test
    says; ``keeps_held``: nothing becomes durable. ``ran``: what has run, in order, as (id, tnx_id, undo, error).
    """

    def __init__(self, node: Any) -> None:
        self.outcome: Outcome = lambda action: None
        self.hangs: Callable[[RunAction], bool] = lambda action: False
        self.keeps_held = False
        self.asked: list[RunAction | ReadAction | KeepCalls] = []
        self.ran: list[tuple[bytes, int, bool, str | None]] = []
        self._node = node

    def run(self, effect: RunAction) -> None:
        self.asked.append(effect)

    def read(self, effect: ReadAction) -> None:
        self.asked.append(effect)

    def keep(self, effect: KeepCalls) -> None:
        self.asked.append(effect)

    def turn(self) -> None:
        """What was asked for is done, unless it hangs."""
        asked, self.asked = self.asked, []
        for effect in asked:
            if isinstance(effect, RunAction):
                self._run(effect)
            elif isinstance(effect, ReadAction):
                found = self._node.disk.in_force.get((effect.operation, effect.name), b"\x91\xa0")
                self._node.interpreter.action_read(effect, found)
            elif self.keeps_held:
                self.asked.append(effect)
            else:
                self._node.disk.local_calls = effect.local
                self._node.interpreter.calls_kept(effect)

    def _run(self, effect: RunAction) -> None:
        if self.hangs(effect):
            self.asked.append(effect)
            return
        error = self.outcome(effect)
        self._node.disk.in_force[effect.operation, effect.name] = effect.arguments  # one that fails has done it in part
        self.ran.append((effect.call_id, effect.tnx_id, effect.undo, error))
        self._node.interpreter.action_ran(effect, error)
