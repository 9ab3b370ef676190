"""NodeCore: one node's part in the cluster, pure. The shell reports, the core answers with effects and Host calls.

The node has one role at any time (``ha.roles``): it waits, follows the record's primary, or leads. The record decides
which; ``_adopt``, ``_promoted`` and ``_step_down`` are the only places where the role changes.

Use: tell the time (``look_at_clock``), call what happened, then ``settle()``, then carry out ``take_effects()``.
``wake`` is called when events begin to gather: ``settle`` is due soon.
"""

from __future__ import annotations

from collections.abc import Collection

from ha.apply.record_gate import NO_RECORD
from ha.apply.replica import Replica
from ha.effects import CompareAndSet, Effect, LogLine, ReadQueue, ReadRecord, ResetLog, Send, Stop
from ha.invariants import NodeChecks
from ha.log_events import StoreFailed
from ha.membership.belonging import is_member, objection_to
from ha.membership.member_changes import Told
from ha.membership.members import MemberChange
from ha.membership.node_state import ACTIVE, CATCHUP, NODE_TABLE, READY
from ha.membership.record import Record
from ha.messages.attaching import AttachmentRefused
from ha.messages.beats import Beat
from ha.messages.calls import DeskAnswer, DeskRequest
from ha.messages.election import HandoverRefused, Outdated, Probe, ProbeReply
from ha.messages.member_asks import MemberAsk, MemberTold
from ha.messages.wire import Peer
from ha.node import NO_FEATURES, Node
from ha.outside import Outside
from ha.role import Role, Waiting
from ha.roles import Following, Leading
from ha.settings import Settings
from txobserver.calls import CALLS_FEATURE, LocalCalls
from txobserver.events import Configure
from txobserver.frames import Frame
from txobserver.ids import Member, Position
from txobserver.invariants import CHECKS
from txobserver.ports.ledger import Done, Host
from txobserver.ports.store import Page

ROUNDS_OF_CALLS = 4
"""How often in a turn a primary and its own desk answer each other; what is left comes in the next."""


