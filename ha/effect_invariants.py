"""What must be so of each effect of a core, and of each message that it sends (``txobserver.invariants``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from ha.apply.invariants import check_checkpoint
from ha.effects import (
    Acknowledge,
    CloseLink,
    CompareAndSet,
    Effect,
    KeepCalls,
    LogLine,
    Persist,
    ReadAction,
    ReadLog,
    ReadQueue,
    ReadRecord,
    ResetLog,
    RunAction,
    Send,
    Stop,
    Truncate,
    WriteCheckpoint,
)
from ha.membership.invariants import check_record
from ha.membership.record import Record
from ha.messages import beats, copying, election
from ha.messages.attaching import AttachmentRefused, Follow, Granted, Join, Leave, Progress
from ha.messages.calls import DeskAnswer, DeskRequest
from ha.messages.member_asks import MemberAsk, MemberTold
from ha.messages.steps import StepAsk, StepTold
from ha.messages.stream import Ack, Cancel, Commit, Entries
from ha.node import Node
from ha.role import Role
from ha.roles import Leading
from txobserver.event_invariants import check_events, check_frame
from txobserver.frames import last_of
from txobserver.invariants import DEEP_EVERY, DeepChecks, differ, rises

DECODED_EVERY = 8
"""Frames that are written from one whose events are looked at to the next."""


class EffectChecks:
    """Of one node. ``persisted``: where the log ends when all that was asked for has been written."""

    def __init__(self, node: Node) -> None:
        self.persisted = node.replica.tail.sequence
        self._node = node
        self._frames = DeepChecks(DECODED_EVERY)
        self._checkpoints = DeepChecks(DEEP_EVERY // 16)
        self._cut = False
        self._before: Role | None = None

    def check(self, role: Role, effects: list[Effect]) -> None:
        """The effects of one turn, in order; ``role`` is that of its end."""
        self._cut = any(isinstance(each, Truncate | ResetLog) for each in effects)
        for effect in effects:
            found = _EFFECTS.get(type(effect))
            assert found is not None, f"P11: no interpreter carries out {type(effect).__name__}"
            found(self, role, effect)
        self._before = role

    def _acknowledge(self, then: Acknowledge, sequence: int) -> None:
        node = self._node
        assert then.sequence == sequence, f"P11: {then.sequence} is acknowledged when {sequence} is written"
        assert then.session > 0, f"P10: attachment {then.session} is acknowledged"
        assert then.generation <= node.generation, f"P10: generation {then.generation} is acknowledged"
        assert then.peer != node.member.node, "P11: a node acknowledges to itself"

    def persist(self, role: Role, effect: Persist) -> None:
        """A frame for the log."""
        frame, tail = effect.frame, self._node.replica.tail
        check_frame(frame)
        assert frame.first == self.persisted + 1, f"P7: the frame at {frame.first} is written behind {self.persisted}"
        assert frame.generation <= self._node.generation, f"P10: a frame of generation {frame.generation} is written"
        assert self._cut or frame.last <= tail.sequence, f"P7: {frame.last} is written, and the stream ends at {tail}"
        if effect.then is not None:
            self._acknowledge(effect.then, frame.last)
        if isinstance(role, Leading) and frame.generation == self._node.generation:
            assert effect.then is None, "P11: a primary acknowledges its own frame"
        if self._frames.deep():
            check_events(frame)
        self.persisted = frame.last

    def truncate(self, role: Role, effect: Truncate) -> None:
        """A cut of the log."""
        assert effect.last >= 0, f"P6: the log is cut behind {effect.last}"
        assert effect.last <= self.persisted, f"P6: the log up to {self.persisted} is cut behind {effect.last}"
        assert effect.then is not None, "P11: a cut of the log has no callback"
        self._acknowledge(effect.then, effect.last)
        self.persisted = effect.last

    def reset(self, role: Role, effect: ResetLog) -> None:
        """A new beginning of the log."""
        assert effect.following >= 1, f"P7: the log begins anew at {effect.following}"
        assert rises(start.sequence for start in effect.history), f"P10: the log begins anew with {effect.history}"
        last = effect.history[-1].sequence if effect.history else 0
        assert last < effect.following, f"P10: the log begins anew at {effect.following}, in {effect.history}"
        assert not self._node.replica.whole, "P9: a log begins anew in a store that counts as whole"
        self.persisted = effect.following - 1

    def checkpoint(self, role: Role, effect: WriteCheckpoint) -> None:
        """The state, brought forward."""
        meta, then = effect.checkpoint.meta, effect.then
        assert meta.applied.generation <= self._node.generation, f"P10: a checkpoint at {meta.applied}"
        assert self._cut or meta.applied <= self._node.replica.tail, f"P4: a checkpoint at {meta.applied}"
        if then is not None:
            self._acknowledge(then, 0 if meta.resyncing else meta.applied.sequence)
        if self._checkpoints.deep():
            check_checkpoint(effect.checkpoint)

    def send(self, role: Role, effect: Send) -> None:
        """A message to a peer."""
        message: Any = effect.message
        assert effect.peer, "P10: a message has no addressee"
        assert effect.peer != self._node.member.node, f"P10: {effect.peer} is sent {type(message).__name__} by itself"
        assert not isinstance(message, Ack), "P11: an acknowledgement leaves before its write"
        later = message.generation <= max(self._node.generation, self._node.candidate._heard)
        assert later, f"P10: {type(message).__name__} of generation {message.generation} is sent"
        found = _MESSAGES.get(type(message))
        assert found is not None, f"P10: no node knows what to do with {type(message).__name__}"
        if isinstance(message, StepTold | MemberTold | DeskAnswer) and isinstance(self._before, Leading):
            role = self._before  # it may have been given before this turn has ended the role
        found(self._node, role, message)

    def read_log(self, role: Role, effect: ReadLog) -> None:
        """Frames for a backup."""
        assert effect.first >= 1, f"P7: the log is read from {effect.first} on"
        assert effect.max_bytes > 0, f"P12: {effect.max_bytes} bytes of the log are read"
        assert effect.session > 0, f"P10: the log is read for attachment {effect.session}"
        assert effect.first <= self.persisted, f"P11: {effect.first} is read, and {self.persisted} is written"

    def read_queue(self, role: Role, effect: ReadQueue) -> None:
        """A page of a queue."""
        assert effect.number > 0, f"P12: page {effect.number} is asked for"
        assert effect.generation <= self._node.generation, f"P10: generation {effect.generation} reads a queue"
        assert effect.asked.queue > 0, f"P5: the queue {effect.asked.queue} is read"

    def compare_and_set(self, role: Role, effect: CompareAndSet) -> None:
        """A change of the record."""
        wished = effect.record
        assert isinstance(wished, Record), "P10: what is proposed is no record"
        check_record(wished)
        assert effect.expected >= 1, f"P10: version {effect.expected} is expected"
        assert wished.version == effect.expected + 1, f"P10: {wished.version} is proposed for {effect.expected}"
        assert wished.primary == self._node.member, f"P10: {wished.primary} is proposed by another"
        if isinstance(role, Leading) and wished.generation == role.keeper.record.generation:
            self._additions(role, wished)

    def _additions(self, role: Leading, wished: Record) -> None:
        """Who is added holds all that was told, and nothing less than a whole transaction."""
        if role.keeper.in_flight is None or role.keeper.in_flight.record is not wished:
            return
        for member in set(wished.ready) - set(role.keeper.record.ready):
            session = role.backups.sessions.get(member.node)
            if session is not None and session.member == member:
                assert session.past_guard, f"P9: {member} is added before it is past its guard"
                assert session.resync is None, f"P9: {member} is added while it copies"
                assert session.trackers.clear, f"P9: {member} is added, and may hold part of a transaction"

    def read_record(self, role: Role, effect: ReadRecord) -> None:
        """Nothing can be wrong with it."""

    def run_action(self, role: Role, effect: RunAction) -> None:
        """An action on this node's surroundings."""
        hands = self._node.calls.hands
        intent, cursor = hands.local.intent, hands.local.cursor
        assert hands.running is effect, "P13: an action runs beside another"
        if effect.tnx_id:
            assert intent is None, f"P13: call {effect.tnx_id} runs before the node's own call is settled"
            assert effect.tnx_id > cursor.tnx_id, f"P13: call {effect.tnx_id} runs again behind {cursor.tnx_id}"
        else:
            assert intent is not None, "P13: a call is initiated without a durable intent"
            assert intent.id == effect.call_id, "P13: a call is initiated beside another"

    def read_action(self, role: Role, effect: ReadAction) -> None:
        """What is in force."""
        hands = self._node.calls.hands
        assert hands.running is None, "P13: what is in force is read while an action runs"
        assert hands.local.intent is None, "P13: what is in force is read before the node's own call is settled"

    def keep_calls(self, role: Role, effect: KeepCalls) -> None:
        """How far this node has run the calls."""
        hands, applied = self._node.calls.hands, self._node.replica.applied
        assert hands.running is None, "P13: a cursor moves while an action runs"
        moved = effect.local.cursor != hands.local.cursor
        here = effect.local.cursor.position.sequence <= applied.sequence
        assert here or not moved, f"P13: a cursor moves to {effect.local.cursor}, and {applied} is applied"

    def log_line(self, role: Role, effect: LogLine) -> None:
        """A line for people."""
        kind = type(effect.event).__name__
        assert getattr(effect.event, "reason", "none"), f"P12: people are told {kind}, and not why"

    def stop(self, role: Role, effect: Stop) -> None:
        """The end."""
        assert effect.reason, "P12: a node ends without a reason"


