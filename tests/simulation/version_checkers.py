"""What must hold where nodes run different releases: no node takes what it cannot apply, so none ends at each start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.messages.greeting import Hello
from tests.simulation.checker import Checker
from tests.simulation.releases import understand
from txobserver.configuration import FEATURE_OF
from txobserver.events import Configure

if TYPE_CHECKING:
    from tests.simulation.seen import Process


class Versions(Checker):
    """Nothing is acknowledged that the node does not know, nothing is written that an attached backup does not know,
    and nodes that have no version of the protocol in common have no link."""

    promise = "P12"

    def acknowledging(self, process: Process, sequence: int) -> None:
        for at, step in process.unknown_steps():
            if at <= sequence:
                self.fail(f"{process.name} acknowledges {step.operation} at {at}, which its release does not know")

    def configuring(self, process: Process, step: Configure) -> None:
        """A step that came later, and for which a node names a feature, is written only where all know it."""
        if step.operation not in FEATURE_OF:
            return
        leading = process.core.leading
        for name, session in leading.backups.sessions.items() if leading is not None else ():
            backup = self.truth.cluster.processes.get(name)
            if backup is None or not backup.asked_for(session.number):
                continue  # of a process that has ended, which the primary has not noticed yet
            if step.operation not in backup.release.operations:
                self.fail(f"{process.name} writes {step.operation}, which {name} is attached and does not know")

    def linked(self, process: Process, greeting: Hello) -> None:
        if not understand(process.greeting, greeting):
            self.fail(f"{process.name} is linked to {greeting.node}, which speaks no version that it knows")
