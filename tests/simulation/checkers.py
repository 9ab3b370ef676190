"""The promises P1 to P12 of PROTOCOL, each as one small class that watches a run. A breach raises ``Broken``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.coordination import Record
from ha.node_state import ACTIVE
from tests.simulation.book import FAILED, OK, OPEN, ROLLED_BACK, Attempt
from tests.simulation.reference import Change
from tests.simulation.truth import Broken, Truth
from txobserver.events import TxPrepare
from txobserver.ids import Member, Position
from txobserver.tx_buffer import COMMITTED

if TYPE_CHECKING:
    from tests.simulation.process import Process


class Checker:
    """Told of everything; looks at what concerns its promise."""

    promise = ""

    def __init__(self, truth: Truth) -> None:
        self.truth = truth
        self.book = truth.book

    def fail(self, text: str) -> None:
        """The promise is broken."""
        raise Broken(self.promise, text)

    def changed(self, change: Change) -> None:
        """The one stream has gone on by an event, with these changes of queues."""

    def turned(self, process: Process) -> None:
        """A node's turn has ended."""

    def stands_at(self, process: Process, applied: Position) -> None:
        """A node has applied more, or a snapshot."""

    def undoing(self, process: Process, last: int) -> None:
        """A node is about to undo what it holds behind ``last``."""

    def closing(self, process: Process, event: TxPrepare) -> None:
        """A primary closes a transaction."""

    def granting(self, process: Process, member: Member) -> None:
        """A primary asks for a member to be ready."""

    def visible(self, process: Process, queue: str, body: str) -> None:
        """A serving primary's broker has been given a message."""

    def stale(self, process: Process, before: object, after: object) -> None:
        """A node has been sent a message of a lower generation; what it held before and after."""

    def record_changed(self, record: Record) -> None:
        """The coordination record is another."""

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        """A node answers a client."""

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        """A node hands a message out."""

    def counted(self, process: Process, queue: str, messages: int) -> None:
        """A node tells a queue's length."""

    def finished(self) -> None:
        """The run is over."""


class Atomic(Checker):
    """A decision brings to the queues all that the transaction published, and takes all that it acknowledged."""

    promise = "P1"

    def changed(self, change: Change) -> None:
        if not change.committed:
            return
        labels = {body.split("/")[0] for _, _, body in change.inserted}
        if len(labels) > 1:
            self.fail(f"one decision brought messages of {sorted(labels)}")
        for label in labels:
            attempt = self.book.attempts.get(label)
            if attempt is None:
                return  # that is P5's business
            came = [(queue, body) for queue, _, body in change.inserted]
            if self._judged(came) != self._judged(attempt.published):
                self.fail(f"{label} published {attempt.published}, and {came} became visible")
            gone = [(queue, body) for queue, _, body in change.removed]
            if self._judged(gone) != self._judged(attempt.consumed):
                self.fail(f"{label} acknowledged {attempt.consumed}, and {gone} went")

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        if body.split("/")[0] not in self.truth.happened:
            self.fail(f"{process.name} hands out {body} of {queue}, and its transaction is not visible as a whole")

    def _judged(self, messages: list[tuple[str, str]]) -> list[tuple[str, str]]:
        return sorted((queue, body) for queue, body in messages if queue not in self.book.exempt)


class Durable(Checker):
    """What was answered *ok* is in the stream that every later primary goes on from."""

    promise = "P2"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._serving: set[Process] = set()

    def turned(self, process: Process) -> None:
        core = process.core
        serving = core.state == ACTIVE and core.primary is not None and core.primary.serving
        if serving and process not in self._serving and core.replica.applied.sequence < self.truth.told:
            self.fail(f"{process.name} serves from {core.replica.applied}, and {self.truth.told} has been told")
        if serving:
            self._serving.add(process)
        else:
            self._serving.discard(process)

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        if attempt is not None and ok and attempt.published and attempt.label not in self.truth.happened:
            self.fail(f"{attempt.label} is answered ok by {process.name}, and has not passed the commit point")

    def finished(self) -> None:
        for attempt in self.book.attempts.values():
            if attempt.outcome == OK and attempt.published and attempt.label not in self.truth.happened:
                self.fail(f"{attempt.label} was answered ok and is gone")


