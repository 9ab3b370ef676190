"""The roles of a node, as types: Following (a backup), Leading (the primary); ``ha.role`` has Waiting.

Each has just the parts that exist in it, and answers the same reports. A role never changes itself: what calls for
another one is returned as a reason, and ``ha.core.NodeCore`` makes the change.
"""

from __future__ import annotations

from ha.backup.backup import Backup
from ha.calls.desk import TicketDesk
from ha.calls.standing import CallsStanding
from ha.effects import LogLine, ResetLog, Send
from ha.log_events import FollowingPrimary, PrimarySilent, RefusedByPrimary, SteppingDown
from ha.membership.belonging import needed
from ha.membership.node_state import ACTIVE, CATCHUP, READY, RECOVERING
from ha.membership.record import Record
from ha.membership.record_keeper import RecordKeeper
from ha.messages import election
from ha.messages.attaching import AttachmentRefused, Follow, Granted
from ha.messages.calls import DeskAnswer, DeskRequest
from ha.messages.copying import ResyncBegin
from ha.messages.steps import StepAsk, StepTold
from ha.messages.wire import Peer
from ha.node import HandedOver, Node
from ha.primary.attachments import Attachments
from ha.primary.backups import Backups
from ha.primary.fanout import Star
from ha.primary.handover import Handover, take_out_who_stops
from ha.primary.member_desk import MemberDesk
from ha.primary.primary import Primary
from ha.refusals import NO_PRIMARY, NOT_ACTIVE
from ha.role import Role
from txobserver.access import USERS_FEATURE
from txobserver.events import Configure
from txobserver.ids import Member
from txobserver.ports.ledger import Done
from txobserver.state.applied_content import AppliedContent


class Following(Role):
    """A backup of the record's primary."""

    def __init__(self, node: Node, record: Record, primary: str) -> None:
        super().__init__(node)
        node.emit(LogLine(FollowingPrimary(primary)))
        demand = node.checkpointing.demand
        common = (node.replica, node.settings, node.emit, demand, record.loss_accepted)
        self.backup = Backup(primary, record.generation, node.member, *common)

    @property
    def refusal(self) -> str | None:
        """Why this node refuses to be overwritten."""
        return self.backup.refusal

    @property
    def desk_at(self) -> str:
        """The primary's."""
        return self.backup.primary if self.backup.attached else ""

    def standing(self) -> CallsStanding:
        """As a backup."""
        node = self.node
        return CallsStanding(node.now, node.generation, self.backup.session, self.desk_at or None, node.state == READY)

    def tick_admitted(self) -> None:
        """Time has passed: stand for primary, ask to be attached, or speak.

        While a change of the record that this node has proposed may still land it takes no answer, and does not ask.
        """
        super().tick_admitted()
        node, backup = self.node, self.backup
        if backup.silent(node.now) and not node.beats.in_a_message(backup.primary, node.now):
            node.emit(LogLine(PrimarySilent(backup.primary)))
            self.detached(retry_at_once=True)
        before, node.sessions = backup.attached, node.sessions + 1
        may_ask = backup.primary in node.linked and not node.candidate.proposing
        backup.tick(may_ask, node.sessions, node.now)
        if before and not backup.attached:
            self.detached(retry_at_once=False)

    def settle(self) -> None:
        """The turn ends: apply more of what has passed the commit point, if a turn had not room for all of it."""
        self.backup.turn()
        if self.backup.due:
            self.node.wake()

    def unlinked(self, peer: str, since: float) -> None:
        """The primary may be the one that is gone."""
        if self.backup.primary == peer:
            self.detached(retry_at_once=True)

    def detached(self, retry_at_once: bool) -> None:
        """The attachment has ended, here as well."""
        self.backup.detach(retry_at_once)
        self.node.relay.lost()
        if self.node.state in (CATCHUP, READY):
            self.node.move("detached")

    def written(self, sequence: int) -> None:
        """The log is synced up to there: apply what has passed the commit point."""
        super().written(sequence)
        self.backup.written(sequence)

    def store_failed(self, reason: str) -> None:
        """Vote against what is undecided, and leave the ready set."""
        if self.backup.attached:
            self.backup.store_failed(reason)

    def log_reset(self, asked: ResetLog) -> int | None:
        """The snapshot may be made durable."""
        return self.backup.log_reset(asked)

    def take(self, peer: str, message: Peer) -> None:
        """A message of the primary; what others say to a backup it does not concern itself with."""
        node, backup = self.node, self.backup
        if peer != backup.primary or message.generation != backup.generation:
            return
        before = backup.attached
        if not (node.candidate.proposing and isinstance(message, Follow | ResyncBegin)):
            backup.take(message, node.now)
        if backup.attached and not before:
            node.move("attached")
            listed = node.candidate.record and node.member in node.candidate.record.ready
            if listed and isinstance(message, Follow):
                node.move("granted")
        elif before and not backup.attached:
            self.detached(retry_at_once=False)
        elif isinstance(message, Granted):
            if backup.attached and message.session == backup.session and node.state == CATCHUP:
                node.move("granted")
        elif isinstance(message, AttachmentRefused) and message.session == backup.session:
            node.emit(LogLine(RefusedByPrimary(backup.primary, message.reason)))
            self.detached(retry_at_once=False)
        elif isinstance(message, election.Promoted):
            backup.ask_anew()
        elif isinstance(message, election.ClientsClosed):
            node.handed_over = HandedOver(peer, message, node.now)
            node.look(node.now)
        elif isinstance(message, election.HandoverRefused):
            node.emit(LogLine(RefusedByPrimary(backup.primary, message.reason)))
        elif isinstance(message, StepTold):
            node.relay.answered(message)

    def configure(self, step: Configure, done: Done) -> None:
        """The primary is asked, if this node is attached to it."""
        node, primary = self.node, self.desk_at
        if not primary:
            done(NO_PRIMARY)
        elif USERS_FEATURE not in node.features.get(primary, ()):
            done(f"{step.operation} needs {USERS_FEATURE} on every node: upgrade {primary} first")
        else:
            node.relay.at(primary, node.generation, step, done)

    def _asks_for_handover(self) -> str | None:
        node = self.node
        if node.state != READY:
            return super()._asks_for_handover()
        if (refused := node.candidate.cannot_succeed(node.now)) is None:
            node.emit(Send(self.backup.primary, election.HandoverRequest(node.generation, self.backup.session)))
        return refused


