"""NodeCore: one node's part in the cluster, pure. The shell reports, the core answers with effects and Host calls.

The node is at any time one of: waiting (no record is known), a backup of the record's primary, a candidate (a backup
whose record stands still), or the primary. The record decides which; ``_adopt`` is the only place where that changes.

Use: set ``now`` (seconds, a clock that counts suspension) and ``wall_ms``, call what happened, then ``settle()``, then
carry out ``take_effects()`` in order. ``wake`` is called when events begin to gather: ``settle`` is due soon.
"""

from __future__ import annotations

from collections.abc import Callable

from ha.apply.checkpointing import Checkpointing
from ha.apply.record_gate import NO_RECORD, RecordGate
from ha.apply.replica import Replica
from ha.backup.backup import Backup
from ha.effects import CompareAndSet, Effect, LogLine, ReadQueue, ReadRecord, ResetLog, Send, Stop
from ha.membership.candidate import Candidate
from ha.membership.node_state import ACTIVE, CATCHUP, NODE_TABLE, READY, RECOVERING
from ha.membership.record import Record
from ha.membership.record_keeper import RecordKeeper
from ha.messages import wire
from ha.primary.backups import Backups
from ha.primary.handover import Handover
from ha.primary.primary import Primary
from ha.settings import Settings
from txobserver.frames import Frame
from txobserver.ids import Member
from txobserver.ports.ledger import Host
from txobserver.ports.store import Page