class NoDuplicates(Checker):
    """A message is in a queue once; what was handed out before says so, and what cannot have been does not."""

    promise = "P3"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._came: set[tuple[str, str]] = set()
        self._sent: set[tuple[str, str]] = set()
        self._rids: set[int] = set()

    def changed(self, change: Change) -> None:
        for rid in change.rids:
            if rid in self._rids:
                self.fail(f"replication id {rid} is given a second time")
            self._rids.add(rid)
        for queue, _, body in change.inserted:
            if (queue, body) in self._came:
                self.fail(f"{body} came to {queue} a second time")
            self._came.add((queue, body))

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        before = (queue, body) in self._sent
        self._sent.add((queue, body))
        if before and not redelivered:
            self.fail(f"{body} of {queue} is handed to {consumer} again and does not say so")
        if redelivered and not before and not self._may_have_been_sent(process, queue, body):
            self.fail(f"{body} of {queue} says redelivered, and nobody can have been sent it")

    def _may_have_been_sent(self, process: Process, queue: str, body: str) -> bool:
        """An earlier primary had leave to hand it out."""
        started = self.truth.marks_at_start.get(process.core.generation, {})
        there = self.truth.reference.by_name.get(queue)
        places = [place for place, (_, each) in there.contents.items() if each == body] if there else []
        return any(place <= started.get(queue, 0) for place in places)


class NoPhantom(Checker):
    """Nothing of a transaction that rolled back, failed, or never sent its commit is ever visible."""

    promise = "P4"

    def changed(self, change: Change) -> None:
        for queue, _, body in change.inserted:
            attempt = self.book.attempt_of(body)
            if attempt is not None and not attempt.may_happen:
                self.fail(f"{body} is in {queue}, and {attempt.label} is {attempt.outcome}")

    def visible(self, process: Process, queue: str, body: str) -> None:
        attempt = self.book.attempt_of(body)
        if attempt is not None and not attempt.may_happen:
            self.fail(f"{process.name} shows {body} in {queue}, and {attempt.label} is {attempt.outcome}")

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        if attempt is not None and not ok and attempt.label in self.truth.happened:
            self.fail(f"{attempt.label} is told to have failed by {process.name}, and it happened")

    def finished(self) -> None:
        for attempt in self.book.attempts.values():
            if attempt.outcome in (FAILED, ROLLED_BACK, OPEN) and attempt.label in self.truth.happened:
                self.fail(f"{attempt.label} is {attempt.outcome}, and it happened")


class NothingFromNowhere(Checker):
    """What is in a queue, or handed out of it, was published to it."""

    promise = "P5"

    def changed(self, change: Change) -> None:
        for queue, _, body in change.inserted:
            if self.book.queue_of.get(body) != queue:
                self.fail(f"{body} is in {queue}, and nobody published it there")

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        there = self.truth.reference.by_name.get(queue)
        if self.book.queue_of.get(body) != queue or there is None:
            self.fail(f"{process.name} handed {body} out of {queue}, which nobody published there")


class OneDecision(Checker):
    """Nodes apply the same events (see Truth); nothing that a ready member holds is ever undone.

    To commit is decided only when every participant holds the prepare: then nobody can have voted against it.
    """

    promise = "P6"

    def turned(self, process: Process) -> None:
        primary = process.core.primary
        if primary is not None:
            for buffer in process.core.replica.buffers.values():
                mine = buffer.decided and process.core.replica.position_of(buffer.decided).generation
                if mine == primary.generation and buffer.state == COMMITTED and (buffer.prepared or 0) > primary.commit:
                    self.fail(
                        f"{process.name} decides {buffer.tx}, whose prepare at {buffer.prepared} is not everywhere"
                    )

    def undoing(self, process: Process, last: int) -> None:
        record = self.truth.cluster.coordination.record
        generation, held = process.disk.last_durable()
        if record is not None and held > last and process.disk.member in record.ready:
            self.fail(f"{process.name} undoes what it holds between {last} and {generation}.{held} as a ready member")


class Agreement(Checker):
    """Where a node has applied as much as another, its queues hold the same in the same order."""

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
            if not contents.knows(number):
                if number <= contents.configuration.last_id:
                    self.fail(f"{process.name} does not know queue {queue.name}")
                continue
            summary = contents.summary(number)
            if (summary.count, summary.digest) != queue.as_of(applied.sequence):
                self.fail(
                    f"{process.name} at {applied} holds {summary.count} messages in {queue.name}, "
                    f"where the stream leads to {queue.as_of(applied.sequence)[0]} or to others"
                )
            if whole and applied.sequence == reference.end:
                held = [(place, rid) for place, rid in contents.ids(number)]
                if held != [(place, queue.contents[place][0]) for place in sorted(queue.contents)]:
                    self.fail(f"{process.name} holds another {queue.name} than its digest says")


