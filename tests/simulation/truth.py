"""What really happened, as no node of the cluster can see it: the one stream, and who holds and tells what of it.

Every event that any node applies has passed the commit point, so the first to apply the event at a sequence settles
what it is (``canonical``). A node that applies another one there, now or later, on any node, has broken P6. The
checkers are told of everything, each looks for the breach of its own promise.

Where an operator has accepted a loss, the one stream is what the new primary's store leads to (``losses``): what lay
behind that is cut out of it, and with it what was told of that. Nothing else is excused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from ha.membership.record import Record
from ha.messages.greeting import Hello
from ha.messages.wire import Peer
from tests.simulation.book import Attempt, Book
from tests.simulation.losses import Losses
from tests.simulation.reference import Change, Reference
from txobserver.events import Configure, DtxPrepare, Event, GenerationStart, TxPrepare
from txobserver.ids import Member, Position
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

if TYPE_CHECKING:
    from tests.simulation.checker import Checker
    from tests.simulation.seen import Cluster, Process


class Broken(AssertionError):
    """A promise was broken; ``promise`` is its name, P1 to P12."""

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


class Truth:
    """``told`` is the greatest sequence that an answer to a client has rested on.

    Many methods: one for each thing that is told, as a checker has.
    """

    def __init__(self, cluster: Cluster, book: Book) -> None:
        self.cluster = cluster
        self.book = book
        self.reference = Reference()
        self.canonical: list[tuple[int, Event]] = []
        self.told = 0
        self.losses = Losses()
        self.happened: set[str] = set()
        """Labels of attempts that are visible, or were"""
        self.watermarks_at_start: dict[int, dict[str, int]] = {}
        """Of each generation: up to where each queue's messages may have been handed out before it began"""
        self.checkers: list[Checker] = []
        self._watching: dict[str, list[Callable[..., None]]] = {}
        self._record: object = None
        self._seen: dict[Process, Position] = {}

    def watch(self, checkers: list[Checker]) -> None:
        """These look on from now on; what happens often is told to those only who want to know of it."""
        self.checkers = checkers
        for what in ("changed", "settling", "turned"):
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
        if self.is_lost(Position(generation, sequence)):
            if self.losses.other_than(sequence, generation, event):
                self.fail("P6", f"{process.name} applied {event} at {generation}.{sequence}, another than was lost")
            return
        if sequence <= len(self.canonical) and self.canonical[sequence - 1] != (generation, event):
            if not self.losses.take_effect_at(process.disk.member, process.core.generation):
                self.fail(
                    "P6",
                    f"{process.name} applied {event} of generation {generation} at {sequence}, "
                    f"where {self.canonical[sequence - 1]} had been applied",
                )
            self._cut(sequence - 1)
        if sequence <= len(self.canonical):
            return
        if sequence != len(self.canonical) + 1:
            self.fail("P6", f"{process.name} applied {sequence} before any node applied {len(self.canonical) + 1}")
        if generation < self.generation_at(sequence - 1):
            self.fail("P6", f"{process.name} applied {generation}.{sequence} behind a later generation")
        self.canonical.append((generation, event))
        if isinstance(event, GenerationStart):
            self.losses.settle(generation, sequence)
        change = self._lead_to(sequence, generation, event)
        if isinstance(change.named, Xid) and change.decided is None:
            self.book.branches[change.named].final = False
        for watch in self._watching["changed"]:
            watch(change)

    def _lead_to(self, sequence: int, generation: int, event: Event) -> Change:
        if isinstance(event, GenerationStart):
            self.watermarks_at_start[generation] = {
                each.name: each.watermark for each in self.reference.queues.values()
            }
        change = self.reference.apply(sequence, event)
        labels = {body.split("/")[0] for _, _, body in change.inserted}
        self.happened |= labels
        self.losses.labels -= labels
        return change

    # -- what an operator has accepted to be lost

    def _cut(self, kept: int) -> None:
        """The one stream goes on from ``kept``: what was told of events behind that is of no account any more."""
        if kept < self.told:
            self.fail("P2", f"nothing behind {kept} goes on, and the node that does held {self.told}, which was told")
        before, self.happened, self.reference = self.happened, set(), Reference()
        self.losses.cut(self.canonical, kept)
        del self.canonical[kept:]
        changes = [self._lead_to(at, *of) for at, of in enumerate(self.canonical, 1)]
        self.told = min(self.told, kept)
        self.losses.labels |= before - self.happened
        self.book.cut(kept)
        for xid in self.reference.branches.prepared:
            self.book.branches[xid].final = False
        for checker in self.checkers:
            checker.cut(kept, changes)
        self.cluster.world.say("checker", f"what lay behind {kept} is lost, as an operator has accepted")

    def is_lost(self, position: Position) -> bool:
        """Whether this event is none of the one stream, as an operator has accepted its loss."""
        return self.losses.covers(position, self.generation_at)

    def _may_be_lost(self, position: Position) -> bool:
        """Whether this is none of the one stream as far as that is known again since a cut."""
        at = position.sequence
        known = at <= len(self.canonical) and self.generation_at(at) == position.generation
        return self.losses.is_settling and not known

    def is_of_before(self, process: Process) -> bool:
        """Whether this node does not know yet of a loss that was accepted: what it holds may be lost.

        Whether it may still say something of it is ``leaves``' business, and that of P10.
        """
        return process.core.generation < self.losses.generation

    def settling(self, process: Process) -> None:
        """A node is about to draw the consequences of what it has been told."""
        for watch in self._watching["settling"]:
            watch(process)

    def turned(self, process: Process) -> None:
        """A node's turn has ended. One whose store has failed may be in the middle of an event, and is about to end."""
        for watch in self._watching["turned"]:
            watch(process)
        applied = process.core.replica.applied
        moved = self._seen.get(process) != applied or process.core.replica.in_parts
        if moved and not process.core.failed:
            self._seen[process] = applied
            if self.is_lost(applied) or self._may_be_lost(applied):
                return
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
        if self.is_of_before(process):
            return
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
        if self.losses.accepted(record):
            assert record.primary is not None
            self.told = self._held_by(record.primary, self.told)
        for checker in self.checkers:
            checker.record_changed(record)

    def _held_by(self, member: Member, told: int) -> int:
        """Up to where the disk of this member leads to what has been told."""
        disk = self.cluster.disks[member.node]
        while told and not (disk.member == member and disk.holds(self.generation_at(told), told)):
            told -= 1
        return told

    # -- told by the clients' ends at the broker

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        """A node answers a client: the outcome of an attempt, or a declaration (None)."""
        if attempt is not None and not ok:
            attempt.refused_at = attempt.refused_at or self.reference.end
        if not self.is_of_before(process):
            for checker in self.checkers:
                checker.answered(process, attempt, ok)
            self._tells(process)

    def failed(self, attempt: Attempt) -> None:
        """A client takes an attempt for failed, since it was told that what was not answered was not done."""
        if attempt.label in self.book.told_not_done:
            attempt.refused_at = attempt.refused_at or self.reference.end
            if attempt.label in self.happened:
                self.fail("P4", f"{attempt.label} was told not to be done, and it happened")

    def forced(self, process: Process, undecided: bool) -> None:
        """A node closes a client since it serves no more; ``undecided``: something that has begun has no answer."""
        for checker in self.checkers:
            checker.forced(process, undecided)

    def told_of(self, process: Process, attempt: Attempt, outcome: BranchOutcome) -> None:
        """A node tells what became of a branch."""
        if outcome in (BranchOutcome.ROLLED_BACK, BranchOutcome.HEURISTICALLY_ROLLED_BACK):
            attempt.refused_at = attempt.refused_at or self.reference.end
        if not self.is_of_before(process):
            for checker in self.checkers:
                checker.told_of(process, attempt, outcome)
            self._tells(process)

    def _tells(self, process: Process) -> None:
        if process.core.leading is not None:
            self.told = max(self.told, process.core.leading.primary.point.sequence)

    def listed(self, process: Process, branches: list[Xid]) -> None:
        """A node lists the branches that are in doubt, or were decided by an operator."""
        if not self.is_of_before(process):
            for checker in self.checkers:
                checker.listed(process, branches)

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        """A node hands a message to a consumer, or to a get."""
        if not self.is_of_before(process):
            for checker in self.checkers:
                checker.delivered(process, consumer, queue, body, redelivered)
            self._tells(process)

    def counted(self, process: Process, queue: str, messages: int) -> None:
        """A node tells a queue's length."""
        if not self.is_of_before(process):
            for checker in self.checkers:
                checker.counted(process, queue, messages)

    def names_told(self, process: Process, what: str, *said: object) -> None:
        """A node tells something of a name: ``deleted``, ``kept``, ``declared`` or ``bound``, as for the checkers."""
        if not self.is_of_before(process):
            for checker in self.checkers:
                getattr(checker, what)(process, *said)
            self._tells(process)

    def unbinding(self, source: str, queue: str) -> None:
        """A client is about to ask for the end of a binding."""
        for checker in self.checkers:
            checker.unbinding(source, queue)

    def acknowledging(self, process: Process, sequence: int) -> None:
        """A node sends word that its log is durable up to there; 0: that its store is marked as resyncing."""
        for checker in self.checkers:
            checker.acknowledging(process, sequence)

    def sending(self, process: Process, last: Position) -> None:
        """A primary sends a backup the stream's events up to this one."""
        for checker in self.checkers:
            checker.sending(process, last)

    def configuring(self, process: Process, step: Configure) -> None:
        """A primary writes a step of configuration."""
        for checker in self.checkers:
            checker.configuring(process, step)

    def linked(self, process: Process, greeting: Hello) -> None:
        """A node has a link to another one, which has greeted it so."""
        for checker in self.checkers:
            checker.linked(process, greeting)

    def given_up(self, process: Process, peer: str) -> None:
        """A node closes its link with a peer, of which it says that nothing comes."""
        for checker in self.checkers:
            checker.given_up(process, peer)

    def taking(self, process: Process, message: Peer) -> None:
        """A node is about to take a message of a peer."""
        for checker in self.checkers:
            checker.taking(process, message)

    def leaves(self, process: Process, generation: int) -> None:
        """What a node held as primary of this generation is sent to a client: a message, a length, an outcome."""
        for checker in self.checkers:
            checker.leaves(process, generation)

    def calls(self, what: str, process: Process, *said: object) -> None:
        """Something of cluster calls: ``action_begins``, ``action_ran``, ``calls_kept`` ``call_answered`` or, of
        users, ``user_answered``."""
        for checker in self.checkers:
            getattr(checker, what)(process, *said)

    def finished(self) -> None:
        """The run is over and everything is healed."""
        for checker in self.checkers:
            checker.finished()
