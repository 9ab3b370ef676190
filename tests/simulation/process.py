"""One node as a process: core, broker and store wired together as the shell does it, on virtual time.

Reports gather for a moment, then the turn settles the core and carries out its effects. A paused process does nothing
and finds everything that came meanwhile when it goes on; its clock has gone on as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker_plugin.embedded.broker import Broker
from broker_plugin.embedded.durable_queue import WindowLimits
from ha.coordination import CasConflict, CoordinationError, Record
from ha.node_core import NodeCore
from ha.replica import Replica
from ha.wire import Ack, Peer, decode
from tests.simulation.disk import Disk, SimStore
from txobserver.effects import (
    Acknowledge,
    CompareAndSet,
    LogLine,
    Persist,
    ReadLog,
    ReadRecord,
    ResetLog,
    Send,
    Stop,
    Truncate,
    WriteCheckpoint,
)
from txobserver.events import DtxPrepare, Event, Message, TxPrepare
from txobserver.ids import Position
from txobserver.store import StoreError

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

TICK = 0.03
GATHER = 0.001
WINDOW = WindowLimits(messages=8, bytes=4096)
"""Small, so that queues are read page by page"""


class WatchedReplica(Replica):
    """Says what is applied, and which transaction is closed."""

    def __init__(self, process: Process, *state: Any) -> None:
        self._arrived: deque[tuple[int, int, Event]] = deque()
        super().__init__(*state)
        self._process = process

    def _take(self, generation: int, sequence: int, event: Event) -> None:
        """As ever. What waits in a TxBuffer is applied in its place too, though nothing is to be done for it."""
        super()._take(generation, sequence, event)
        self._arrived.append((sequence, generation, event))

    def truncate(self, last: int) -> None:
        """As ever."""
        super().truncate(last)
        while self._arrived and self._arrived[-1][0] > last:
            self._arrived.pop()

    def begin_resync(self) -> None:
        """As ever."""
        super().begin_resync()
        self._arrived.clear()

    def append(self, generation: int, event: Event) -> int:
        """As ever."""
        if isinstance(event, TxPrepare | DtxPrepare):
            self._process.cluster.truth.closing(self._process, event)
        return super().append(generation, event)

    def apply(self, commit: int) -> None:
        """As ever."""
        due = []
        while self._arrived and self._arrived[0][0] <= commit:
            due.append(self._arrived.popleft())
        super().apply(commit)
        for sequence, generation, event in due:
            self._process.cluster.truth.applied(self._process, sequence, generation, event)


class WatchedBroker(Broker):
    """Says what it is given."""

    process: Process

    def on_enqueued(self, queue: int, place: int, rid: int, message: Message) -> None:
        """As ever."""
        self.process.cluster.truth.visible(self.process, queue, message.body.decode())
        super().on_enqueued(queue, place, rid, message)


class Process:
    """A running node. Raises StoreError when its store cannot be opened."""

    def __init__(self, cluster: Cluster, disk: Disk, offset: float, rate: float) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.disk = disk
        self.name = disk.member.node
        self.alive = True
        self.paused = False
        self.failed: str | None = None
        self.skipped = 0.0
        self._offset, self._rate = offset, rate
        self._chance = self.world.chance(f"process/{self.name}/{cluster.starts}")
        self._names = 0
        self._backlog: list[Callable[[], None]] = []
        self._turn_due = self._broker_due = False
        self._polled_at = -1.0
        self.store = SimStore(disk, retention=cluster.retention)
        replica = WatchedReplica(self, self.store.base, *self.store.loaded)
        for frame in self.store.suffix():
            replica.restore(frame)
        self.broker = WatchedBroker(self._broker_has_work, self._unique, WINDOW)
        self.broker.process = self
        self.core = NodeCore(cluster.name, disk.member, replica, self.broker, cluster.settings, self.store.first)
        self.core.wake = self._due
        self._after(self._chance.uniform(0, TICK), self._tick)

    # -- time

    def clock(self) -> float:
        """This machine's own monotonic seconds."""
        return self._offset + self.skipped + self._rate * self.world.now

    def pause(self) -> None:
        """SIGSTOP."""
        self.paused = True

    def go_on(self) -> None:
        """SIGCONT: everything that came meanwhile comes now, in order."""
        self.paused = False
        backlog, self._backlog = self._backlog, []
        for call in backlog:
            self._take(call)

    def end(self) -> None:
        """SIGKILL."""
        self.alive = False
        self.store.crash()

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        self.world.after(seconds, lambda: self._take(call))

    def _take(self, call: Callable[[], None]) -> None:
        if self.paused:
            self._backlog.append(call)
        elif self.alive:
            call()

    def arrives(self, call: Callable[[], None]) -> None:
        """Something from outside comes now (or when the process goes on)."""
        self._take(lambda: self.report(call))

    # -- turns

    def report(self, call: Callable[[], None], stored: bool = False) -> None:
        """Something happened: tell the core; a turn is due. ``stored``: it is a change of the record that was made."""
        if self.failed is None:
            clock = self.core.set_clock if stored else self.core.look_at_clock
            clock(self.clock(), int(self.world.now * 1000))
            call()
            self._due()

    def _due(self) -> None:
        if not self._turn_due:
            self._turn_due = True
            self._after(self._chance.uniform(0, GATHER), self._turn)

    def _broker_has_work(self) -> None:
        self._broker_due = True
        self._due()

    def _turn(self) -> None:
        self._turn_due = False
        if self.failed is not None:
            return
        self._set_clocks()
        if self._broker_due:
            self._broker_due = False
            self.broker.end_of_turn()
        self.core.settle()
        for effect in self.core.take_effects():
            _CARRY_OUT[type(effect)](self, effect)
        self.cluster.truth.turned(self)

    def _set_clocks(self) -> None:
        self.core.look_at_clock(self.clock(), int(self.world.now * 1000))

    def _tick(self) -> None:
        self._after(TICK, self._tick)
        self.report(self.core.tick)
        if self.core.keeper is None and self.clock() - self._polled_at >= self.cluster.settings.renew_every:
            self._read_record(ReadRecord())

    def _unique(self) -> str:
        self._names += 1
        return f"{self.name}{self.cluster.starts}-{self._names}"

    # -- what others bring

    def on_link(self, peer: str, up: bool) -> None:
        """The connection to a peer came up or went down."""
        self.arrives(lambda: self.core.on_link(peer, up))

    def on_message(self, peer: str, data: bytes) -> None:
        """A message of a peer."""
        self.arrives(lambda: self._receive(peer, decode(data)))

    def _receive(self, peer: str, message: Peer) -> None:
        if getattr(message, "generation", self.core.generation) >= self.core.generation:
            self.core.on_message(peer, message)
            return
        before = self._standing()
        self.core.on_message(peer, message)
        self.cluster.truth.stale(self, before, self._standing())

    def _standing(self) -> object:
        """What a message could change: the log, and at a primary how far each backup has got."""
        sessions = self.core.backups.sessions if self.core.backups else {}
        replies = dict(self.core._candidate._replies)
        return self.core.replica.tail, {n: (s.number, s.acknowledged) for n, s in sorted(sessions.items())}, replies

    # -- effects

    def _stored(self, then: Callable[[], None]) -> Callable[[StoreError | None], None]:
        def done(error: StoreError | None) -> None:
            if error is not None:
                text = str(error)
                self.arrives(lambda: self.core.on_store_error(text))
            else:
                self._take(then)

        return done

    def _acknowledge(self, then: Acknowledge | None) -> None:
        if then is not None:
            self.cluster.network.send(self, then.peer, Ack(then.generation, then.session, then.sequence))

    def _persist(self, effect: Persist) -> None:
        def then() -> None:
            self._acknowledge(effect.then)
            self.report(lambda: self.core.on_durable(effect.frame.last))

        self.store.append(effect.frame, self._stored(then))

    def _truncate(self, effect: Truncate) -> None:
        self.cluster.truth.undoing(self, effect.last)
        position = self.core.replica.position_of(effect.last)
        self.store.truncate(effect.last, position, self._stored(lambda: self._acknowledge(effect.then)))

    def _reset(self, effect: ResetLog) -> None:
        self.cluster.truth.undoing(self, 0)
        before = Position(effect.history[-1].generation if effect.history else 0, effect.following - 1)
        self.store.reset(before, self._stored(lambda: self.report(lambda: self.core.on_reset(effect))))

    def _checkpoint(self, effect: WriteCheckpoint) -> None:
        if effect.checkpoint.meta.resyncing:
            self.cluster.truth.undoing(self, 0)

        def then() -> None:
            self._acknowledge(effect.then)
            self.core.log_first = self.store.first
            self.report(self.core.on_checkpoint)

        self.store.checkpoint(effect.checkpoint, self._stored(then))

    def _send(self, effect: Send) -> None:
        self.cluster.network.send(self, effect.peer, effect.message)

    def _read_log(self, effect: ReadLog) -> None:
        def read() -> None:
            try:
                frames = self.store.read(effect.first, effect.max_bytes)
            except StoreError as error:
                self.world.say(self.name, f"cannot read its log: {error}")
                frames = []
            self.report(lambda: self.core.on_log_read(effect.peer, effect.session, frames))

        self._after(self.disk.latency(), read)

    def _read_record(self, effect: ReadRecord) -> None:
        self._polled_at = self.clock()

        def done(record: Record | None) -> None:
            self.arrives(lambda: self.core.on_record(record))

        self.cluster.coordination.read(self, done)

    def _compare_and_set(self, effect: CompareAndSet) -> None:
        keeper, record = self.core.keeper, effect.record
        if keeper is not None and isinstance(record, Record):
            for member in sorted(set(record.ready) - set(keeper.record.ready)):
                self.cluster.truth.granting(self, member)

        def done(outcome: Record | CasConflict | CoordinationError) -> None:
            if isinstance(outcome, Record):
                self._take(lambda: self.report(lambda: self.core.on_stored(effect, outcome), stored=True))
            elif isinstance(outcome, CasConflict):
                self.arrives(lambda: self.core.on_conflict(effect, outcome.current))
            else:
                self.arrives(lambda: self.core.on_cas_failed(effect))

        self.cluster.coordination.compare_and_set(self, effect.expected, effect.record, done)

    def _log(self, effect: LogLine) -> None:
        self.world.say(self.name, f"generation={self.core.generation} {effect.text}")

    def _stop(self, effect: Stop) -> None:
        self.world.say(self.name, f"stops: {effect.reason}")
        self.failed = effect.reason
        self.world.after(0.3, lambda: self.cluster.ended(self))


_CARRY_OUT: dict[type, Callable[[Process, Any], None]] = {
    Persist: Process._persist,
    Truncate: Process._truncate,
    ResetLog: Process._reset,
    WriteCheckpoint: Process._checkpoint,
    Send: Process._send,
    ReadLog: Process._read_log,
    ReadRecord: Process._read_record,
    CompareAndSet: Process._compare_and_set,
    LogLine: Process._log,
    Stop: Process._stop,
}
