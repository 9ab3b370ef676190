"""Operators who make cluster calls at any node, ask what became of them, and let nodes skip what fails there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ha.calls.answers import ALL, Answer, Answered
from ha.calls.initiation import NewCall
from ha.messages.calls import ControlAsk
from tests.simulation.surroundings import Setting
from txobserver.calls import CALL, FAST_FORWARD, RESET, SKIP

if TYPE_CHECKING:
    from tests.simulation.seen import Cluster, Process

NAMES = "xyz"
PAUSE = 0.01, 0.15


class CallOperator:
    """``told``: the last answer of each call that this one has made, None before the first."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.told: dict[bytes, Answer | None] = {}
        self.stopping = False
        self._cluster = cluster
        self._number = number
        self._chance = cluster.world.chance(f"calls/{number}")
        self._made = 0
        self._later()

    def _later(self) -> None:
        self._cluster.world.after(self._chance.uniform(*PAUSE), self._act)

    def _act(self) -> None:
        if self.stopping:
            return
        there = [each for each in self._cluster.running() if each.failed is None and CALL in each.release.operations]
        what = self._chance.random()
        if there:
            process = self._chance.choice(there)
            if what < 0.75:
                self._call(process)
            elif what < 0.88 and self.told:
                call_id = self._chance.choice(list(self.told))
                self.ask(process, call_id, self._chance.choice((ALL, 1)), 1.0)
            else:
                self._control(process)
        self._later()

    def _new_id(self) -> bytes:
        self._made += 1
        return b"call %d/%d" % (self._number, self._made) + bytes(16 - len(b"call %d/%d" % (self._number, self._made)))

    def _call(self, process: Process) -> None:
        chance, call_id = self._chance, self._new_id()
        operation = chance.choice(("set", "set", "set", "tell"))
        value = msgspec.msgpack.encode(Setting(call_id.rstrip(b"\0").decode()))
        need, seconds = chance.choice((ALL, ALL, 1, 2)), chance.choice((0.1, 0.5, 5.0))
        self.told[call_id] = None
        new = NewCall(call_id, operation, 1, chance.choice(NAMES), value, 1)
        core = process.core
        done = self._done(process, call_id, need)
        process.operate(lambda: core.calls.call(new, need, core.now + seconds, done))

    def ask(self, process: Process, call_id: bytes, need: int, seconds: float) -> None:
        """What became of this call?"""
        core = process.core
        done = self._done(process, call_id, need)
        process.operate(lambda: core.calls.ask_again(call_id, need, core.now + seconds, done))

    def _done(self, process: Process, call_id: bytes, need: int) -> Answered:
        def done(answer: Answer) -> None:
            self._cluster.world.say(process.name, f"answers {call_id.rstrip(bytes(1)).decode()}: {answer}")
            self._cluster.truth.calls("call_answered", process, call_id, need, answer)
            self.told[call_id] = answer

        return done

    def _control(self, process: Process) -> None:
        chance, core, call_id = self._chance, process.core, self._new_id()
        operation = chance.choice((SKIP, SKIP, SKIP, FAST_FORWARD, RESET) if chance.random() < 0.3 else (SKIP,))
        node = chance.choice(sorted(self._cluster.disks))
        kept = core.replica.contents.calls.kept
        if kept:
            tnx_id = chance.choice(kept[-4:]).tnx_id
            asked = ControlAsk(core.generation, call_id, operation, node, tnx_id)
            process.operate(lambda: core.calls.control(asked, core.now + 1.0, lambda error: None))