class Leading(Role):
    """The primary of the record's generation: its hand on the record, the stream, and those who follow it."""

    def __init__(self, node: Node, record: Record, sent_at: float) -> None:
        super().__init__(node)
        name, settings, emit = node.member.node, node.settings, node.emit
        self.keeper = RecordKeeper(record, sent_at, node.member, settings, emit, node.lease_length)
        attachments = Attachments(name, record.generation, node.replica, self.keeper, emit, node.now, node.features)
        attachments.gone(node.gone_since)
        self.fanout = Star(attachments, node.replica, settings, emit)
        self.primary = Primary(attachments, self.fanout, node.replica, node.host, settings, emit)
        self.primary.writer.wake, self.primary.writer.wall_ms = node.wake, node.wall_ms
        following = (attachments, self.fanout, node.replica, self.keeper, settings)
        self.backups = Backups(self.primary, *following, node.linked, emit, node.now)
        self.handover = Handover(node.host, settings, emit, node.features, node.wake)
        contents = node.replica.contents
        self.members = MemberDesk(self.keeper, attachments, node.founding, lambda: contents.calls, emit)
        ledger = self.primary.ledger
        of_ledger = (ledger.configure, lambda: ledger.last_id, lambda: self.keeper.record.ready, attachments.lacking)
        self.desk = TicketDesk(record.generation, node.replica, settings, *of_ledger, self._answer)
        if handed := node.handed_over:
            take_out_who_stops(self.keeper, handed.former, handed.clients, node.now)
        self.primary.start([m.node for m in record.ready])
        for peer in sorted(node.linked):
            emit(Send(peer, election.Promoted(node.generation)))

    @property
    def desk_at(self) -> str:
        """Its own."""
        return self.node.member.node

    def standing(self) -> CallsStanding:
        """As primary."""
        node = self.node
        return CallsStanding(node.now, node.generation, 0, self.desk_at, node.state == ACTIVE)

    def _answer(self, peer: str, answer: DeskAnswer) -> None:
        """Of the desk, to a node that asked."""
        if peer == self.node.member.node:
            self.node.calls.take(answer)
        else:
            self.node.emit(Send(peer, answer))

    def tick(self) -> None:
        """Time has passed: judge the silent, and leave where that is due."""
        self.backups.tick(self.node.now)
        self.handover.tick(self.primary, self.backups, self.keeper, self.node.replica, self.node.now)

    def settle(self) -> None:
        """Move the commit point, write what gathered, send what is durable.

        Below ``min_ready`` nothing new passes, and what has begun to be applied is finished.
        """
        node, primary, keeper = self.node, self.primary, self.keeper
        primary.writer.wall_ms = node.wall_ms
        primary.decisions.min_ready = needed(keeper.record, node.settings)
        too_few = len(keeper.record.ready) < primary.decisions.min_ready
        primary.decisions.lost_min_ready(too_few and primary.point.serving)
        if keeper.holds(node.now):
            enough = not primary.decisions.below_min_ready
            primary.advance(self.backups.attachments.durable_everywhere() if enough else 0)
            if enough and node.state == RECOVERING and primary.may_serve:
                node.move("in step")
                primary.serve(AppliedContent(node.replica.contents))
        primary.flush()
        self.backups.pump(node.now)
        self.backups.grant(node.now)
        waiting = bool(node.relay.waiting)
        self.handover.settle(primary, self.backups, keeper, node.replica.tail.sequence, waiting, node.now)

    def unlinked(self, peer: str, since: float) -> None:
        """A backup's attachment ends with its connection."""
        self.backups.attachments.detach(peer, self.node.now)
        self.backups.attachments.gone({peer: since})
        self.desk.unlinked(peer)

    def written(self, sequence: int) -> None:
        """The log is synced up to there."""
        self.primary.written(sequence)

    def store_failed(self, reason: str) -> None:
        """Close the clients, and give the lease up if others hold all that was told."""
        self.node.host.on_inactive(reason)
        self.keeper.release("", self.node.now, self.backups.attachments.holders(self.primary.point.sequence))

    # -- the record

    def stored(self, record: Record) -> str | None:
        """Our compare-and-set has been made; why this role is over, if it is."""
        before = self.keeper.record.ready
        self.keeper.stored(record)
        self._answered()
        self._ready_set_changed(before)
        return "the lease was handed over" if self.keeper.released else None

    def conflict(self, current: Record | None) -> str | None:
        """Our compare-and-set found another version; why this role is over, if it is."""
        before, keeper = self.keeper.record.ready, self.keeper
        keeper.conflict(current)
        self._answered()
        if keeper.lost or keeper.released:  # by a change of ours that was thought lost
            return keeper.farewell(current)
        self._ready_set_changed(before)
        return None

    def _answered(self) -> None:
        now = self.node.now
        self.node.candidate.access.answered(not self.keeper.expired(now), now)

    def _ready_set_changed(self, before: tuple[Member, ...]) -> None:
        self.members.let_go(self.node.now)
        self.backups.record_stored(before, self.node.log_first, self.node.now)

    def cas_failed(self) -> None:
        """The outcome of our compare-and-set is unknown."""
        self.node.candidate.access.failed(self.node.now)
        self.keeper.failed()

    def step_down(self, reason: str) -> Record:
        """Acknowledge nothing more and close the clients; the record as it was known here."""
        self.node.emit(LogLine(SteppingDown(reason)))
        self.node.host.on_inactive(reason)
        self.primary.abandon()
        self.members.end()
        self.node.relay.lost()
        return self.keeper.record

    # -- messages

    def take(self, peer: str, message: Peer) -> None:
        """A message of a backup; of one that knows a later generation the record will tell soon."""
        node = self.node
        if message.generation > node.generation:
            return
        if isinstance(message, election.HandoverRequest):
            ready = self.backups.attachments.may_succeed(peer, message.session)
            self.handover.asked(self.primary, peer, ready, node.state == ACTIVE, node.now)
        elif isinstance(message, DeskRequest):
            self.desk.take(peer, message)
        elif isinstance(message, StepAsk):
            node.relay.asked(peer, message, self._takes_steps, self.primary.ledger.configure)
        else:
            self.backups.take(peer, message, node.log_first, node.now)

    # -- operators

    def configure(self, step: Configure, done: Done) -> None:
        """It is appended, if clients are served."""
        if self._takes_steps:
            self.node.relay.here(step, done, self.primary.ledger.configure)
        else:
            done(NOT_ACTIVE)

    @property
    def _takes_steps(self) -> bool:
        return self.node.state == ACTIVE and not self.handover.draining

    def refuses_promotion(self, accept_data_loss: bool, version: int) -> str | None:
        """There is nothing to be promoted to."""
        return "this node is the primary already"

    def resign(self, reason: str) -> None:
        """Drain and close the clients, and give the lease up."""
        if not self.node.failed:
            self.handover.resign(self.primary, self.keeper, f"resigning: {reason}", self.node.now)
