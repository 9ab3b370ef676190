"""Every answer about a name is what the stream decided. A breach raises ``Broken``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.checker import Checker
from tests.simulation.reference import Change, Deletions
from tests.simulation.reference_names import names_of
from txobserver.ids import Position

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth


class IfEmpty(Checker):
    """A queue that was to be deleted if it was empty takes nothing with it but what clients had in hand."""

    promise = "P2"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._handed_out: set[str] = set()

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        if queue in self.book.fading:
            self._handed_out.add(body)

    def changed(self, change: Change) -> None:
        for queue, _, body in change.dropped:
            if queue in self.book.fading and body not in self._handed_out:
                self.fail(f"{queue}, which was to be deleted if it was empty, went with {body}")

    def deleted(self, process: Process, queue: str, before: Deletions, count: int) -> None:
        now = self.truth.reference.deletions(queue)
        if count or (before.there and before.carried_out == now.carried_out):
            self.fail(f"{process.name} tells that {queue} went with {count} messages: {before} has become {now}")

    def kept(self, process: Process, queue: str, before: Deletions) -> None:
        now = self.truth.reference.deletions(queue)
        if (before.refused, before.came) == (now.refused, now.came) and not before.held:
            self.fail(f"{process.name} tells that {queue} is not empty: {before} has become {now}")


class Bindings(Checker):
    """What was told to be bound is, until a client asks for the other thing; what was told to be declared goes with its
    last binding and at no other time, as no client here deletes an exchange.
    """

    promise = "P2"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._bound: set[tuple[str, str]] = set()
        self._look()

    def _look(self) -> None:
        names = self.truth.reference.names
        self._there = {(source, destination) for source, _, destination, _ in names.bindings}
        self._exchanges = set(names.exchanges)

    def changed(self, change: Change) -> None:
        if not change.configured:
            return
        exchanges, sources = self._exchanges, {source for source, _ in self._there}
        self._look()
        for source, queue in sorted(self._bound - self._there):
            self.fail(f"{queue} was told to be bound to {source}, no client has unbound it, and it is not")
        for name in sorted(exchanges - self._exchanges - sources):
            self.fail(f"{name} was declared, and is gone by a step that took no binding of it")

    def cut(self, kept: int, changes: list[Change]) -> None:
        self._bound.clear()
        self._look()

    def declared(self, process: Process, exchange: str) -> None:
        if self._knows_all(process) and exchange not in self.truth.reference.names.exchanges:
            self.fail(f"{process.name} tells that {exchange} is declared, and there is none")

    def bound(self, process: Process, source: str, queue: str) -> None:
        if queue in self.book.given_up or not self._knows_all(process):
            return
        self._bound.add((source, queue))
        if (source, True, queue, "") not in self.truth.reference.names.bindings:
            self.fail(f"{process.name} tells that {queue} is bound to {source}, and it is not")

    def unbinding(self, source: str, queue: str) -> None:
        self._bound.discard((source, queue))

    def _knows_all(self, process: Process) -> bool:
        """Else another has gone on since: an answer that was due before may be late."""
        return process.core.replica.applied.sequence == self.truth.reference.end


class SameNames(Checker):
    """Where a node has applied as much as another, both have the same queues, exchanges and bindings."""

    promise = "P7"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._seen: dict[Process, int] = {}

    def stands_at(self, process: Process, applied: Position) -> None:
        replica = process.core.replica
        configuration = replica.contents.configuration
        last = configuration.last_id
        if replica.resyncing or not last or self._seen.get(process) == last:
            return
        self._seen[process] = last
        expected, found = self.truth.reference.names.after.get(last), names_of(configuration)
        if found != expected:
            self.fail(f"{process.name} has {found} after step {last}, where the stream leads to {expected}")

    def cut(self, kept: int, changes: list[Change]) -> None:
        self._seen.clear()
