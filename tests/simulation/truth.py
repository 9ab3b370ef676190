"""What really happened, as nobody in the cluster can see it: the one stream, and who holds and tells what of it.

Every event that any node applies has passed the commit point, so the first to apply the event at a sequence settles
what it is (``canonical``). Whoever applies another one there, now or later, on any node, has broken P6. The checkers
are told of everything, each looks for the breach of its own promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from ha.coordination import Record
from tests.simulation.book import Attempt, Book
from tests.simulation.reference import Reference
from txobserver.events import DtxPrepare, Event, GenerationStart, TxPrepare
from txobserver.ids import Member, Position
from txobserver.outcomes import Outcome
from txobserver.xid import Xid

if TYPE_CHECKING:
    from tests.simulation.checkers import Checker
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process


class Broken(AssertionError):
    """A promise was broken; ``promise`` is its name, P1 to P12."""

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


class Truth:
    """``told`` is the greatest sequence that an answer to a client has rested on."""

    def __init__(self, cluster: Cluster, book: Book) -> None:
        self.cluster = cluster
        self.book = book
        self.reference = Reference()
        self.canonical: list[tuple[int, Event]] = []
        self.told = 0
        self.happened: set[str] = set()
        """Labels of attempts that are visible, or were"""
        self.marks_at_start: dict[int, dict[str, int]] = {}
        """Of each generation: up to where each queue's messages may have been handed out before it began"""
        self.checkers: list[Checker] = []
        self._watching: dict[str, list[Callable[..., None]]] = {}
        self._record: object = None
        self._seen: dict[Process, Position] = {}

    def watch(self, checkers: list[Checker]) -> None:
        """These look on from now on; what happens often is told to those only who want to know of it."""
        self.checkers = checkers
        for what in ("changed", "turned"):
            wanting = [
                each for each in checkers if getattr(type(each), what) is not getattr(type(each).__mro__[-2], what)
            ]
            self._watching[what] = [getattr(each, what) for each in wanting]

    def fail(self, promise: str, text: str) -> NoReturn:
        """A promise is broken: the run ends, whatever becomes of the error where it is raised."""
        broken = Broken(promise, text)
        self.cluster.world.fail(broken)
        raise broken

    def generation_at(self, sequence: int) -> int:
        """The generation of the event at this sequence of the one stream; 0 before the first."""
        return self.canonical[sequence - 1][0] if sequence else 0

    # -- told by the processes

    def applied(self, process: Process, sequence: int, generation: int, event: Event) -> None:
        """A node has applied an event."""
        if sequence <= len(self.canonical):
            if self.canonical[sequence - 1] != (generation, event):
                self.fail(
                    "P6",
                    f"{process.name} applied {event} of generation {generation} at {sequence}, "
                    f"where {self.canonical[sequence - 1]} had been applied",
                )
            return
        if sequence != len(self.canonical) + 1:
            self.fail("P6", f"{process.name} applied {sequence} before anybody applied {len(self.canonical) + 1}")
        self.canonical.append((generation, event))
        if isinstance(event, GenerationStart):
            self.marks_at_start[generation] = {each.name: each.mark for each in self.reference.queues.values()}
        change = self.reference.apply(sequence, event)
        self.happened.update(body.split("/")[0] for _, _, body in change.inserted)
        for watch in self._watching["changed"]:
            watch(change)

    def turned(self, process: Process) -> None:
        """A node's turn has ended."""
        for watch in self._watching["turned"]:
            watch(process)
        applied = process.core.replica.applied
        if self._seen.get(process) != applied:
            self._seen[process] = applied
            for checker in self.checkers:
                checker.stands_at(process, applied)

    def undoing(self, process: Process, last: int) -> None:
        """A node is about to undo or overwrite what its store holds behind sequence ``last``."""
        for checker in self.checkers:
            checker.undoing(process, last)

    def closing(self, process: Process, event: TxPrepare | DtxPrepare) -> None:
        """A primary closes a transaction."""
        for checker in self.checkers:
            checker.closing(process, event)

    def granting(self, process: Process, member: Member) -> None:
        """A primary asks for a member to be ready."""
        for checker in self.checkers:
            checker.granting(process, member)

    def visible(self, process: Process, number: int, body: str) -> None:
        """The broker of a serving primary has been given a message."""
        queue = self.reference.queues.get(number)
        for checker in self.checkers:
            checker.visible(process, queue.name if queue else str(number), body)

    def stale(self, process: Process, before: object, after: object) -> None:
        """A node has been sent a message of a lower generation."""
        for checker in self.checkers:
            checker.stale(process, before, after)

    def record_changed(self, record: Record) -> None:
        """The coordination record has changed."""
        ready = ", ".join(str(member) for member in record.ready)
        if record.version and (record.generation, record.ready, record.released) != self._record:
            self._record = record.generation, record.ready, record.released
            what = "released by" if record.released else "primary"
            self.cluster.world.say("record", f"generation {record.generation}, {what} {record.primary}, ready: {ready}")
        for checker in self.checkers:
            checker.record_changed(record)

    # -- told by the clients' ends at the broker

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        """A node answers a client: the outcome of an attempt, or a declaration (None)."""
        for checker in self.checkers:
            checker.answered(process, attempt, ok)
        if process.core.primary is not None:
            self.told = max(self.told, process.core.primary.commit)

    def told_of(self, process: Process, attempt: Attempt, outcome: Outcome) -> None:
        """A node tells what became of a branch."""
        for checker in self.checkers:
            checker.told_of(process, attempt, outcome)
        if process.core.primary is not None:
            self.told = max(self.told, process.core.primary.commit)

    def listed(self, process: Process, branches: list[Xid]) -> None:
        """A node lists the branches that are in doubt, or were decided by an operator."""
        for checker in self.checkers:
            checker.listed(process, branches)

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        """A node hands a message to a consumer, or to a get."""
        for checker in self.checkers:
            checker.delivered(process, consumer, queue, body, redelivered)
        if process.core.primary is not None:
            self.told = max(self.told, process.core.primary.commit)

    def counted(self, process: Process, queue: str, messages: int) -> None:
        """A node tells a queue's length."""
        for checker in self.checkers:
            checker.counted(process, queue, messages)

    def acknowledging(self, process: Process, sequence: int) -> None:
        """A node sends word that its log is durable up to there; 0: that its store is marked as resyncing."""
        for checker in self.checkers:
            checker.acknowledging(process, sequence)

    def leaves(self, process: Process, generation: int) -> None:
        """What a node held as primary of this generation is sent to a client: a message, a length, an outcome."""
        for checker in self.checkers:
            checker.leaves(process, generation)

    def finished(self) -> None:
        """The run is over and everything is healed."""
        for checker in self.checkers:
            checker.finished()
