"""A cluster in memory whose nodes run cluster calls: two actions, one of which cannot be undone."""

from __future__ import annotations

from typing import Any

import msgspec

from ha.calls.answers import ALL, Answer
from ha.calls.initiation import NewCall
from ha.messages.calls import ControlAsk
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from txobserver.actions import Action, ActionRegistry
from txobserver.calls import CALLS_FEATURE


class Level(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """The arguments of both actions."""

    level: str


ACTIONS = ActionRegistry([Action("level", 1, Level), Action("announce", 1, Level, undone=False)])


def arguments(level: str) -> bytes:
    return msgspec.msgpack.encode(Level(level))


def call_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


class CallsCluster(MemoryCluster):
    """``answers``: by the number of the call; those of a control are None or a sentence."""

    actions = ACTIONS
    features = frozenset({CALLS_FEATURE})

    def __init__(self, size: int = 3, **settings: Any) -> None:
        self.answers: dict[int, Answer | str | None] = {}
        super().__init__(size, **{"call_retry": 0.2, "ticket_timeout": 2.0} | settings)

    def call(
        self, node: MemoryNode, number: int, level: str, need: int = ALL, seconds: float = 5.0, **of_call: Any
    ) -> None:
        """An operator makes a call at this node; ``operation``, ``version``, ``name`` as given."""
        given = {"operation": "level", "version": 1, "name": "x", **of_call}
        new = NewCall(call_id(number), given["operation"], given["version"], given["name"], arguments(level), 7)
        done = lambda answer: self.answers.__setitem__(number, answer)  # noqa: E731
        node.report(lambda: node.core.calls.call(new, need, self.now + seconds, done))

    def ask(self, node: MemoryNode, number: int, need: int = ALL, seconds: float = 5.0) -> None:
        """An operator asks again what became of a call."""
        done = lambda answer: self.answers.__setitem__(number, answer)  # noqa: E731
        self.answers.pop(number, None)
        node.report(lambda: node.core.calls.ask_again(call_id(number), need, self.now + seconds, done))

    def control(self, node: MemoryNode, number: int, operation: str, of: str = "", tnx_id: int = 0) -> None:
        """A skip, a fast-forward or a reset."""
        asked = ControlAsk(node.core.generation, call_id(number), operation, of, tnx_id)
        done = lambda error: self.answers.__setitem__(number, error)  # noqa: E731
        node.report(lambda: node.core.calls.control(asked, self.now + 5.0, done))
        self.run(lambda: number in self.answers)

    def answered(self, number: int) -> Answer | str | None:
        """The answer to this call, when it has come."""
        self.run(lambda: number in self.answers)
        return self.answers[number]

    def level(self, name: str, of: str = "x", operation: str = "level") -> str:
        """What is in force on a node; empty where nothing ever was."""
        found = self.disks[name].in_force.get((operation, of))
        return msgspec.msgpack.decode(found, type=Level).level if found else ""

    def levels(self, of: str = "x", operation: str = "level") -> list[str]:
        """The same, of all nodes that run."""
        return [self.level(name, of, operation) for name in sorted(self.nodes)]

    def tnx_of(self, number: int) -> int:
        """The number that a call has got; 0 without one."""
        found = self.primary.core.replica.contents.calls.by_id(call_id(number))
        return found.tnx_id if found else 0

    def ran(self, name: str) -> list[int]:
        """The numbers of the calls that have succeeded on a node since it was started, but for its own."""
        return [tnx_id for _, tnx_id, _, error in self.nodes[name].surroundings.ran if tnx_id and error is None]

    def backups(self) -> list[MemoryNode]:
        """Those that do not lead."""
        return [self.nodes[name] for name in sorted(self.nodes) if self.nodes[name].core.leading is None]
