"""Primary: makes the stream of one generation, and answers for it.

Promise: nothing is told to anybody (delivered, got, counted, confirmed) before it is durable on every node that
counts; no two nodes ever tell different outcomes of a transaction.

API: the broker calls the Ledger; the node core reports what the disk, the backups and the coordination store did; the
answers come as effects and as calls of the Host, in stream order.

Algorithm: ``append`` gives an event its position and puts it into the group that is being gathered. ``flush`` makes one
frame of the group, to be written and synced here; when it is durable it is sent to every backup. The *commit point*
is the sequence that the primary and every member that counts are durable up to; it moves only while the lease holds
and never back. Everything up to it is applied in stream order, and answered.

Why it is right: what is told is below the commit point, so it is on every member of the ready set, and the next
primary is one of them. Who counts can shrink only by a compare-and-set that the coordination store has synced, before
anything is told without the one removed. A transaction's prepare has passed the commit point before its decision is
made, and its answer waits for the decision to pass it too.

What would break a simpler version: ``hidden_commit_versus_later_publish`` (places given at apply time instead of by
position), ``paused_primary_acknowledges_late``, ``min_ready_lost_after_decision``, ``recovering_primary_delivers``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from ha.apply.applied import Applied
from ha.apply.checkpointing import behind
from ha.apply.replica import Replica
from ha.effects import Effect, LogLine, Persist, Stop
from ha.feed.recent_frames import RecentFrames
from ha.messages.sizes import SETTLED, event_bytes, slices
from ha.primary.additions import Additions
from ha.primary.backlog import Backlog
from ha.primary.branches import Branches
from ha.primary.readings import Readings, Then
from ha.primary.refusals import Refusals
from ha.primary.transactions import Transactions, TransactionWatcher
from ha.settings import Settings
from txobserver.configuration import Configured
from txobserver.ends import END_OF_CONFIGURATION, END_OF_STREAM, ReplicationIds, end_of_new
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
    Event,
    GenerationStart,
    Message,
    Publish,
    Removal,
    Settle,
    TxDecision,
    TxEvent,
    purge_of,
)
from txobserver.frames import encode_frame
from txobserver.ids import LAST_CONFIG_ID, LAST_SEQUENCE, id_text, place_of
from txobserver.observer import TransactionObserver, TransactionObserverFactory
from txobserver.outcomes import Name
from txobserver.ports.ledger import Content, Done, Host
from txobserver.ports.store import Asked
from txobserver.tx_buffer import DtxBuffer, TxBuffer

Emit = Callable[[Effect], None]


class Primary(Applied):
    """The primary of one generation. ``emit`` takes effects in order.

    Implements ``txobserver.ports.ledger.Ledger`` towards the broker.
    """

    def __init__(
        self, name: str, generation: int, replica: Replica, host: Host, settings: Settings, emit: Emit
    ) -> None:
        self.name = name
        self.generation = generation
        self.commit = replica.applied.sequence
        self.recent = RecentFrames(settings.recent_bytes)
        self.backlog = Backlog(settings.backlog_bytes)
        self.serving = False
        self.below_min_ready = False
        self.at_end: str | None = None
        self.backup_full = False
        self.wall_ms = 0
        self.wake: Callable[[], None] = lambda: None
        self.listeners: list[Applied] = []
        self.watcher: TransactionWatcher | None = None
        self._replica = replica
        self._host = host
        self._settings, self._emit = settings, emit
        self._group: list[Event] = []
        self._group_first = replica.tail.sequence + 1
        self.abandoned, self._framed = False, 0
        self._waiting: deque[tuple[int, Done]] = deque()
        self._additions = Additions()
        self._ids = ReplicationIds(generation)
        self.readings = Readings(generation, replica.contents)
        self._opened_to = self._config_id = 0
        self._refusals = Refusals()
        self._factory = TransactionObserverFactory(generation, self, self._ids.next)
        self._transactions = Transactions(self)
        self._branches = branches = Branches(self, replica, self._factory, host)
        self.begin_branch, self.decide_branch, self.forget_branch = branches.begin, branches.decide, branches.forget
        self.decide_global, self.forget_global = branches.decide_global, branches.forget_global
        replica.listener = self

    # -- the beginning of a generation

    def start(self, expected: Sequence[str]) -> None:
        """Open the generation: its first event, and the abort of whatever has no decision and is not to stay."""
        self.append(GenerationStart(self.generation, self.name, list(expected)))
        for buffer in sorted(self._replica.undecided(), key=lambda each: each.tx):
            if not buffer.stays:
                self._emit(LogLine(f"transaction={id_text(buffer.tx)} has no decision here: aborted at failover"))
                self.tx_rollback(buffer.tx)
        if in_doubt := self._branches.inherit():
            self._emit(LogLine(f"{in_doubt} branches stay prepared"))
        self._opened_to = self._replica.tail.sequence

    @property
    def in_step(self) -> bool:
        """Whether all that stood before this generation has passed the commit point, and the aborts with it."""
        return self.commit >= self._opened_to

    @property
    def congested(self) -> bool:
        """Whether clients should not be read for now: the disks or a backup are behind them, or the checkpoints are.

        ``backup_full``: those of a backup that counts are.
        """
        return self.backlog.full or self.backup_full or behind(self._replica, self._settings)

    @property
    def writing(self) -> bool:
        """Whether a frame of this primary's is on its way to the disk (``former_role_s_write_ends_late``)."""
        return self._replica.durable < self._framed

    def serve(self, content: Content) -> None:
        """The primary is active: clients may be served."""
        self._config_id = content.configuration.last_id
        self.serving = True
        self._host.on_active(self, content)

    def abandon(self) -> None:
        """No longer primary: what was never written is forgotten."""
        self.serving = False
        self.abandoned = True
        self._replica.listener = Applied()
        self.readings.abandon()
        if self._group:
            self._replica.truncate(self._group_first - 1)

    # -- the stream

    def append(self, event: Event) -> int:
        """Give the event its position, the next in the stream; it is written with the next group.

        A primary that has been abandoned takes nothing: late calls of clients that are being closed have no effect.
        """
        if self.abandoned:
            return 0
        if not self._group:
            self._group_first = self._replica.tail.sequence + 1
            self.wake()
        sequence = self._replica.append(self.generation, event)
        self._group.append(event)
        self.backlog.gathered(event_bytes(event))
        return sequence

    def flush(self) -> None:
        """Write what has gathered, unless a group is on its way to the disk already; at most a frame of it."""
        if self.writing or not self._group:
            return
        for delivered in self._additions.wanted(self._host if self.serving else None):
            self.append(delivered)
        last = self._group_first + len(self._group) - 1
        self.at_end = end_of_new(last, self._ids)
        if last > LAST_SEQUENCE:
            self._group, self.abandoned = [], True
            self._emit(Stop(END_OF_STREAM))
            return
        events = whole = self._group
        self._group = []
        if self.backlog.gathered_bytes > self._settings.frame_bytes:
            events = next(slices(events, event_bytes, self._settings.frame_bytes))
            self._group = whole[len(events) :]
        frame = encode_frame(self.generation, self._group_first, events, self.wall_ms)
        self._group_first = frame.last + 1
        self._framed = frame.last
        self.recent.add(frame)
        self.backlog.framed(frame.last, len(frame.data), sum(event_bytes(each) for each in self._group))
        self._emit(Persist(frame))

    def written(self, sequence: int) -> None:
        """The disk has everything up to ``sequence``: a frame of ours, or one of a former role of this node's."""
        self._replica.durable = sequence

    def advance(self, everywhere: int) -> None:
        """The lease holds and all up to ``everywhere`` is durable on every node that counts: apply and answer."""
        if everywhere <= self.commit:
            return
        self.commit = everywhere
        self.backlog.passed(everywhere)
        self._replica.apply(everywhere)
        while self._waiting and self._waiting[0][0] <= everywhere:
            self.answer(self._waiting.popleft()[1], None)

    def answer(self, done: Done, outcome: str | None) -> None:
        """Tell an outcome, unless the clients have been closed meanwhile: then nobody waits for it any more."""
        if self.serving:
            done(outcome)

    # -- Ledger

    def configure(self, step: Configure, done: Done) -> None:
        """A step of configuration; it gets the next id."""
        if self.at_end or self._config_id >= LAST_CONFIG_ID:
            done(self.at_end or END_OF_CONFIGURATION)
            return
        self._config_id += 1
        numbered = Configure(self._config_id, step.operation, step.name, step.arguments, step.terms)
        self._waiting.append((self.append(numbered), self._refusals.answer(self._config_id, done)))

    def publish(self, queues: Sequence[int], message: Message, done: Done | None) -> None:
        """A message outside transactions."""
        if (self.below_min_ready and done is not None) or self.at_end:
            if done is not None:
                done(self.refusal())
            return
        event = Publish(self._ids.next(), tuple(queues), message)
        sequence = self.append(event)
        self._additions.add(event.queues, place_of(sequence))
        if done is not None:
            self._waiting.append((sequence, done))

    def settle(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Messages leave a queue; settlements that follow each other share one event."""
        last = self._group[-1] if self._group else None
        room = SETTLED - len(entries)
        if isinstance(last, Settle) and (last.queue, last.reason) == (queue, reason) and len(last.entries) <= room:
            last.entries.extend(entries)
            self.backlog.settled(len(entries))
            return
        for first in range(0, len(entries), SETTLED):
            self.append(Settle(queue, list(entries[first : first + SETTLED]), int(reason)))

    def purge(self, queue: int, place: int, spared: Sequence[tuple[int, int]], done: Done) -> None:
        """Everything up to ``place`` but ``spared`` (place, replication id) leaves the queue."""
        self._waiting.append((self.append(purge_of(queue, place, spared)), done))

    def mark(self, queue: int, place: int) -> None:
        """Ask for leave to hand out messages up to ``place``."""
        self.append(Delivered(queue, place))

    def read(self, asked: Asked, then: Then) -> None:
        """Messages from the store, in a thread of its own."""
        self._emit(self.readings.begin(asked, then))
        self.wake()

    def begin(self, token: bytes | None = None) -> TransactionObserver:
        """The observer of a new transaction. Raises NameInUse, ValueError for its token."""
        return self._factory.begin(token)

    def is_open(self, token: bytes) -> bool:
        """Whether a transaction with this token may still be committed."""
        return self._factory.is_open(token)

    # -- TxSink: what observers do

    def in_use(self, name: Name) -> bool:
        """Whether no transaction may begin under this name."""
        return self._replica.contents.table.in_use(name)

    def tx_event(self, event: TxEvent) -> None:
        """Append an event of a tx-queue."""
        self.append(event)

    def tx_commit(self, tx: int, count: int, done: Done) -> None:
        """Close the tx-queue and prepare."""
        if self.abandoned:
            return
        if (refusal := self.refusal()) is not None:
            self.tx_rollback(tx)
            done(refusal)
        else:
            assert self.watcher is not None
            self._transactions.prepare(tx, count, self.watcher.participants(), done)
            self.watcher.closed(self._replica.buffers[tx])

    def tx_rollback(self, tx: int) -> None:
        """Abort. The answer need not wait: without a decision it can only end in an abort."""
        self.append(self._decision(tx, False, False))

    def decide(self, tx: int, commit: bool, done: Done | None, heuristic: bool = False) -> None:
        """The outcome gets its position; ``done`` is answered when that has passed the commit point."""
        sequence = self.append(self._decision(tx, commit, heuristic))
        if self.watcher:
            self.watcher.decided(tx, commit, sequence)
        if commit:
            self._additions.committed(self._replica.buffers[tx])
        if done is not None:
            self._waiting.append((sequence, done))

    # -- Stream: what branches need

    def when_passed(self, sequence: int, done: Done) -> None:
        """Answer when the commit point has passed this sequence, which nothing that waits stands behind."""
        if sequence > self.commit:
            self._waiting.append((sequence, done))
        else:
            self.answer(done, None)

    def refusal(self) -> str | None:
        """Why nothing new can be committed now."""
        return self._too_few() if self.below_min_ready else self.at_end

    # -- what backups and the record bring

    def cancel(self, tx: int, reason: str) -> None:
        """A participant cannot prepare this transaction."""
        self._transactions.cancel(tx, reason)
        self._branches.cancel(tx, reason)

    def lost_min_ready(self, lost: bool) -> None:
        """Fewer members are ready than ``min_ready``: what is not decided rolls back, what is decided waits."""
        if lost and not self.below_min_ready:
            self._transactions.cancel_all(self._too_few())
            self._branches.cancel_all(self._too_few())
        self.below_min_ready = lost

    # -- Applied: what has passed the commit point

    def configured(self, step: Configure, done: Configured) -> None:
        """Tell the broker."""
        self._tell("configured", step, done)
        if self.serving:
            self._refusals.applied(step.config_id, done.refusal)
            self._host.on_configured(step, done)

    def queue_deleted(self, queue: int) -> None:
        """Nobody holds anything of it any more."""
        if self.watcher:
            self.watcher.queue_deleted(queue)

    def enqueued(self, queue: int, place: int, rid: int, message: Message) -> None:
        """Tell the broker."""
        for listener in self.listeners:
            listener.enqueued(queue, place, rid, message)
        if self.serving:
            self._host.on_enqueued(queue, place, rid, message)

    def removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        """Tell the broker."""
        for listener in self.listeners:
            listener.removed(queue, entries, reason)
        if self.serving:
            self._host.on_removed(queue, entries, reason)

    def marked(self, queue: int, place: int) -> None:
        """Tell the broker."""
        self._tell("marked", queue, place)
        if self.serving:
            self._host.on_mark(queue, place)

    def purged(self, queue: int, place: int, spared: Sequence[int], count: int) -> None:
        """Tell the broker."""
        self._tell("purged", queue, place, spared, count)
        if self.serving:
            self._host.on_purged(queue, place, spared, count)

    def prepared(self, tx: int) -> None:
        """Every participant has prepared durably."""
        self._transactions.prepared(tx)

    def branch_prepared(self, buffer: DtxBuffer) -> None:
        """Every participant has prepared durably, to stay."""
        self._branches.prepared(buffer)

    def ended(self, buffer: TxBuffer, committed: bool) -> None:
        """The transaction has been applied to every queue here."""
        if isinstance(buffer, DtxBuffer) and buffer.stays:
            self._branches.ended(buffer, committed)

    # -- inside

    def _tell(self, call: str, *arguments: object) -> None:
        for listener in self.listeners:
            getattr(listener, call)(*arguments)

    def _decision(self, tx: int, commit: bool, heuristic: bool) -> TxDecision | DtxDecision:
        """The outcome of a transaction; one that has a name is remembered."""
        buffer = self._replica.buffers.get(tx)
        if buffer is None or buffer.name is None:
            return TxDecision(tx, commit)
        return DtxDecision(tx, commit, heuristic, self.wall_ms)

    def _too_few(self) -> str:
        return f"fewer than {self._settings.min_ready} nodes are ready, so nothing new can be committed"