class NodeCore:
    """The state machines of one node, wired together."""

    def __init__(
        self,
        member: Member,
        replica: Replica,
        host: Host,
        settings: Settings,
        log_first: int,
        cluster_id: str = "",
        first_session: int = 0,
    ) -> None:
        self.now = 0.0
        self.wall_ms = 0
        self.wake: Callable[[], None] = lambda: None
        self.state = NODE_TABLE.start
        self.generation, self.log_first = replica.tail.generation, log_first
        self.replica = replica
        self.primary: Primary | None = None
        self.backups: Backups | None = None
        self.keeper: RecordKeeper | None = None  # these three come and go together
        self.backup: Backup | None = None
        self.linked: set[str] = set()
        self.failed: str | None = None
        self._gate = RecordGate(cluster_id, replica, self._emit)
        self._member = member
        self._host = host
        self._settings = settings
        self._effects: list[Effect] = []
        self._candidate = Candidate(member, settings, self._emit)
        self._checkpointing = Checkpointing(replica, settings, self._emit)
        self._sessions = first_session
        self._handover = Handover(host, settings, self._emit)
        replica.contents.table.outcomes.keep(settings.outcomes_kept, settings.outcome_seconds)

    # -- what the shell calls

    def take_effects(self) -> list[Effect]:
        """The effects since the last call, to be carried out in order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def record(self) -> Record | None:
        """The coordination record as this node knows it."""
        return self.keeper.record if self.keeper else self._candidate.record

    def overslept(self, now: float) -> bool:
        """Whether this node is primary still, and its lease may be another's by now."""
        return self.keeper is not None and not self.failed and self.keeper.expired(now)

    def set_clock(self, now: float, wall_ms: int) -> None:
        """The time, to be told before ``on_stored``: a renewal that was made in time counts, however late one hears."""
        self.now, self.wall_ms = now, wall_ms

    def look_at_clock(self, now: float, wall_ms: int) -> None:
        """The time, to be told before anything else: who has overslept answers nothing that came meanwhile."""
        self.set_clock(now, wall_ms)
        if self.overslept(now):
            self._candidate.access.failed(now)
            self._step_down("the lease could not be renewed in time")

    def tick(self) -> None:
        """Time has passed."""
        if self.keeper:
            self.keeper.send_if_due(self.now)
        if self.failed:
            return
        self._checkpointing.tick(self.now)
        if self.keeper and self.backups and self.primary:
            self.backups.tick(self.now)
            self._handover.tick(self.primary, self.backups, self.keeper, self.replica, self.now)
            return
        if self._gate.refused:
            return
        self._candidate.tick(self.replica.tail, self.linked, self.now, self.replica.whole)
        if backup := self.backup:
            if backup.silent(self.now):
                self._emit(LogLine(f"{backup.primary} is silent, asking to be attached again"))
                self._detached(retry_at_once=True)
            before, self._sessions = backup.attached, self._sessions + 1
            backup.tick(backup.primary in self.linked, self._sessions, self.now)
            if before and not backup.attached:
                self._detached(retry_at_once=False)

    def settle(self) -> None:
        """Draw the consequences: move the commit point, write what gathered, send what is durable."""
        primary, backups, keeper = self.primary, self.backups, self.keeper
        if primary is None or backups is None or keeper is None or self.failed:
            return
        primary.writer.wall_ms = self.wall_ms
        too_few = len(keeper.record.ready) < self._settings.min_ready
        primary.decisions.lost_min_ready(too_few and primary.point.serving)
        if keeper.holds(self.now) and not primary.decisions.below_min_ready:
            primary.advance(backups.durable_everywhere())
            if self.state == RECOVERING and primary.in_step:
                self._activate()
        primary.flush()
        backups.pump(self.now)
        backups.grant(self.now)

    def on_link(self, node: str, up: bool) -> None:
        """The connection to a peer came up or went down."""
        if up:
            self.linked.add(node)
            return
        self.linked.discard(node)
        if self.backups:
            self.backups.detach(node, self.now)
        if self.backup and self.backup.primary == node:
            self._detached(retry_at_once=True)

    def on_durable(self, sequence: int) -> None:
        """The log is synced up to there."""
        if self.primary:
            self.primary.written(sequence)
        else:
            self.replica.durable = max(self.replica.durable, min(sequence, self.replica.tail.sequence))
            if self.backup:
                self.backup.written(sequence)

    def on_store_error(self, reason: str) -> None:
        """The store failed. Nothing is acknowledged any more; the node leaves the ready set and ends."""
        if self.failed:
            return
        self.failed = reason
        if self.backup and self.backup.attached:
            self.backup.store_failed(reason)
        if self.keeper and self.primary and self.backups:
            self._host.on_inactive(reason)
            self.keeper.release("", self.now, self.backups.holders(self.primary.point.sequence))
        self._emit(LogLine(f"the store failed: {reason}"))
        self._emit(Stop(reason))

    def on_checkpoint(self) -> None:
        """The queue state has been brought forward."""
        self._checkpointing.written()

    def on_reset(self, asked: ResetLog) -> None:
        """The log has been begun anew."""
        if self.backup and (sequence := self.backup.log_reset(asked)) is not None:
            self.log_first = sequence + 1

    def on_record(self, record: Record | None) -> None:
        """The record was read."""
        if self.failed or self.keeper:
            return
        if record is None:
            self._emit(Stop(NO_RECORD))
        elif self._gate.admits(record, self._candidate.record) and self._candidate.observe(record, self.now):
            self._adopt(record)

    @property
    def waits_for_operator(self) -> str | None:
        """Why this node stays out of the cluster until an operator decides, in one sentence; None if it does not."""
        return self._gate.refused or (self.backup.refusal if self.backup else None)

    def on_stored(self, asked: CompareAndSet, record: Record) -> None:
        """Our compare-and-set has been made, and synced. One that was sent in a role given up since is only read."""
        if self.keeper and self.backups and self.keeper.in_flight is asked:
            before = self.keeper.record.ready
            self.keeper.stored(record)
            self._candidate.access.answered(not self.keeper.expired(self.now), self.now)
            self.backups.record_stored(before, self.log_first, self.now)
            if self.keeper.released:
                self._step_down("the lease was handed over")
        elif self._candidate.in_flight is asked and not self.failed:
            self._candidate.settled(self.now, made=True)
            if self._gate.admits_own(record, self._candidate.record):
                self._candidate.observe(record, self.now)
                self._promoted(record, self._candidate.sent_at)
        else:
            self.on_record(record)

    def on_conflict(self, asked: CompareAndSet, current: Record | None) -> None:
        """Our compare-and-set found another version."""
        if self.keeper and self.backups and self.keeper.in_flight is asked:
            before = self.keeper.record.ready
            self.keeper.conflict(current)
            self._candidate.access.answered(not self.keeper.expired(self.now), self.now)
            if self.keeper.lost or self.keeper.released:  # by a change of ours that was thought lost
                self._step_down(self.keeper.farewell(current))
            else:
                self.backups.record_stored(before, self.log_first, self.now)
        elif self._candidate.in_flight is asked:
            self._candidate.settled(self.now)
        if current:
            self.on_record(current)

    def on_cas_failed(self, asked: CompareAndSet) -> None:
        """The outcome of our compare-and-set is unknown."""
        if self.keeper and self.keeper.in_flight is asked:
            self._candidate.access.failed(self.now)
            self.keeper.failed()
        elif self._candidate.in_flight is asked:
            self._candidate.settled(self.now, unknown=True)

    def on_log_read(self, node: str, session: int, frames: list[Frame]) -> None:
        """Frames that ReadLog asked for."""
        if self.backups:
            self.backups.log_read(node, session, frames, self.now)

    def on_queue_read(self, asked: ReadQueue, page: Page) -> None:
        """Messages that ReadQueue asked for; a store that has failed since answers nobody."""
        if self.primary and not self.failed:
            self.primary.readings.came(asked, page)

    def on_message(self, node: str, message: wire.Peer) -> None:
        """A message of a peer. One of a lower generation is refused."""
        if self.failed:
            return
        generation = getattr(message, "generation", self.generation)
        if generation < self.generation:
            if not isinstance(message, wire.Refused):
                refused = wire.Refused(self.generation, getattr(message, "session", 0), "lower generation")
                self._emit(Send(node, refused))
            return
        if generation > self.generation and not self.primary:
            self._candidate.heard(generation)
            self._emit(ReadRecord())
        if isinstance(message, wire.Probe):
            may_stand = self.replica.whole and not self._gate.refused
            tail = self._candidate.precedence(self.replica.tail, may_stand, self.now)
            self._emit(Send(node, wire.ProbeReply(generation, message.round, self._member, tail)))
        elif isinstance(message, wire.ProbeReply):
            self._candidate.reply(message)
        elif self.primary:
            self._to_primary(node, message)
        elif self.backup and (node, generation) == (self.backup.primary, self.backup.generation):
            self._to_backup(self.backup, message)

    def promote(self, accept_data_loss: bool, version: int = 0) -> str | None:
        """An operator wants this node to be primary; returns why not, if it cannot be.

        The loss of data is accepted for one version of the record: ``version``, or 0 for the one that is known here.
        """
        record = self.record
        if self.primary:
            return "this node is the primary already"
        if record is None or self._gate.refused:
            return self._gate.refused or "the coordination record has not been read yet"
        if (refused := self._candidate.refuses(accept_data_loss, version)) is not None:
            return refused
        if accept_data_loss:
            if not self.replica.whole:
                return "this store is being overwritten by a snapshot and holds no whole state; choose another node"
            self._candidate.force(self.linked, self.now)
        elif self.state == READY:
            assert self.backup
            if (refused := self._candidate.cannot_succeed(self.now)) is not None:
                return refused
            self._emit(Send(self.backup.primary, wire.Handover(self.generation, self.backup.session)))
        else:
            return "only a ready backup can take over without losing data; see --accept-data-loss"
        return None

    def resign(self, reason: str) -> None:
        """This node is about to stop: it stands no more, and a primary closes its clients and gives the lease up."""
        self._candidate.retire()
        if self.primary and self.keeper and not self.failed:
            self._handover.begin(self.primary, "", f"resigning: {reason}")
            self.keeper.release("", self.now)

    # -- messages by role

    def _to_primary(self, node: str, message: wire.Peer) -> None:
        assert self.primary and self.backups
        if message.generation > self.generation:  # type: ignore[union-attr]
            return  # the record will tell us soon
        if isinstance(message, wire.Handover):
            ready = self.backups.may_succeed(node, message.session)
            self._handover.asked(self.primary, node, ready, self.state == ACTIVE)
        else:
            self.backups.take(node, message, self.log_first, self.now)

    def _to_backup(self, backup: Backup, message: wire.Peer) -> None:
        before = backup.attached
        if not (self._candidate.proposing and isinstance(message, wire.Follow | wire.ResyncBegin)):
            backup.take(message, self.now)
        if backup.attached and not before:
            self._move("attached")
            listed = self._candidate.record and self._member in self._candidate.record.ready
            if listed and isinstance(message, wire.Follow):
                self._move("granted")
        elif before and not backup.attached:
            self._detached(retry_at_once=False)
        elif isinstance(message, wire.Granted):
            if backup.attached and message.session == backup.session and self.state == CATCHUP:
                self._move("granted")
        elif isinstance(message, wire.Refused) and message.session in (wire.NO_ATTACHMENT, backup.session):
            self._emit(LogLine(f"{backup.primary} refused: {message.reason}"))
            if message.session:
                self._detached(retry_at_once=False)

    # -- changes of role

    def _adopt(self, record: Record) -> None:
        """Another version of the record: follow its primary."""
        if self.state == NODE_TABLE.start:
            self._move("record read")
        newer = record.generation > self.generation
        self.generation = max(self.generation, record.generation)
        current = self.backup
        if record.primary is None or record.primary == self._member:
            if current:
                self._detached(retry_at_once=True)
            self.backup = None
        elif current is None or newer or current.primary != record.primary.node:
            if current:
                self._detached(retry_at_once=True)
            self._emit(LogLine(f"following {record.primary.node}"))
            node, me, demand = record.primary.node, self._member, self._checkpointing.demand
            common = (self.replica, self._settings, self._emit, demand, record.loss_accepted)
            self.backup = Backup(node, record.generation, me, *common)
        elif self.state == READY and self._member not in record.ready:
            self._detached(retry_at_once=True)
        elif self.state == CATCHUP and self._member in record.ready:
            self._move("granted")

    def _promoted(self, record: Record, sent_at: float) -> None:
        assert self.replica.whole, "who is being overwritten neither proposes itself nor is overwritten meanwhile"
        self.backup, self.generation = None, record.generation
        self._move("promoted")
        me, settings, emit = self._member, self._settings, self._emit
        self.keeper = RecordKeeper(record, sent_at, me, settings, emit)
        self.primary = Primary(me.node, record.generation, self.replica, self._host, settings, emit)
        self.primary.writer.wake, self.primary.writer.wall_ms = self.wake, self.wall_ms
        self.backups = Backups(self.primary, self.replica, self.keeper, settings, self.linked, emit, self.now)
        self.primary.start([m.node for m in record.ready])
        for node in sorted(self.linked):
            self._emit(Send(node, wire.Promoted(self.generation)))

    def _activate(self) -> None:
        assert self.primary
        self._move("in step")
        self.primary.serve(self.replica.contents)

    def _step_down(self, reason: str) -> None:
        """Acknowledge nothing more, close the clients, become a backup again."""
        assert self.primary and self.keeper
        self._emit(LogLine(f"stepping down: {reason}"))
        self._host.on_inactive(reason)
        record = self.keeper.record
        self.primary.abandon()
        self.primary = self.backups = self.keeper = None
        self._handover.end()
        self._move("stepped down")
        self._candidate.observe(record, self.now)
        self._adopt(self._candidate.record or record)

    def _detached(self, retry_at_once: bool) -> None:
        if self.backup:
            self.backup.detach(retry_at_once)
        if self.state in (CATCHUP, READY):
            self._move("detached")

    def _move(self, event: str) -> None:
        self.state = NODE_TABLE.next(self.state, event)
        self._emit(LogLine(f"state {self.state}"))

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)
