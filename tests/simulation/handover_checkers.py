"""What a handover promises beside P1 to P12: it ends, and leaves no outcome unknown that could have been told.

That a client which was told "not done" never sees its transaction is P4's business (``Book.told_not_done``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.membership.record import Record
from ha.primary.handover import Handover
from tests.simulation.checker import Checker

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth


class Drained(Checker):
    """A drain ends in time; clients are closed with an unknown outcome only when its time is up; the lease is given up
    only behind that."""

    promise = "P12"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self.drains = self.not_done = self.unknown = 0

    def turned(self, process: Process) -> None:
        handover = _handover_of(process)
        if handover is None or process.core.failed:
            return
        drain = handover._drain
        if drain is not None and process.core.now - drain.begun_at > process.core.settings.drain_seconds:
            self.fail(f"{process.name} has drained its clients since {drain.begun_at}, and it is {process.core.now}")

    def forced(self, process: Process, undecided: bool) -> None:
        self.unknown += undecided
        self.not_done += not undecided
        handover = _handover_of(process)
        drain = handover._drain if handover is not None else None
        if drain is None or process.core.leading is None or process.core.leading.primary.point.serving:
            return  # it has lost its lease, or its store
        self.drains += 1
        if undecided and process.core.now - drain.begun_at < process.core.settings.drain_seconds:
            self.fail(f"{process.name} closes a client with an unknown outcome before its time is up")

    def record_changed(self, record: Record) -> None:
        if not record.released or record.primary is None:
            return
        process = self.truth.cluster.processes.get(record.primary.node)
        serves = process is not None and process.core.leading is not None and process.broker.active
        if serves and process.core.generation == record.generation:
            self.fail(f"{process.name} has given its lease up, and serves clients")


def _handover_of(process: Process) -> Handover | None:
    return process.core.leading.handover if process.core.leading is not None else None