_EFFECTS: dict[type, Callable[..., None]] = {
    Persist: EffectChecks.persist,
    Truncate: EffectChecks.truncate,
    ResetLog: EffectChecks.reset,
    WriteCheckpoint: EffectChecks.checkpoint,
    Send: EffectChecks.send,
    ReadLog: EffectChecks.read_log,
    ReadQueue: EffectChecks.read_queue,
    CompareAndSet: EffectChecks.compare_and_set,
    ReadRecord: EffectChecks.read_record,
    LogLine: EffectChecks.log_line,
    Stop: EffectChecks.stop,
    RunAction: EffectChecks.run_action,
    ReadAction: EffectChecks.read_action,
    KeepCalls: EffectChecks.keep_calls,
    CloseLink: lambda checks, role, effect: None,
}


def _entries(node: Node, role: Role, message: Entries) -> None:
    assert message.session > 0, f"P10: entries are sent to attachment {message.session}"
    last = last_of(message.frame)
    if isinstance(role, Leading) and message.generation == role.primary.generation:
        assert last <= node.replica.durable, f"P11: {last} is sent, and {node.replica.durable} is on this disk"
        point = role.primary.point.sequence
        assert message.commit <= point, f"P11: {message.commit} is told to have passed, and {point} has"


def _commit(node: Node, role: Role, message: Commit) -> None:
    assert message.session > 0, f"P10: the commit point is told to attachment {message.session}"
    assert message.commit <= node.replica.applied.sequence, f"P11: {message.commit} is told to have passed"


