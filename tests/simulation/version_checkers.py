"""What must hold where nodes run different releases: no node takes what it cannot apply, so none ends at each start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.messages.greeting import Hello
from ha.messages.wire import Peer
from tests.simulation.checker import Checker
from tests.simulation.releases import understand
from txobserver.actions import FLAG
from txobserver.calls import CALL
from txobserver.configuration import FEATURE_OF
from txobserver.events import Configure

if TYPE_CHECKING:
    from tests.simulation.seen import Process


class Versions(Checker):
    """Nothing is durable at a node, or acknowledged by it, that it does not know; nothing is written that an attached
    backup does not know; no node is sent a message that it cannot read; nodes that have no version of the protocol in
    common have no link."""

    promise = "P12"

    def acknowledging(self, process: Process, sequence: int) -> None:
        for at, step in process.unknown_steps():
            if at <= sequence:
                self.fail(f"{process.name} acknowledges {step.operation} at {at}, which its release does not know")

    def turned(self, process: Process) -> None:
        """What a turn has taken is on its way to the disk."""
        for at, step in process.unknown_steps():
            self.fail(f"{process.name} keeps {step.operation} at {at}, which its release does not know")

    def taking(self, process: Process, message: Peer) -> None:
        if not process.release.reads(message):
            self.fail(f"{process.name} is sent {type(message).__name__}, which its release cannot read")

    def configuring(self, process: Process, step: Configure) -> None:
        """A step that came later, and for which a node names a feature, is written only where all know it."""
        if step.operation not in FEATURE_OF:
            return
        leading = process.core.leading
        if step.operation == CALL and step.name == FLAG and leading is not None:
            self._raising(process, {each.node for each in leading.keeper.counted()})
        for name, session in leading.backups.sessions.items() if leading is not None else ():
            backup = self.truth.cluster.processes.get(name)
            if backup is None or not backup.asked_for(session.number):
                continue  # of a process that has ended, which the primary has not noticed yet
            if step.operation not in backup.release.operations:
                self.fail(f"{process.name} writes {step.operation}, which {name} is attached and does not know")

    def _raising(self, process: Process, members: set[str]) -> None:
        """A flag is for good, so a member that cannot be asked keeps it from being raised: it may be set back."""
        for name in sorted(members - {process.name, *process.core.features}):
            self.fail(f"{process.name} raises a flag, and {name} is a member and cannot be reached")

    def linked(self, process: Process, greeting: Hello) -> None:
        if not understand(process.greeting, greeting):
            self.fail(f"{process.name} is linked to {greeting.node}, which speaks no version that it knows")