class NodeCore(Node):
    """What a shell calls. ``role``: what the node is now.

    Many methods: one for each thing that the shell reports.
    """

    def __init__(
        self,
        member: Member,
        replica: Replica,
        host: Host,
        settings: Settings,
        log_first: int,
        cluster_id: str = "",
        first_session: int = 0,
        local_calls: LocalCalls | None = None,
    ) -> None:
        super().__init__(member, replica, host, settings, log_first, cluster_id, first_session, local_calls)
        self.role: Role = Waiting(self)
        self._checks = NodeChecks(self)
        replica.contents.table.outcomes.keep(settings.outcomes_kept, settings.outcome_seconds)

    @property
    def leading(self) -> Leading | None:
        """The parts of a primary, if this node is one."""
        return self.role if isinstance(self.role, Leading) else None

    @property
    def following(self) -> Following | None:
        """The parts of a backup, if this node is one."""
        return self.role if isinstance(self.role, Following) else None

    @property
    def record(self) -> Record | None:
        """The coordination record as this node knows it."""
        leading = self.leading
        return leading.keeper.record if leading else self.candidate.record

    @property
    def waits_for_operator(self) -> str | None:
        """Why this node stays out of the cluster until an operator decides, in one sentence; None if it does not."""
        return self.gate.refused or self.role.refusal

    def take_effects(self) -> list[Effect]:
        """The effects since the last call, to be carried out in order: the end of a turn.

        Raises InvariantBroken where invariants are checked (``txobserver.invariants``).
        """
        effects = super().take_effects()
        if CHECKS.on:
            self._checks.check(self.role, effects)
        return effects

    # -- time

    def overslept(self, now: float) -> bool:
        """Whether this node is primary still, and its lease may be another's by now."""
        leading = self.leading
        return leading is not None and not self.failed and leading.keeper.expired(now)

    def set_clock(self, now: float, wall_ms: int) -> None:
        """The time, to be told before ``on_stored``: a renewal that was made in time counts, however late one hears."""
        self.now, self.wall_ms = now, wall_ms

    def look_at_clock(self, now: float, wall_ms: int) -> None:
        """The time, to be told before anything else: who has overslept answers nothing that came meanwhile."""
        self.set_clock(now, wall_ms)
        if self.overslept(now):
            self.candidate.access.failed(now)
            self._step_down("the lease could not be renewed in time")

    def tick(self) -> None:
        """Time has passed."""
        if leading := self.leading:
            leading.keeper.send_if_due(self.now)
        if not self.failed:
            for peer, heard_at in self.beats.tick(self.generation, self.now):
                self._unlinked(peer, heard_at)
            self.checkpointing.tick(self.now)
            if self.now < self.look_until and not self.leading:
                self.emit(ReadRecord())
            self.role.tick()

    def settle(self) -> None:
        """Draw the consequences: move the commit point, apply, write what gathered, send what is durable."""
        if not self.failed:
            self._look_at_calls()  # before the group is written that takes what is appended for them
            self.role.settle()
            self.relay.settle()
        self.feed.tell()
        self.replica.contents.leftovers.go_on()

    # -- peers

    def on_link(self, node: str, up: bool, features: frozenset[str] = NO_FEATURES) -> None:
        """The connection to a peer came up or went down; ``features`` are those that both sides know."""
        if up:
            self.linked.add(node)
            self.features[node] = features
            self.gone_since.pop(node, None)
            self.lease_length.linked(node, features)
            self.beats.up(node, self.generation, self.now)
        else:
            self._unlinked(node, self.beats.down(node, self.now))

    def _unlinked(self, node: str, since: float) -> None:
        """It cannot be reached. Where a silent link was closed this is told twice, and the first time counts."""
        self.linked.discard(node)
        self.lease_length.unlinked(node, self.features.pop(node, NO_FEATURES), since)
        since = self.gone_since.setdefault(node, since)
        if (following := self.following) and following.backup.primary == node:
            self.look(since)
        self.role.unlinked(node, since)

    def on_heard(self, peers: Collection[str]) -> None:
        """Something has come from these peers since the last tick, be it in the middle of a message."""
        self.beats.heard(peers, self.now)

    def on_message(self, node: str, message: Peer) -> None:
        """A message of a peer. One of a lower generation is refused."""
        if self.failed:
            return
        if isinstance(message, Beat):  # it is about the link, whatever its sender knows of generations
            self.beats.told(node, message)
        generation = message.generation
        if generation < self.generation:
            if not isinstance(message, AttachmentRefused | Outdated | HandoverRefused):
                self.emit(Send(node, Outdated(self.generation)))
            return
        if generation > self.generation:
            self.candidate.heard(generation)
            if not self.leading:
                self.emit(ReadRecord())
        if not is_member(self.record, node) or isinstance(self.role, Outside):
            return  # what a node says that was removed is of no account, whatever it was; it reads the record itself
        if isinstance(message, Beat):
            return
        if isinstance(message, Probe):
            self.answer_probe(node, message, self._log_end())
        elif isinstance(message, ProbeReply):
            self.candidate.reply(message)
            self._stand_at_once()
        elif isinstance(message, MemberAsk):
            if generation == self.generation and (leading := self.leading):
                leading.members.asked(node, message, self.state == ACTIVE, self.now)
        elif isinstance(message, MemberTold):
            self.relay.members.answered(message)
        elif isinstance(message, DeskAnswer):
            if generation == self.generation and node == self.role.desk_at:
                self.calls.take(message)
        else:
            self.role.take(node, message)

    def _log_end(self) -> Position:
        """What a primary has gathered and not written is forgotten at its end (``probed_in_the_turn_of_its_end``)."""
        replica, leading = self.replica, self.leading
        return replica.position_of(leading.primary.writer.log_end) if leading else replica.tail

    # -- the store

    def on_durable(self, sequence: int) -> None:
        """The log is synced up to there."""
        self.role.written(sequence)

    def on_store_error(self, reason: str) -> None:
        """The store failed. Nothing is acknowledged any more; the node leaves the ready set and ends."""
        if self.failed:
            return
        self.failed = reason
        self.role.store_failed(reason)
        self.relay.fail()
        self.emit(LogLine(StoreFailed(reason)))
        self.emit(Stop(reason))

    def on_checkpoint(self) -> None:
        """The queue state has been brought forward."""
        self.checkpointing.written()

    def on_reset(self, asked: ResetLog) -> None:
        """The log has been begun anew."""
        if (sequence := self.role.log_reset(asked)) is not None:
            self.log_first = sequence + 1

    def on_log_read(self, node: str, session: int, frames: list[Frame]) -> None:
        """Frames that ReadLog asked for."""
        if leading := self.leading:
            leading.backups.log_read(node, session, frames, self.now)

    def on_queue_read(self, asked: ReadQueue, page: Page) -> None:
        """Messages that ReadQueue asked for; a store that has failed since answers no reading."""
        if (leading := self.leading) and not self.failed:
            leading.primary.readings.came(asked, page)

    # -- cluster calls

    def on_action(self, number: int, error: str | None) -> None:
        """An action has returned; ``error``: what it failed with."""
        self.calls.hands.ran(number, error)

    def on_action_read(self, number: int, arguments: bytes | None, error: str) -> None:
        """These arguments are in force; None: they could not be read, for this reason."""
        self.calls.hands.has_read(number, arguments, error)

    def on_calls_kept(self, local: LocalCalls) -> None:
        """This is durable."""
        self.calls.hands.kept(local)

    def _look_at_calls(self) -> None:
        """Go on with calls, and take what is asked of the primary to it: to a desk of this node's own at once."""
        calls, leading = self.calls, self.leading
        if calls.idle:  # as nearly always, and turns are many
            if leading is not None:
                leading.desk.turn(self.now, self.state == ACTIVE)
            return
        for _ in range(ROUNDS_OF_CALLS):
            calls.turn(self.role.standing())
            requests, calls.outbox[:] = list(calls.outbox), ()
            for request in requests:
                self._take_to_desk(request)
            if leading is None or not (leading.desk.turn(self.now, self.state == ACTIVE) or requests):
                return

    def _take_to_desk(self, request: DeskRequest) -> None:
        desk_at = self.role.desk_at
        if self.leading is not None:
            self.leading.desk.take(desk_at, request)
        elif CALLS_FEATURE in self.features.get(desk_at, NO_FEATURES):
            self.emit(Send(desk_at, request))

    # -- the coordination record

    def on_record(self, record: Record | None) -> None:
        """The record was read."""
        if self.failed or self.leading:
            return
        if record is None:
            self.emit(Stop(NO_RECORD))
        elif self.gate.admits(record, self.candidate.record) and self.candidate.observe(record, self.now):
            self._adopt(record)
            self._stand_at_once()

    def on_stored(self, asked: CompareAndSet, record: Record) -> None:
        """Our compare-and-set has been made, and synced. One that was sent in a role given up since is only read."""
        if leading := self._asked_for(asked):
            if (over := leading.stored(record)) is not None:
                self._step_down(over)
        elif self.candidate.in_flight is asked and not self.failed:
            self.candidate.settled(self.now, made=True)
            if self.gate.admits_own(record, self.candidate.record):
                self.candidate.observe(record, self.now)
                self._promoted(record, self.candidate.sent_at)
        else:
            self.on_record(record)

    def on_conflict(self, asked: CompareAndSet, current: Record | None) -> None:
        """Our compare-and-set found another version."""
        if leading := self._asked_for(asked):
            if (over := leading.conflict(current)) is not None:
                self._step_down(over)
        elif self.candidate.in_flight is asked:
            self.candidate.settled(self.now)
        if current:
            self.on_record(current)

    def on_cas_failed(self, asked: CompareAndSet) -> None:
        """The outcome of our compare-and-set is unknown."""
        if leading := self._asked_for(asked):
            leading.cas_failed()
        elif self.candidate.in_flight is asked:
            self.candidate.settled(self.now, unknown=True)

    def _asked_for(self, asked: CompareAndSet) -> Leading | None:
        """The role of a primary, if it is the one that asked for this."""
        leading = self.leading
        return leading if leading and leading.keeper.in_flight is asked else None

    # -- operators

    def promote(self, accept_data_loss: bool, version: int = 0) -> str | None:
        """An operator wants this node to be primary; returns why not, if it cannot be.

        The loss of data is accepted for one version of the record: ``version``, or 0 for the one that is known here.
        """
        return self.role.refuses_promotion(accept_data_loss, version)

    def configure(self, step: Configure, done: Done) -> None:
        """An operator asks at this node for a step of ``ha.relay.RELAYED``, which the primary appends.

        ``done`` is always called in the end: with None, the reason of a refusal, or that the outcome is not known.
        """
        self.role.configure(step, done)

    def change_members(self, change: MemberChange, told: Told) -> None:
        """An operator asks here for a change of the members, and is ``told`` in the end as by ``configure``."""
        if (leading := self.leading) is not None:
            leading.members.ask(change, self.state == ACTIVE, self.now, told)
        else:
            at = self.role.desk_at
            self.relay.members.ask(at, self.features.get(at, NO_FEATURES), self.generation, change, told)

    def resign(self, reason: str) -> None:
        """This node is about to stop: it stands no more, and a primary closes its clients and gives the lease up."""
        self.candidate.retire()
        self.role.resign(reason)

    def _stand_at_once(self) -> None:
        """The lease has been given up, and clients wait: the next look at the clock is not waited for."""
        if not self.leading and self.record is not None and self.record.released:
            self.role.tick()

    # -- changes of role

    def _adopt(self, record: Record) -> None:
        """Another version of the record: follow its primary."""
        if self.state == NODE_TABLE.start:
            self.move("record read")
        newer = record.generation > self.generation
        self.generation = max(self.generation, record.generation)
        current = self.following
        if (why := objection_to(record, self.member)) is not None:
            self.relay.members.left(self.member.node)
            self.role.detached(retry_at_once=True)
            if not (isinstance(self.role, Outside) and self.role.why == why):
                self.role = Outside(self, why)
        elif record.primary is None or record.primary == self.member:
            self.role.detached(retry_at_once=True)
            self.role = Waiting(self)
        elif current is None or newer or current.backup.primary != record.primary.node:
            self.role.detached(retry_at_once=True)
            self.role = Following(self, record, record.primary.node)
        elif self.state == READY and self.member not in record.ready:
            current.detached(retry_at_once=True)
        elif self.state == CATCHUP and self.member in record.ready and self.replica.whole:
            self.move("granted")

    def _promoted(self, record: Record, sent_at: float) -> None:
        assert self.replica.whole, "who is being overwritten neither proposes itself nor is overwritten meanwhile"
        self.generation = record.generation
        self.relay.lost()
        self.ask_no_primary()
        self.move("promoted")
        self.role = Leading(self, record, sent_at)

    def _step_down(self, reason: str) -> None:
        """Acknowledge nothing more, close the clients, become a backup again."""
        leading = self.leading
        assert leading
        record = leading.step_down(reason)
        self.role = Waiting(self)
        self.move("stepped down")
        self.candidate.observe(record, self.now)
        self._adopt(self.candidate.record or record)