def _follow(node: Node, role: Role, message: Follow) -> None:
    assert message.session > 0, f"P10: attachment {message.session} begins"
    assert message.keep <= node.replica.tail.sequence, f"P7: a log is kept up to {message.keep}, which is not here"
    assert message.commit <= node.replica.applied.sequence, f"P11: {message.commit} is told to have passed"


def _granted(node: Node, role: Role, message: Granted) -> None:
    assert message.session > 0, f"P10: attachment {message.session} is ready"
    if isinstance(role, Leading):
        numbers = {each.number: each.member for each in role.backups.sessions.values()}
        member = numbers.get(message.session)
        listed = member is None or member in role.keeper.record.ready
        assert listed, f"P9: {member} is told that it is ready, and is not listed"


def _join(node: Node, role: Role, message: Join) -> None:
    assert message.session > 0, f"P10: attachment {message.session} is asked for"
    assert message.member == node.member, f"P9: {message.member} joins from another node"
    assert message.applied <= message.tail.sequence, f"P6: applied up to {message.applied} of {message.tail}"
    assert rises(start.sequence for start in message.history), f"P6: a log with the history {message.history}"
    assert rises(start.generation for start in message.history), f"P6: a log with the history {message.history}"
    assert message.tail.generation <= message.generation, f"P10: a log up to {message.tail} joins an older primary"