class Order(Checker):
    """What one client sent to one queue stands there, and is handed out, in the order of its sending."""

    promise = "P8"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._came: dict[tuple[str, str], tuple[int, tuple[int, int]]] = {}
        self._handed: dict[tuple[str, str, str], tuple[int, int]] = {}

    def changed(self, change: Change) -> None:
        for queue, place, body in change.inserted:
            client, number = _numbered(body)
            last_place, last = self._came.get((client, queue), (-1, (-1, -1)))
            if place <= last_place or number <= last:
                self.fail(f"{body} came to {queue} behind {last} of the same client")
            self._came[client, queue] = place, number

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        client, number = _numbered(body)
        key = (consumer, queue, client)
        if not redelivered:
            if number <= self._handed.get(key, (-1, -1)):
                self.fail(f"{body} of {queue} is handed to {consumer} after {self._handed[key]}")
            self._handed[key] = number


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
            if needed is None or member.node in buffer.participants or disk.member != member:
                continue
            if not disk.holds(replica.position_of(needed).generation, needed):
                self.fail(f"{process.name} grants {member}, which has no part in {buffer.tx} and lacks {needed}")

    def closing(self, process: Process, event: TxPrepare) -> None:
        """Every member that the record lists takes part in what is closed."""
        record = self.truth.cluster.coordination.record
        if record is not None and (record.generation, record.primary) == (process.core.generation, process.disk.member):
            missing = {member.node for member in record.ready} - set(event.participants)
            if missing:
                self.fail(f"{process.name} closes {event.tx} without {sorted(missing)}, ready members")


class OnePrimary(Checker):
    """One primary in a generation, and nothing is answered but by the primary that the record names."""

    promise = "P10"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._primary: dict[int, tuple[str, int]] = {}

    def turned(self, process: Process) -> None:
        core = process.core
        if core.primary is not None:
            name = (process.name, id(process))
            if self._primary.setdefault(core.primary.generation, name) != name:
                self.fail(f"{process.name} is a second primary of generation {core.primary.generation}")

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        if ok:
            self._check(process)

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        self._check(process)

    def stale(self, process: Process, before: object, after: object) -> None:
        if before != after:
            self.fail(f"{process.name} takes a message of a lower generation: {before} became {after}")

    def _check(self, process: Process) -> None:
        record = self.truth.cluster.coordination.record
        if record is None or (record.generation, record.primary) != (process.core.generation, process.disk.member):
            self.fail(f"{process.name} answers in generation {process.core.generation}, and the record is {record}")


class DurableBeforeAnswer(Checker):
    """What is answered or handed out rests on events that are synced on every member of the ready set."""

    promise = "P11"

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        if ok:
            self._check(process, attempt.label if attempt else "a declaration")

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        self._check(process, body)

    def counted(self, process: Process, queue: str, messages: int) -> None:
        self._check(process, f"the length of {queue}")

    def _check(self, process: Process, what: str) -> None:
        record, primary = self.truth.cluster.coordination.record, process.core.primary
        if record is None or primary is None:
            self.fail(f"{process.name} answers {what} and is no primary")
            return
        sequence = max(primary.commit, process.core.replica.applied.sequence)
        generation = self.truth.generation_at(sequence)
        for member in record.ready:
            disk = self.truth.cluster.disks[member.node]
            if disk.member == member and not disk.holds(generation, sequence):  # another disk: this one was lost
                self.fail(
                    f"{process.name} answers {what}, which rests on {generation}.{sequence}; {member} is ready, and "
                    f"its disk holds {disk.last_durable()}"
                )


class Counts(Checker):
    """A length that is told is that of what may be seen (P1 for those who count)."""

    promise = "P1"

    def counted(self, process: Process, queue: str, messages: int) -> None:
        there = self.truth.reference.by_name.get(queue)
        if there is not None and messages > len(there.contents):
            self.fail(f"{process.name} tells {messages} for {queue}, which holds {len(there.contents)}")


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


CHECKERS: tuple[type[Checker], ...] = (
    NothingFromNowhere,
    Atomic,
    Durable,
    NoDuplicates,
    NoPhantom,
    OneDecision,
    Agreement,
    Order,
    Gate,
    OnePrimary,
    DurableBeforeAnswer,
    Counts,
    Live,
)


def _numbered(body: str) -> tuple[str, tuple[int, int]]:
    """(client, (attempt, message)) of a body."""
    label, number = body.split("/")
    client, attempt = label.rsplit(".", 1)
    return client, (int(attempt), int(number))
