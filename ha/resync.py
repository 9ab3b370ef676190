"""Resync: the primary's end of a catch-up queue by queue, for a joiner whose log does not lead to ours.

Algorithm: the joiner marks its store, durably, as resyncing (from then on a crash leaves a store that may only resync).
Its queues are made like ours one by one (``ha.replicating_subscription``) while load runs; what the primary applies
is sent live to the queues walked so far. When all are live, the snapshot ends *at the primary's applied position E*:
the joiner has what every event up to E leads to. Tx-queues that have not ended at E are sent from their first event,
and the stream itself follows from E+1.

What was there when the copy began is walked at a joiner's pace (``ha.pace``), what came later without rest: load that
goes on cannot keep the walk from its end.

Why nothing comes twice or never: an event up to E reaches the joiner through its queues only, an event behind E through
the stream only. A transaction is applied to all queues in one step, so E never lies within one. That cut does the work
of seed 003's skip sets (docs/decisions/skip-sets.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ha.applied import Applied
from ha.pace import Pace
from ha.replica import Replica
from ha.replicating_subscription import PAGE, ReplicatingSubscription
from ha.wire import (
    ForwardOutcomes,
    ForwardTx,
    Missing,
    QueueChange,
    QueueContent,
    QueueSnapshot,
    ResyncBegin,
    SnapshotEnd,
)
from txobserver.configuration import DECLARE_QUEUE
from txobserver.effects import Effect, Send
from txobserver.events import Configure, Message, Removal
from txobserver.ids import place_of


class Resync(Applied):
    """One joiner's snapshot in the making; it listens to what the primary applies. ``portion``: bytes without rest."""

    def __init__(
        self, node: str, generation: int, session: int, replica: Replica, emit: Callable[[Effect], None], portion: int
    ) -> None:
        self.ended_at: int | None = None
        self._node = node
        self._generation = generation
        self._session = session
        self._replica = replica
        self._emit = emit
        self._subscriptions: dict[int, ReplicatingSubscription] = {}
        self._to_walk: deque[int] = deque()
        self._walking: ReplicatingSubscription | None = None
        self._pace = Pace()
        self._portion = portion
        self._portion_bytes = 0
        self._resting = False
        self._began_at = place_of(replica.applied.sequence + 1)
        configuration = replica.contents.configuration.copy()
        self._send(ResyncBegin(generation, session, configuration, list(replica.history), replica.tail))

    def marked(self, queue: int, place: int) -> None:
        """Marks go with the end of the snapshot."""

    def store_marked(self, now: float) -> None:
        """The joiner's store is marked: walk the queues."""
        if self._subscriptions or self._walking:
            return
        self._pace.begin(now)
        for number in sorted(self._replica.contents.configuration.numbers()):
            self._subscribe(number)
        self._walk()

    def missing(self, message: Missing, now: float) -> None:
        """The joiner says what it lacks of the last page."""
        walking = self._walking
        if walking is None or walking.queue != message.queue or self._resting:
            return
        self.flush()
        if message.places:
            entries = walking.content(self._replica.contents, message.places)
            self._send(QueueContent(self._generation, self._session, walking.queue, entries))
            self._portion_bytes += sum(len(body.body) for _, _, body in entries)
        if self._portion_bytes >= self._portion and (walking.live or walking.cursor < self._began_at):
            self._portion_bytes = 0
            self._pace.rest(now)
            self._resting = True
        else:
            self._walk()

    def go_on(self, now: float) -> None:
        """Walk on after a rest."""
        if self._resting and not self._pace.resting(now):
            self._resting = False
            self._pace.begin(now)
            self._walk()

    def flush(self) -> None:
        """Send what happened live since the last call."""
        for subscription in self._subscriptions.values():
            added, removed = subscription.take_changes()
            if added or removed:
                self._send(QueueChange(self._generation, self._session, subscription.queue, added, removed))

    # -- what the primary applies

    def configured(self, step: Configure) -> None:
        """A new queue is walked like the others; one that is gone goes with the end of the snapshot."""
        number = self._replica.contents.configuration.queue_number(step.name)
        if step.operation == DECLARE_QUEUE and number is not None and number not in self._subscriptions:
            self._subscribe(number)

    def enqueued(self, queue: int, place: int, rid: int, message: Message) -> None:
        """A message entered a queue."""
        subscription = self._subscriptions.get(queue)
        if subscription is not None:
            subscription.enqueued(place, rid, message)

    def removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages left a queue."""
        subscription = self._subscriptions.get(queue)
        if subscription is not None:
            subscription.gone([place for place, _ in entries])

    def purged(self, queue: int, place: int, spared: Sequence[int], count: int) -> None:
        """A queue was purged: so is the joiner's copy of it, after what happened before."""
        if queue in self._subscriptions:
            self.flush()
            self._send(QueueChange(self._generation, self._session, queue, [], [], (place, list(spared))))

    # -- inside

    def _subscribe(self, queue: int) -> None:
        self._subscriptions[queue] = ReplicatingSubscription(queue)
        self._to_walk.append(queue)

    def _walk(self) -> None:
        """The next page of the queue at hand, or of the next; after the last, the end of the snapshot."""
        contents = self._replica.contents
        while self._walking is None or self._walking.live or not contents.knows(self._walking.queue):
            if not self._to_walk:
                self._end()
                return
            self._walking = self._subscriptions[self._to_walk.popleft()]
        after, through, ids = self._walking.next_page(contents)
        self._send(QueueSnapshot(self._generation, self._session, self._walking.queue, after, through, ids))

    def _end(self) -> None:
        replica, contents = self._replica, self._replica.contents
        self.flush()
        end = replica.applied
        transactions = []
        for buffer in replica.buffers.values():
            events = [(sequence, event) for sequence, event in buffer.since(0) if sequence <= end.sequence]
            if events:
                transactions.append((buffer.tx, len(events)))
                self._send(ForwardTx(self._generation, self._session, buffer.tx, events))
        remembered = contents.table.outcomes.all()
        for first in range(0, len(remembered), PAGE):
            self._send(ForwardOutcomes(self._generation, self._session, remembered[first : first + PAGE]))
        queues = []
        for number in sorted(contents.configuration.numbers()):
            summary = contents.summary(number)
            queues.append((number, summary.count, summary.digest, summary.mark))
        history = [start for start in replica.history if start.sequence <= end.sequence]
        # A copy: what is applied before this is encoded comes behind ``end`` (``snapshot_with_later_configuration``).
        configuration = contents.configuration.copy()
        outcomes = contents.table.outcomes.meta
        self._send(
            SnapshotEnd(self._generation, self._session, end, history, configuration, queues, transactions, outcomes)
        )
        self.ended_at = end.sequence
        self._subscriptions.clear()
        self._walking = None

    def _send(self, message: object) -> None:
        self._emit(Send(self._node, message))
