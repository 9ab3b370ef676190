"""The promises about nodes: P6, P7 and P9 to P12. A breach raises ``Broken``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.membership.record import Record
from tests.simulation.book import Attempt
from tests.simulation.checker import Checker
from txobserver.events import DtxPrepare, TxPrepare
from txobserver.ids import Member, Position
from txobserver.outcomes import BranchOutcome
from txobserver.tx_buffer import ABORTED, COMMITTED

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth


class OneDecision(Checker):
    """Nodes apply the same events (see Truth); nothing that a ready member holds is ever undone.

    To commit is decided only when every participant holds the prepare: then no participant can have voted against it.
    """

    promise = "P6"

    def turned(self, process: Process) -> None:
        leading = process.core.leading
        if leading is not None:
            primary = leading.primary
            for buffer in process.core.replica.buffers.values():
                mine = buffer.decided and process.core.replica.position_of(buffer.decided).generation
                passed = primary.point.sequence
                if mine == primary.generation and buffer.state == COMMITTED and (buffer.prepared or 0) > passed:
                    self.fail(
                        f"{process.name} decides {buffer.tx}, whose prepare at {buffer.prepared} is not everywhere"
                    )

    def undoing(self, process: Process, last: int) -> None:
        record = self.truth.cluster.coordination.valid
        generation, held = process.disk.last_durable()
        if record is not None and held > last and process.disk.member in record.ready:
            self.fail(f"{process.name} undoes what it holds between {last} and {generation}.{held} as a ready member")


class Agreement(Checker):
    """Where a node has applied as much as another, its queues hold the same in the same order, and equal watermarks."""

    promise = "P7"

    def stands_at(self, process: Process, applied: Position) -> None:
        self._compare(process, applied, whole=False)

    def finished(self) -> None:
        for process in self.truth.cluster.running():
            self._compare(process, process.core.replica.applied, whole=True)

    def _compare(self, process: Process, applied: Position, whole: bool) -> None:
        contents, reference = process.core.replica.contents, self.truth.reference
        if process.core.replica.resyncing:
            return
        if applied.generation != self.truth.generation_at(applied.sequence):
            self.fail(f"{process.name} stands at {applied}, which is not in the one stream")
        for number, queue in reference.queues.items():
            if not contents.queues.knows(number):
                if queue.step <= contents.configuration.last_id:
                    self.fail(f"{process.name} does not know queue {queue.name}")
                continue
            summary = contents.queues.summary(number)
            if (summary.count, summary.digest) != queue.as_of(applied.sequence):
                self.fail(
                    f"{process.name} at {applied} holds {summary.count} messages in {queue.name}, "
                    f"where the stream leads to {queue.as_of(applied.sequence)[0]} or to others"
                )
            if summary.watermark != queue.watermark_as_of(applied.sequence):
                self.fail(
                    f"{process.name} at {applied} has {queue.name} marked up to {summary.watermark}, the stream leads "
                    f"to {queue.watermark_as_of(applied.sequence)}"
                )
            if whole and applied.sequence == reference.end:
                held = [(offset, rid) for offset, rid in contents.messages.ids(number)]
                if held != [(offset, queue.contents[offset][0]) for offset in sorted(queue.contents)]:
                    self.fail(f"{process.name} holds another {queue.name} than its digest says")


class Gate(Checker):
    """A member of the ready set holds everything that has been told, and what it has applied is whole."""

    promise = "P9"

    def record_changed(self, record: Record) -> None:
        told = self.truth.told
        for member in record.ready:
            disk = self.truth.cluster.disks[member.node]
            if disk.member == member and told and not disk.holds(self.truth.generation_at(told), told):
                self.fail(f"{member} is ready without {told}, which has been told; it holds {disk.last_durable()}")

    def granting(self, process: Process, member: Member) -> None:
        """Who is about to be ready has prepared every closed transaction in which it takes no part."""
        replica, disk = process.core.replica, self.truth.cluster.disks[member.node]
        for buffer in replica.buffers.values():
            needed = buffer.prepared
            if needed is None or buffer.state == ABORTED or member.node in buffer.participants or disk.member != member:
                continue
            if not disk.holds(replica.position_of(needed).generation, needed):
                self.fail(f"{process.name} grants {member}, which has no part in {buffer.tx} and lacks {needed}")

    def closing(self, process: Process, event: TxPrepare | DtxPrepare) -> None:
        """Every member that the record lists takes part in what is closed."""
        record = self.truth.cluster.coordination.valid
        if record is not None and (record.generation, record.primary) == (process.core.generation, process.disk.member):
            missing = {member.node for member in record.ready} - set(event.participants)
            if missing:
                self.fail(f"{process.name} closes {event.tx} without {sorted(missing)}, ready members")


class OnePrimary(Checker):
    """One primary in a generation, and the commit point moves only at the primary that the record names.

    What an answer rests on was met when the commit point moved. A primary that was stopped then, and wakes when another
    has taken over, may still give that answer: every member has it (``paused_primary_acknowledges_late``). What it has
    inherited is no answer: a member that was stopped may learn of its own promotion when another has taken over.
    A primary counts as one when the first event of its generation is durable: before, it can do nothing, and when the
    record is lost with all that was written of it, its generation may be given again.
    Messages, lengths and outcomes are another matter: they may be wrong as soon as another primary has gone on.
    """

    promise = "P10"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._primary: dict[int, Process] = {}
        self._commit: dict[tuple[Process, int], int] = {}

    def turned(self, process: Process) -> None:
        core = process.core
        if core.leading is None or core.replica.durable < core.replica.history[-1].sequence:
            return
        if self._primary.setdefault(core.leading.primary.generation, process) is not process:
            self.fail(f"{process.name} is a second primary of generation {core.leading.primary.generation}")
        reign, inherited = (process, core.generation), core.replica.history[-1].sequence - 1
        if core.leading.primary.point.sequence > self._commit.get(reign, inherited):
            self._commit[reign] = core.leading.primary.point.sequence
            record = self.truth.cluster.coordination.valid
            if record is None or (record.generation, record.primary) != (core.generation, process.disk.member):
                self.fail(f"{process.name} answers in generation {core.generation}, and the record is {record}")

    def leaves(self, process: Process, generation: int) -> None:
        record = self.truth.cluster.coordination.valid
        if record is None or record.generation > generation:
            self.fail(f"{process.name} tells what it held in generation {generation}, and the record is {record}")

    def stale(self, process: Process, before: object, after: object) -> None:
        if before != after:
            self.fail(f"{process.name} takes a message of a lower generation: {before} became {after}")


class DurableBeforeAnswer(Checker):
    """What is answered or handed out rests on events that are synced on every member of the ready set."""

    promise = "P11"

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        if ok:
            self._check(process, attempt.label if attempt else "a declaration")

    def told_of(self, process: Process, attempt: Attempt, outcome: BranchOutcome) -> None:
        if outcome not in (BranchOutcome.PENDING, BranchOutcome.ACTIVE, BranchOutcome.UNKNOWN):
            self._check(process, f"that {attempt.label} is {outcome.name}")

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        self._check(process, body)

    def counted(self, process: Process, queue: str, messages: int) -> None:
        self._check(process, f"the length of {queue}")

    def _check(self, process: Process, what: str) -> None:
        record, leading = self.truth.cluster.coordination.valid, process.core.leading
        if record is None or leading is None:
            self.fail(f"{process.name} answers {what} and is no primary")
            return
        sequence = max(leading.primary.point.sequence, process.core.replica.applied.sequence)
        generation = self.truth.generation_at(sequence)
        for member in record.ready:
            disk = self.truth.cluster.disks[member.node]
            if disk.member == member and not disk.holds(generation, sequence):  # another disk: this one was lost
                self.fail(
                    f"{process.name} answers {what}, which rests on {generation}.{sequence}; {member} is ready, and "
                    f"its disk holds {disk.last_durable()}"
                )


class DurableBeforeAcknowledgement(Checker):
    """What a node says of its disk to others is so: all that it names is there, and nothing behind that it has cut.

    What a primary sends is on its disk, so that no backup is ahead of it.
    """

    promise = "P11"

    def acknowledging(self, process: Process, sequence: int) -> None:
        replica, disk = process.core.replica, process.disk
        if replica.resyncing or sequence == 0:
            if replica.resyncing and sequence == 0 and not disk.base.durable.meta.resyncing:
                self.fail(f"{process.name} resynchronises, and its disk does not say so")
            return
        generation, last = disk.last_durable()
        if sequence <= replica.tail.sequence and not disk.holds(replica.position_of(sequence).generation, sequence):
            self.fail(f"{process.name} acknowledges {sequence}, and its disk holds {generation}.{last}")
        if last > replica.tail.sequence:
            self.fail(f"{process.name} acknowledges {sequence}, and {generation}.{last}, which it has cut, is there")

    def sending(self, process: Process, last: Position) -> None:
        if not process.disk.holds(last.generation, last.sequence):
            generation, sequence = process.disk.last_durable()
            self.fail(f"{process.name} sends {last}, and its disk holds {generation}.{sequence}")


class Live(Checker):
    """After the faults have ended, everything ends. The run itself looks for it (``Run.heal``)."""

    promise = "P12"

    def finished(self) -> None:
        for process in self.truth.cluster.running():
            if process.core.replica.buffers:
                self.fail(f"{process.name} still holds transactions {sorted(process.core.replica.buffers)}")
        for name, queue in self.truth.reference.by_name.items():
            if queue.contents and name not in self.book.exempt:
                self.fail(f"{name} still holds {len(queue.contents)} messages")
