"""Resync: the primary's end of a catch-up queue by queue, for a joiner whose log does not lead to ours.

Algorithm: the joiner marks its store, durably, as resyncing (from then on a crash leaves a store that may only resync).
Its queues are made like ours one by one (``ha.catchup.replicating_subscription``) while load runs; what the primary
applies is sent live to the queues walked so far. When all are live, the snapshot ends *at the primary's applied
position E*: the joiner has what every event up to E leads to. Tx-queues that have not ended at E are sent from their
first event, and the stream itself follows from E+1.

What was there when the copy began is walked at a joiner's pace (``ha.catchup.throttle``), what came later without rest:
load that goes on cannot keep the walk from its end.

Everything is sent in slices of ``portion`` bytes, or of one message, and the joiner says how many it has taken
(``Progress``). So no slice holds the event loop for long, and memory is bounded on both sides: no more than a portion
of the walk and a window of live changes is on its way, and what waits beyond that is forgotten and walked again. A
joiner whose checkpoints are behind says that it is full, and is sent nothing then (``one_page_of_huge_messages``).

Why nothing comes twice or never: an event up to E reaches the joiner through its queues only, an event behind E through
the stream only. A transaction is one step of the stream, also where it is applied in parts, and E never lies within
one. That cut does the work of seed 003's skip sets (docs/decisions/skip-sets.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from ha.apply.applied import Applied
from ha.apply.replica import Replica
from ha.catchup.live_changes import LiveChanges
from ha.catchup.replicating_subscription import ReplicatingSubscription, content
from ha.catchup.snapshot_end import Ending
from ha.catchup.under_way import Portions, UnderWay
from ha.effects import Effect, Send
from ha.messages.copying import Missing, QueueChange, QueueContent, QueueSnapshot, ResyncBegin, SnapshotPart
from ha.messages.sizes import ENTRY, OVERHEAD, message_bytes
from txobserver.configuration import DECLARE_QUEUE, Configured
from txobserver.events import Configure, Message, Removal
from txobserver.ids import offset_of
from txobserver.ports.store import END


class Resync(Applied):
    """One joiner's snapshot in the making; it listens to what the primary applies.

    ``portion``: bytes of a message, and of what may be under way without rest. ``window``: bytes of live changes that
    may be under way, and that may wait.
    """

    def __init__(
        self,
        node: str,
        generation: int,
        session: int,
        replica: Replica,
        emit: Callable[[Effect], None],
        portion: int,
        window: int,
    ) -> None:
        self.ended_at: int | None = None
        self.full = False
        self._node = node
        self._generation = generation
        self._session = session
        self._replica = replica
        self._emit = emit
        self._portion = portion
        self._window = window
        self._live = LiveChanges()
        self._to_walk: deque[int] = deque()
        self._walking: ReplicatingSubscription | None = None
        self._page_after = -1
        self._asked = False
        self._lacking: deque[int] = deque()
        self._ending: Iterator[tuple[SnapshotPart, int]] | None = None
        self._marked = False
        self._portions = Portions(portion)
        self._began_at = offset_of(replica.applied.sequence + 1)
        self._under_way = UnderWay()
        self._emit(Send(node, ResyncBegin(generation, session, list(replica.history), replica.tail)))

    @property
    def held(self) -> int:
        """Bytes that are kept for the joiner: sent and not taken, or live changes that wait for room."""
        return self._under_way.bytes + self._live.waiting

    # -- what the joiner says

    def store_marked(self, now: float) -> None:
        """The joiner's store is marked: walk the queues."""
        if self._marked:
            return
        self._marked = True
        self._portions.begin(now)
        for number in sorted(self._replica.contents.configuration.numbers()):
            self._subscribe(number)
        self.go_on(now)

    def missing(self, message: Missing, now: float) -> None:
        """The joiner says what it lacks of the last page."""
        walking = self._walking
        if walking is None or walking.queue != message.queue or not self._asked:
            return
        self._asked = False
        self._lacking.extend(offset for offset in message.offsets if offset <= walking.cursor)
        self.go_on(now)

    def progress(self, taken: int, full: bool, now: float) -> None:
        """The joiner has taken so many parts; ``full``: it has no room for more."""
        self.full = full
        self._under_way.take(taken)
        self.go_on(now)

    # -- what is sent

    def go_on(self, now: float) -> None:
        """Send what can be sent now: live changes, then the walk, as far as the joiner has room."""
        if not self._marked:
            return
        if not self.full and self._under_way.bytes < self._window:
            self._flush()
        elif self._live.waiting > self._window:
            self._turn_back()
        if not self.full and not self._portions.rests(now):
            while self._under_way.bytes < self._portion and self._step(now):
                pass

    def _step(self, now: float) -> bool:
        """The next part of the snapshot; False if there is none for now."""
        if self._ending is not None:
            part = next(self._ending, None)
            if part is not None:
                self._send(*part)
            return part is not None
        later = self._page_after >= self._began_at
        if self._asked or not self._portions.may_go_on(now, self._under_way.taken, later):
            return False
        if self._lacking:
            self._send_content()
            return True
        return self._next_page() or self._end()

    def _flush(self) -> None:
        """Send what happened live since the last call."""
        for queue, (added, removed) in self._live.take(self._portion):
            size = sum(message_bytes(message) for _, _, message in added) + ENTRY * len(removed)
            self._send(QueueChange(self._generation, self._session, queue, added, removed), size)

    def _turn_back(self) -> None:
        """Too much waits for the joiner: the walk will see it again (``ha.catchup.replicating_subscription``)."""
        for subscription in self._live.changed():
            self._walk_again(subscription, None)

    def _walk_again(self, subscription: ReplicatingSubscription, cursor: int | None) -> None:
        subscription.turn_back(cursor)
        if subscription is self._walking:
            self._lacking = deque(offset for offset in self._lacking if offset <= subscription.cursor)
        else:
            self._to_walk.append(subscription.queue)

    def _next_page(self) -> bool:
        """The next page of the queue at hand, or of the next; False after the last."""
        contents = self._replica.contents
        while self._walking is None or self._walking.live or not contents.queues.knows(self._walking.queue):
            if not self._to_walk:
                return False
            self._walking = self._live.subscriptions[self._to_walk.popleft()]
        self._page_after, through, ids = self._walking.next_page(contents)
        page = QueueSnapshot(self._generation, self._session, self._walking.queue, self._page_after, through, ids)
        self._asked = bool(ids)
        passed = not ids and through < END  # many were passed over: work enough until the joiner has told that it came
        self._send(page, self._portion if passed else OVERHEAD + ENTRY * len(ids))
        return True

    def _send_content(self) -> None:
        assert self._walking is not None
        entries = content(self._replica.contents, self._walking.queue, self._lacking, self._portions.room)
        if entries:
            size = sum(message_bytes(message) for _, _, message in entries)
            self._portions.add(size, more=bool(self._lacking))
            self._send(QueueContent(self._generation, self._session, self._walking.queue, entries), size)
            self._portions.ends(self._under_way.sent)

    def _end(self) -> bool:
        """Everything is live: cut the snapshot here, unless live changes wait for room, or half a decision is among
        what was sent (``a_copy_ends_in_the_middle_of_a_decision``)."""
        if self._live.waiting or self._replica.in_parts:
            return False
        self.ended_at = self._replica.applied.sequence
        self._ending = Ending(self._replica, self._generation, self._session, self._portion).parts()
        self._live.subscriptions.clear()
        self._walking = None
        return True

    def _send(self, part: SnapshotPart, size: int) -> None:
        self._under_way.send(size)
        self._emit(Send(self._node, part))

    # -- what the primary applies

    def configured(self, step: Configure, done: Configured) -> None:
        """A new queue is walked like the others; one that is gone goes with the end of the snapshot."""
        number = self._replica.contents.configuration.queue_number(step.name)
        walks = self._marked and self._ending is None
        if walks and step.operation == DECLARE_QUEUE and number is not None and number not in self._live.subscriptions:
            self._subscribe(number)

    def watermark_raised(self, queue: int, offset: int) -> None:
        """Marks go with the end of the snapshot."""

    def enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        """A message entered a queue."""
        self._live.enqueued(queue, offset, rid, message)

    def removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages left a queue."""
        self._live.removed(queue, entries)

    def purged(self, queue: int, offset: int, spared: Sequence[int], count: int) -> None:
        """A queue was purged: little is left in it, so it is walked anew."""
        subscription = self._live.subscriptions.get(queue)
        if subscription is not None:
            self._live.forget(subscription)
            self._walk_again(subscription, -1)

    # -- inside

    def _subscribe(self, queue: int) -> None:
        self._live.subscriptions[queue] = ReplicatingSubscription(queue)
        self._to_walk.append(queue)
