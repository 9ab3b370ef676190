"""QueueReplicator: the joiner's end of a catch-up queue by queue (seed 001).

Parts are worked off in order and in turns of bounded length: a page that finds a million surplus messages here takes
many of them (``work``). ``taken`` counts the parts that are done, which is what the primary's window goes by.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ha.apply.replica import Replica
from ha.effects import Effect, Send
from ha.messages.copying import (
    ForwardOutcomes,
    ForwardTx,
    Missing,
    QueueChange,
    QueueContent,
    QueueSnapshot,
    SnapshotAccess,
    SnapshotCalls,
    SnapshotConfiguration,
    SnapshotEnd,
    SnapshotPart,
    SnapshotQueues,
)
from txobserver.access import Access
from txobserver.calls import KeptCalls
from txobserver.configuration import Configuration
from txobserver.events import TxEvent
from txobserver.ids import id_text
from txobserver.outcomes import Outcomes, Remembered
from txobserver.table import IllegalTransition
from txobserver.tx_buffer import TxBuffer, opened_by

STEP = 1000
"""Messages that are compared with a page at a time."""
STEPS = 10
"""How many of such steps, or parts, are done in one turn."""


class SnapshotMismatch(Exception):
    """What was copied is not what the primary holds."""


class QueueReplicator:
    """Makes this node's queues like the primary's. Nothing of it counts before the end of the snapshot is durable."""

    def __init__(self, primary: str, session: int, replica: Replica, emit: Callable[[Effect], None]) -> None:
        self.taken = 0
        self.ended: SnapshotEnd | None = None
        self._primary = primary
        self._session = session
        self._replica = replica
        self._emit = emit
        self._parts: deque[SnapshotPart] = deque()
        self._page: QueueSnapshot | None = None
        self._wanted: dict[int, int] = {}
        self._compared = -1
        self._configuration = Configuration()
        self._calls = KeptCalls()
        self._calls_digest = 0
        self._access = Access()
        self._access_digest = 0
        self._queues: set[int] = set()
        self._forwarded: dict[int, list[tuple[int, TxEvent]]] = {}
        self._buffers: dict[int, TxBuffer] = {}
        self._remembered: list[Remembered] = []

    def take(self, part: SnapshotPart) -> None:
        """The next part, for ``work``."""
        self._parts.append(part)

    def work(self) -> None:
        """Do some of what is left to be done. Raises SnapshotMismatch, and the store stays marked as resyncing."""
        for _ in range(STEPS):
            if not self._parts:
                return
            if self._do(self._parts[0]):
                self._parts.popleft()
                self.taken += 1

    def _do(self, part: SnapshotPart) -> bool:
        """Whether this part is done, or some of it is left."""
        if isinstance(part, QueueSnapshot):
            return self.snapshot(part)
        if isinstance(part, QueueContent):
            self.content(part)
        elif isinstance(part, QueueChange):
            self.change(part)
        elif isinstance(part, SnapshotConfiguration):
            self.configure(part)
        elif isinstance(part, SnapshotQueues):
            self.check(part)
        elif isinstance(part, SnapshotCalls):
            self._call(part)
        elif isinstance(part, SnapshotAccess):
            self._let_in(part)
        elif isinstance(part, ForwardTx):
            self.forward(part)
        elif isinstance(part, ForwardOutcomes):
            self.remember(part)
        else:
            self.end(part)
        return True

    def snapshot(self, message: QueueSnapshot) -> bool:
        """A page of a queue: drop what is surplus, then ask for what is missing. False: some is left to compare."""
        contents = self._replica.contents
        if self._page is not message:
            contents.queues.add(message.queue)
            self._page, self._wanted, self._compared = message, dict(message.ids), message.after
        here = contents.messages.ids_page(message.queue, self._compared, STEP)
        for offset, rid in here.entries:
            if offset > message.through:
                break
            if self._wanted.get(offset) == rid:
                del self._wanted[offset]
            else:
                contents.queues.remove(message.queue, offset, rid)
        if here.through < message.through:
            self._compared = here.through
            return False
        if message.ids:
            reply = Missing(message.generation, self._session, message.queue, list(self._wanted))
            self._emit(Send(self._primary, reply))
        self._page, self._wanted = None, {}
        return True

    def content(self, message: QueueContent) -> None:
        """Messages that were missing."""
        for offset, rid, body in message.entries:
            self._replica.contents.queues.insert(message.queue, offset, rid, body)

    def change(self, message: QueueChange) -> None:
        """Live changes of a queue. A message may be gone again before its content has come."""
        contents = self._replica.contents
        for offset, rid, body in message.added:
            contents.queues.insert(message.queue, offset, rid, body)
        for offset, rid in message.removed:
            contents.queues.remove(message.queue, offset, rid)

    def configure(self, message: SnapshotConfiguration) -> None:
        """A part of what is declared at the primary."""
        self._configuration.queues.update((each.name, each) for each in message.queues)
        self._configuration.exchanges.update((each.name, each) for each in message.exchanges)
        self._configuration.bindings.extend(message.bindings)

    def check(self, message: SnapshotQueues) -> None:
        """What the primary's queues hold, all of which has come; their watermarks count, whatever was known here."""
        contents = self._replica.contents
        for number, count, digest, watermark in message.queues:
            contents.queues.add(number)
            found = contents.queues.summary(number)
            if (found.count, found.digest) != (count, digest):
                raise SnapshotMismatch(f"queue {number} holds {found.count} messages where the primary has {count}")
            contents.queues.overwrite_watermark(number, watermark)
            self._queues.add(number)

    def _call(self, message: SnapshotCalls) -> None:
        """What is kept of cluster calls, or a part of it."""
        if message.rest is not None:
            self._calls = message.rest
        self._calls_digest = message.digest
        self._calls.kept = [*self._calls.kept, *message.kept]

    def _let_in(self, message: SnapshotAccess) -> None:
        """The users of the cluster, or some of them."""
        if message.rest is not None:
            self._access = message.rest
        self._access_digest = message.digest
        self._access.users = {**self._access.users, **{each.name: each for each in message.users}}
        self._access.changes = [*self._access.changes, *message.changes]
        self._access.rules = {**self._access.rules, **{each.place: each for each in message.rules}}

    def forward(self, message: ForwardTx) -> None:
        """A tx-queue that has not ended when the snapshot does, or a part of it."""
        if not message.events:
            raise SnapshotMismatch(f"transaction {id_text(message.tx)} comes without events")
        self._forwarded.setdefault(message.tx, []).extend(message.events)
        try:
            for sequence, event in message.events:
                if event.tx != message.tx:
                    raise SnapshotMismatch(f"transaction {id_text(message.tx)} is mixed with another")
                if message.tx in self._buffers:
                    self._buffers[message.tx].add(sequence, event)
                else:
                    self._buffers[message.tx] = opened_by(event, sequence)
        except IllegalTransition as error:
            raise SnapshotMismatch(f"transaction {id_text(message.tx)}: {error}") from None

    def remember(self, message: ForwardOutcomes) -> None:
        """Outcomes that the primary remembers when the snapshot ends."""
        self._remembered.extend(message.remembered)

    def end(self, message: SnapshotEnd) -> None:
        """The snapshot is whole: check it."""
        declared = self._configuration
        declared.last_id = message.last_id
        counts = len(declared.queues), len(declared.exchanges), len(declared.bindings)
        if counts != message.declared or declared.numbers() != self._queues:
            raise SnapshotMismatch(f"{counts} queues, exchanges and bindings came, {message.declared} were sent")
        forwarded = [(tx, len(events)) for tx, events in self._forwarded.items()]
        if forwarded != message.transactions:
            raise SnapshotMismatch(f"{len(forwarded)} open transactions came, {len(message.transactions)} were sent")
        if Outcomes(message.outcomes, self._remembered).meta != message.outcomes:
            raise SnapshotMismatch(f"{len(self._remembered)} outcomes came, which are not those that were sent")
        if self._calls.digest() != self._calls_digest:
            raise SnapshotMismatch(f"{len(self._calls.kept)} cluster calls came, which are not those that were sent")
        if self._access.digest() != self._access_digest:
            raise SnapshotMismatch(f"{len(self._access.users)} users came, which are not those that were sent")
        self.ended = message

    def finish(self) -> int:
        """The former log is gone, durably: the snapshot takes its place. Returns its sequence."""
        message = self.ended
        assert message is not None
        self._replica.end_resync(
            message.position,
            message.history,
            self._configuration,
            self._forwarded,
            message.outcomes,
            self._remembered,
            self._calls,
            self._access,
        )
        return message.position.sequence