def _attached(node: Node, role: Role, message: copying.Missing | Progress | Leave | Cancel) -> None:
    assert message.session >= 0, f"P10: a message of attachment {message.session}"
    if isinstance(message, Leave | Cancel):
        assert message.reason, "P12: a backup gives no reason"
    if isinstance(message, Progress):
        assert message.taken >= 0, f"P12: {message.taken} parts were taken"
    if isinstance(message, copying.Missing):
        assert differ(message.offsets), f"P3: a message of queue {message.queue} is asked for twice"


def _refused(node: Node, role: Role, message: AttachmentRefused | election.HandoverRefused) -> None:
    assert message.reason, "P12: a node refuses without a reason"


def _handed_over(node: Node, role: Role, message: election.ClientsClosed) -> None:
    assert isinstance(role, Leading), "P10: a node that leads nothing hands over"
    assert message.undecided <= message.clients, f"P6: {message.undecided} of {message.clients} clients are undecided"


def _probe(node: Node, role: Role, message: election.Probe) -> None:
    assert message.round >= 0, f"P10: round {message.round} of questions"


def _probe_reply(node: Node, role: Role, message: election.ProbeReply) -> None:
    assert message.member == node.member, f"P2: {message.member} answers for another"
    assert message.tail <= node.replica.tail or not message.tail.sequence, f"P2: the greeting says {message.tail}"
    assert node.replica.whole or not message.tail.sequence, "P2: a store that is being overwritten has precedence"


def _elected(node: Node, role: Role, message: election.Promoted | election.HandoverRequest | election.Outdated) -> None:
    assert message.generation >= 1, f"P10: generation {message.generation} begins or is asked for"


def _beat(node: Node, role: Role, message: beats.Beat) -> None:
    assert message.every > 0, "P12: a node beats without a pause, or never"


def _copy_begins(node: Node, role: Role, message: copying.ResyncBegin) -> None:
    assert message.session > 0, f"P10: a copy for attachment {message.session}"
    assert message.history, "P10: a copy of no generation begins"
    assert message.history[-1].sequence <= message.tail.sequence, f"P10: a log up to {message.tail} is copied"


def _page(node: Node, role: Role, message: copying.QueueSnapshot) -> None:
    offsets = [offset for offset, _ in message.ids]
    assert message.after <= message.through, f"P7: a page of queue {message.queue} ends before it begins"
    assert rises(offsets), f"P8: a page of queue {message.queue} is not in order"
    assert not offsets or offsets[0] > message.after, f"P3: a page of queue {message.queue} begins too early"
    assert not offsets or offsets[-1] <= message.through, f"P7: a page of queue {message.queue} ends too late"
    assert differ(rid for _, rid in message.ids), f"P3: a page of queue {message.queue} has an id twice"


def _messages(node: Node, role: Role, message: copying.QueueContent | copying.QueueChange) -> None:
    added = message.entries if isinstance(message, copying.QueueContent) else message.added
    assert differ(offset for offset, _, _ in added), f"P3: a message enters queue {message.queue} twice"
    assert all(rid > 0 for _, rid, _ in added), f"P3: a message of queue {message.queue} is copied without an id"


