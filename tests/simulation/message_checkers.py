"""The promises about messages: P1 to P5 and P8. A breach raises ``Broken``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ha.membership.node_state import ACTIVE
from tests.simulation.book import OK, Attempt
from tests.simulation.checker import Checker
from tests.simulation.reference import Change

if TYPE_CHECKING:
    from tests.simulation.seen import Process, Truth


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
        serving = core.state == ACTIVE and core.leading is not None and core.leading.primary.point.serving
        if serving and self.truth.is_lost(core.replica.applied) and not self.truth.is_of_before(process):
            self.fail(f"{process.name} serves from {core.replica.applied}, whose loss an operator has accepted")
        if serving and process not in self._serving and core.replica.applied.sequence < self.truth.told:
            self.fail(f"{process.name} serves from {core.replica.applied}, and {self.truth.told} has been told")
        if serving:
            self._serving.add(process)
        else:
            self._serving.discard(process)

    def answered(self, process: Process, attempt: Attempt | None, ok: bool) -> None:
        if attempt is None or not ok or self.book.goes_nowhere(attempt):
            return
        if attempt.published and attempt.label not in self.truth.happened:
            self.fail(f"{attempt.label} is answered ok by {process.name}, and has not passed the commit point")

    def finished(self) -> None:
        for attempt in self.book.attempts.values():
            gone = attempt.label not in self.truth.happened and attempt.label not in self.truth.losses.labels
            if self.book.goes_nowhere(attempt):
                continue
            if attempt.outcome == OK and attempt.published and gone:
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

    def cut(self, kept: int, changes: list[Change]) -> None:
        self._rids = {rid for change in changes for rid in change.rids}
        self._came = {(queue, body) for change in changes for queue, _, body in change.inserted}
        marked = {
            (queue.name, body)
            for queue in self.truth.reference.queues.values()
            for offset, (_, body) in queue.contents.items()
            if offset <= queue.watermark
        }
        self._sent &= marked

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        before = (queue, body) in self._sent
        self._sent.add((queue, body))
        if before and not redelivered:
            self.fail(f"{body} of {queue} is handed to {consumer} again and does not say so")
        if redelivered and not before and not self._may_have_been_sent(process, queue, body):
            self.fail(f"{body} of {queue} says redelivered, and no client can have been sent it")

    def _may_have_been_sent(self, process: Process, queue: str, body: str) -> bool:
        """An earlier primary had leave to hand it out."""
        started = self.truth.watermarks_at_start.get(process.core.generation, {})
        there = self.truth.reference.by_name.get(queue)
        offsets = [offset for offset, (_, each) in there.contents.items() if each == body] if there else []
        return any(offset <= started.get(queue, 0) for offset in offsets)


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
            if not attempt.may_happen and attempt.label in self.truth.happened:
                self.fail(f"{attempt.label} is {attempt.outcome}, and it happened")


class NothingFromNowhere(Checker):
    """What is in a queue, or handed out of it, was published to it."""

    promise = "P5"

    def changed(self, change: Change) -> None:
        for queue, _, body in change.inserted:
            if self.book.queue_of.get(body) != queue:
                self.fail(f"{body} is in {queue}, and no client published it there")

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        there = self.truth.reference.by_name.get(queue)
        if self.book.queue_of.get(body) != queue or there is None:
            self.fail(f"{process.name} handed {body} out of {queue}, which no client published there")


class Order(Checker):
    """What one client sent to one queue stands there, and is handed out, in the order of its sending."""

    promise = "P8"

    def __init__(self, truth: Truth) -> None:
        super().__init__(truth)
        self._came: dict[tuple[str, str], tuple[int, tuple[int, int]]] = {}
        self._handed: dict[tuple[str, str, str], tuple[int, int]] = {}

    def changed(self, change: Change) -> None:
        for queue, offset, body in change.inserted:
            client, number = self._numbered(body)
            last_offset, last = self._came.get((client, queue), (-1, (-1, -1)))
            if offset <= last_offset or number <= last:
                self.fail(f"{body} came to {queue} behind {last} of the same client")
            self._came[client, queue] = offset, number

    def cut(self, kept: int, changes: list[Change]) -> None:
        self._came = {}
        for queue, offset, body in (inserted for change in changes for inserted in change.inserted):
            client, number = self._numbered(body)
            self._came[client, queue] = offset, number

    def delivered(self, process: Process, consumer: str, queue: str, body: str, redelivered: bool) -> None:
        client, number = self._numbered(body)
        key = (consumer, queue, client)
        if not redelivered:
            if number <= self._handed.get(key, (-1, -1)):
                self.fail(f"{body} of {queue} is handed to {consumer} after {self._handed[key]}")
            self._handed[key] = number

    def _numbered(self, body: str) -> tuple[str, tuple[int, int]]:
        """(client, (attempt, message)) of a body. Branches may be decided in any order: each is a client of its own."""
        label, number = body.split("/")
        client, count = label.rsplit(".", 1)
        attempt = self.book.attempt_of(body)
        return label if attempt is not None and attempt.xid is not None else client, (int(count), int(number))


class Counts(Checker):
    """A length that is told is that of what may be seen (P1 for those who count)."""

    promise = "P1"

    def counted(self, process: Process, queue: str, messages: int) -> None:
        there = self.truth.reference.by_name.get(queue)
        if there is not None and messages > len(there.contents):
            self.fail(f"{process.name} tells {messages} for {queue}, which holds {len(there.contents)}")
