"""The surroundings of a simulated node: actions that take time, fail, hang, do half of their work, or die with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ha.effects import KeepCalls, ReadAction, RunAction
from ha.interpreter import Interpreter
from txobserver.actions import FLAG, Action, ActionRegistry

if TYPE_CHECKING:
    from tests.simulation.seen import Process


class Setting(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The arguments of both actions."""

    value: str


INITIAL = msgspec.msgpack.encode(Setting(""))
"""What is in force where nothing was set"""
ACTIONS = ActionRegistry([Action("set", 1, Setting), Action("tell", 1, Setting, undone=False)])
TAKES = 0.001, 0.03
HANGS = 0.3, 1.5
"""Seconds that an action takes, and one that hangs"""


class SimSurroundings:
    """Implements ``ha.interpreter.Surroundings`` for one process. ``answers`` is its interpreter."""

    def __init__(self, process: Process) -> None:
        self.answers: Interpreter
        self._process = process
        self._machine = process.disk.machine
        self._chance = process.cluster.world.chance(f"actions/{process.name}/{process.cluster.starts}")
        self._running: RunAction | None = None
        self._keeping: KeepCalls | None = None

    def run(self, effect: RunAction) -> None:
        """It succeeds, fails having done nothing, half or all of its work, at once or after a long while."""
        process, chance = self._process, self._chance
        process.cluster.truth.calls("action_begins", process, effect)
        process.world.say(process.name, f"runs {describe(effect)}")
        self._running = effect
        troubled = process.cluster.trouble
        error = "it fails" if chance.random() < (0.15 if troubled else 0.0) else None
        takes = HANGS if chance.random() < (0.04 if troubled else 0.0) else TAKES
        self._later(chance.uniform(*takes), lambda: self._ran(effect, error))

    def _ran(self, effect: RunAction, error: str | None) -> None:
        process = self._process
        self._running = None
        if error is None or self._chance.random() < 0.5:
            self._machine.in_force[effect.operation, effect.name] = effect.arguments
        process.cluster.truth.calls("action_ran", process, effect, error)
        self.answers.action_ran(effect, error)

    def read(self, effect: ReadAction) -> None:
        """What is in force."""
        found = self._machine.in_force.get((effect.operation, effect.name), INITIAL)
        fails = self._process.cluster.trouble and self._chance.random() < 0.05
        self._later(
            self._chance.uniform(*TAKES),
            lambda: self.answers.action_read(effect, None if fails else found, "it cannot be read"),
        )

    def keep(self, effect: KeepCalls) -> None:
        """Written, then synced."""
        self._keeping = effect
        self._later(self._chance.uniform(*TAKES), lambda: self._kept(effect))

    def _kept(self, effect: KeepCalls) -> None:
        self._keeping = None
        self._machine.sync(effect.local)
        self._process.cluster.truth.calls("calls_kept", self._process, effect.local)
        self.answers.calls_kept(effect)

    def crash(self) -> None:
        """The process ends: what was under way may be done, and its node never hears of it."""
        if self._running is not None and self._chance.random() < 0.5:
            self._machine.in_force[self._running.operation, self._running.name] = self._running.arguments
        if self._keeping is not None and self._chance.random() < 0.5:
            self._machine.write(self._keeping.local)
        self._running = self._keeping = None

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        guard = self._process.guard
        self._process.loop.thread(seconds, lambda: guard.call_soon_threadsafe(call))


def describe(effect: RunAction) -> str:
    """For the transcript."""
    what = (
        f"call {effect.tnx_id}" if effect.tnx_id else f"{'the undoing' if effect.undo else 'the beginning'} of a call"
    )
    value = "" if effect.operation == FLAG else msgspec.msgpack.decode(effect.arguments, type=Setting).value
    return f"{what}: {effect.operation} {effect.name} to {value!r}"