def _part(
    node: Node,
    role: Role,
    message: copying.ForwardTx | copying.ForwardOutcomes | copying.SnapshotConfiguration,
) -> None:
    assert message.session > 0, f"P10: a copy for attachment {message.session}"
    if isinstance(message, copying.ForwardTx):
        assert message.events, "P1: a transaction is copied without events"
        assert all(event.tx == message.tx for _, event in message.events), "P1: two transactions are copied as one"
    if isinstance(message, copying.SnapshotConfiguration):
        assert differ(each.number for each in message.queues), "P7: two queues are copied under one number"


def _called(node: Node, role: Role, message: copying.SnapshotCalls) -> None:
    numbers = [each.tnx_id for each in message.kept]
    assert rises(numbers), f"P7: cluster calls are copied in the order {numbers}"
    assert message.rest is None or not message.rest.kept, "P7: cluster calls are copied twice"


def _let_in(node: Node, role: Role, message: copying.SnapshotAccess) -> None:
    assert differ(each.name for each in message.users), "P7: a user is copied twice"
    assert message.rest is None or not message.rest.users, "P7: users are copied twice"


def _asks(node: Node, role: Role, message: StepAsk | DeskRequest) -> None:
    assert not isinstance(role, Leading), f"P10: a primary asks another by {type(message).__name__}"


def _answers(node: Node, role: Role, message: StepTold | DeskAnswer) -> None:
    assert isinstance(role, Leading), f"P10: {type(message).__name__} comes from no primary"


def _sums(node: Node, role: Role, message: copying.SnapshotQueues) -> None:
    assert rises(number for number, _, _, _ in message.queues), "P7: a queue is compared twice"
    assert all(count >= 0 for _, count, _, _ in message.queues), "P7: a queue with less than no message is copied"


def _copy_ends(node: Node, role: Role, message: copying.SnapshotEnd) -> None:
    assert message.position <= node.replica.applied, f"P4: a copy ends at {message.position}, which is not applied"
    assert message.history, "P10: a copy ends in no generation"
    assert message.history[-1].sequence <= message.position.sequence, "P10: a copy ends before its generation"
    assert differ(tx for tx, _ in message.transactions), "P1: a transaction is copied twice"
    assert all(count > 0 for _, count in message.transactions), "P1: a transaction is copied without events"


_MESSAGES: dict[type, Callable[..., None]] = {
    Entries: _entries,
    Commit: _commit,
    Follow: _follow,
    Granted: _granted,
    Join: _join,
    copying.Missing: _attached,
    Progress: _attached,
    Leave: _attached,
    Cancel: _attached,
    AttachmentRefused: _refused,
    election.Probe: _probe,
    election.ProbeReply: _probe_reply,
    election.Promoted: _elected,
    election.HandoverRequest: _elected,
    election.HandoverRefused: _refused,
    election.ClientsClosed: _handed_over,
    election.Outdated: _elected,
    beats.Beat: _beat,
    copying.ResyncBegin: _copy_begins,
    copying.QueueSnapshot: _page,
    copying.QueueContent: _messages,
    copying.QueueChange: _messages,
    copying.ForwardTx: _part,
    copying.ForwardOutcomes: _part,
    copying.SnapshotConfiguration: _part,
    copying.SnapshotQueues: _sums,
    copying.SnapshotCalls: _called,
    copying.SnapshotAccess: _let_in,
    **dict.fromkeys((StepAsk, MemberAsk), _asks),
    **dict.fromkeys((StepTold, MemberTold), _answers),
    **dict.fromkeys(get_args(DeskRequest), _asks),
    **dict.fromkeys(get_args(DeskAnswer), _answers),
    copying.SnapshotEnd: _copy_ends,
}
