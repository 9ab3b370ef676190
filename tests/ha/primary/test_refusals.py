"""Messages that cannot be: a clear refusal, nothing taken, and the node goes on."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from msgspec.structs import replace

from ha.apply.replica import Replica
from ha.backup.backup import Backup
from ha.catchup.queue_replicator import QueueReplicator, SnapshotMismatch
from ha.messages.attaching import AttachmentRefused, Follow, Join, Leave
from ha.messages.copying import ForwardOutcomes, ForwardTx, Missing, ResyncBegin, SnapshotConfiguration, SnapshotEnd
from ha.messages.election import HandoverRequest
from ha.messages.stream import Ack, Cancel, Entries
from ha.messages.wire import decode, encode
from ha.primary.backup_session import BackupSession
from tests.support.memory_cluster import MemoryCluster, MemoryNode
from tests.support.steps import (
    answered,
    backups_of,
    begin_t,
    commit,
    declared,
    publish,
    survivors_agree,
    whole_or_absent,
)
from txobserver.configuration import QueueSpec
from txobserver.events import Event, TxDecision, TxEnqueue, TxEvent, TxOpen, TxPrepare
from txobserver.frames import Frame, encode_frame
from txobserver.ids import Member, Position
from txobserver.outcomes import Kind, Outcomes, OutcomesMeta, Remembered
from txobserver.ports.store import MemoryBase, Meta


class Overheard:
    """A cluster with two queues, its primary and a backup, and every message that is sent."""

    def __init__(self) -> None:
        self.cluster: MemoryCluster = declared("q", "r")
        self.primary = self.cluster.primary
        self.backup = backups_of(self.cluster)[0]
        self.sent: list[tuple[str, Any]] = []
        self.cluster.lose = lambda source, target, message: bool(self.sent.append((target, message)))

    @property
    def end(self) -> Backup:
        """The backup's end of its attachment."""
        assert self.backup.core.following is not None
        return self.backup.core.following.backup

    @property
    def session(self) -> BackupSession:
        """The primary's end of it."""
        assert self.primary.core.leading is not None
        return self.primary.core.leading.backups.sessions[self.backup.name]

    @property
    def tail(self) -> Position:
        return self.backup.core.replica.tail

    def to_primary(self, message: Any) -> None:
        core = self.primary.core
        self.primary.report(lambda: core.on_message(self.backup.name, message))

    def to_backup(self, message: Any) -> None:
        core = self.backup.core
        self.backup.report(lambda: core.on_message(self.primary.name, message))

    def told(self, node: MemoryNode, kind: type) -> list[Any]:
        return [message for target, message in self.sent if target == node.name and isinstance(message, kind)]

    def goes_on(self) -> None:
        """Every node lives, agrees and takes new messages."""
        survivors_agree(self.cluster)
        publish(self.cluster.primary, "q", "after")
        answered(self.cluster, self.cluster.primary, "publish after")
        survivors_agree(self.cluster)


def test_an_acknowledgement_of_what_was_never_sent() -> None:
    """It would count for everything to come. The attachment ends; the backup asks for another."""
    heard = Overheard()
    generation, number = heard.primary.core.generation, heard.session.number
    heard.to_primary(Ack(generation, number, heard.tail.sequence + 1))
    assert [each.reason for each in heard.told(heard.backup, AttachmentRefused)] == [
        "it acknowledges what was never sent"
    ]
    assert heard.backup.name not in heard.primary.core.leading.backups.sessions  # type: ignore[union-attr]
    heard.goes_on()


def test_a_join_in_the_name_of_another_node() -> None:
    heard = Overheard()
    other = backups_of(heard.cluster)[1]
    join = Join(heard.primary.core.generation, 7, Member(other.name, "new"), [], Position(0, 0), 0, False)
    ready = heard.cluster.coordination.record.ready  # type: ignore[union-attr]
    heard.to_primary(join)
    heard.cluster.pause(0.1)
    assert [each.reason for each in heard.told(heard.backup, AttachmentRefused)] == [f"{other.name} speaks for itself"]
    assert heard.cluster.coordination.record.ready == ready  # type: ignore[union-attr]
    heard.goes_on()


def test_a_handover_of_an_earlier_attachment() -> None:
    heard = Overheard()
    heard.to_primary(HandoverRequest(heard.primary.core.generation, heard.session.number - 1))
    heard.cluster.pause(0.5)
    assert heard.cluster.primary is heard.primary and heard.primary.host.closed == []
    heard.goes_on()


def test_a_cancel_of_an_earlier_attachment() -> None:
    heard = Overheard()
    observer = begin_t(heard.primary)
    commit(heard.primary, observer)
    heard.to_primary(Cancel(heard.primary.core.generation, heard.session.number - 1, observer.tx, "late"))
    answered(heard.cluster, heard.primary)
    assert whole_or_absent(heard.cluster, ("q", "t"), ("r", "t"))
    heard.goes_on()


@pytest.mark.parametrize("offsets", [[1], [5 << 20, 1 << 62]])
def test_a_joiner_that_lacks_what_it_was_not_told_of(offsets: list[int]) -> None:
    """It gets what there is, which is nothing; at the end its copy is checked like any other."""
    heard = Overheard()
    heard.cluster.kill(heard.backup.name)
    publish(heard.primary, "q", "m")
    answered(heard.cluster, heard.primary, "publish m")
    heard.cluster.disks[heard.backup.name].frames.clear()
    heard.backup = heard.cluster.start(heard.backup.name, wipe=True)
    heard.primary.core.log_first = heard.primary.core.replica.tail.sequence
    heard.cluster.run(lambda: heard.backup.core.replica.resyncing)
    queue = heard.primary.host.number("q")
    heard.to_primary(Missing(heard.primary.core.generation, heard.session.number, queue, offsets))
    heard.goes_on()


@pytest.mark.parametrize("jump", [-1, 1, 1 << 40])
def test_a_follow_that_keeps_what_is_not_there_or_cuts_what_is_applied(jump: int) -> None:
    """What is applied has been told, and what is not there cannot be acknowledged."""
    heard = Overheard()
    core = heard.backup.core
    heard.backup.report(lambda: core.on_link(heard.primary.name, False))
    heard.backup.report(lambda: core.on_link(heard.primary.name, True))
    heard.sent.clear()
    heard.backup.report(core.tick)
    (join,) = heard.told(heard.primary, Join)
    applied, tail = core.replica.applied.sequence, core.replica.tail.sequence
    keep = max(0, applied + jump) if jump < 0 else tail + jump
    heard.to_backup(Follow(core.generation, join.session, keep, 0))
    assert not heard.end.attached and core.replica.tail.sequence == tail and not heard.backup.writes
    heard.goes_on()


@pytest.mark.parametrize("answer", [Follow(1, 0, 1, 1), ResyncBegin(1, 0, [], Position(0, 0))])
def test_an_answer_to_a_backup_that_has_asked_nothing(answer: Follow | ResyncBegin) -> None:
    """Attachments are numbered from 1; a backup that follows number 0 would follow no primary, for ever."""
    heard = Overheard()
    core = heard.backup.core
    heard.backup.report(lambda: core.on_link(heard.primary.name, False))
    heard.to_backup(answer)
    assert not heard.end.attached and not core.replica.resyncing
    heard.backup.report(lambda: core.on_link(heard.primary.name, True))
    heard.goes_on()


def frames(tail: Position) -> dict[str, Frame]:
    """What continues the log and cannot be taken all the same."""

    def frame(*events: Event, generation: int = tail.generation, first: int = tail.sequence + 1) -> Frame:
        return encode_frame(generation, first, list(events), 0)

    known, enqueue = TxOpen(5), TxEnqueue(5, 1, (1,), None)  # type: ignore[arg-type]
    return {
        "of nothing": frame(),
        "of a later generation": frame(known, generation=tail.generation + 1),
        "behind a gap": frame(known, first=tail.sequence + 2),
        "again": frame(known, first=tail.sequence),
        "decided before it began": frame(known, TxDecision(6, True)),
        "committed without a prepare": frame(known, TxDecision(5, True)),
        "begun twice": frame(known, known),
        "prepared twice": frame(known, TxPrepare(5, 0, []), TxPrepare(5, 0, [])),
        "without its message": frame(known, enqueue),
        "of what is no event": frame("event"),  # type: ignore[arg-type]
    }


@pytest.mark.parametrize("which", frames(Position(1, 1)))
def test_a_frame_that_cannot_be(which: str) -> None:
    heard = Overheard()
    heard.backup.report(lambda: None)
    frame, tail = frames(heard.tail)[which], heard.tail
    buffers = dict(heard.backup.core.replica.buffers)
    heard.to_backup(Entries(heard.backup.core.generation, heard.end.session, 0, frame.data))
    assert heard.told(heard.primary, Leave), "it says why"
    assert not heard.end.attached and heard.tail == tail and not heard.backup.writes
    assert heard.backup.core.replica.buffers == buffers
    heard.goes_on()


def test_a_frame_that_counts_more_events_than_it_has() -> None:
    heard = Overheard()
    tail = heard.tail
    whole = encode_frame(tail.generation, tail.sequence + 1, [TxOpen(5), TxDecision(5, False)], 0)
    lying = bytearray(whole.data)
    lying[32:36] = (9).to_bytes(4, "big")
    lying[44:48] = zlib.crc32(lying[:44]).to_bytes(4, "big")
    heard.to_backup(Entries(heard.backup.core.generation, heard.end.session, 0, bytes(lying)))
    assert not heard.end.attached and heard.tail == tail and not heard.backup.writes
    heard.goes_on()


def test_an_open_transaction_is_not_disturbed_by_its_own_name() -> None:
    """A frame that opens it again is refused, and what the backup holds of it stays."""
    heard = Overheard()
    observer = begin_t(heard.primary)
    heard.cluster.pause(0.2)
    frame = encode_frame(heard.tail.generation, heard.tail.sequence + 1, [TxOpen(observer.tx)], 0)
    heard.to_backup(Entries(heard.backup.core.generation, heard.end.session, 0, frame.data))
    assert len(heard.backup.core.replica.buffers[observer.tx].events) == 2
    commit(heard.primary, observer)
    answered(heard.cluster, heard.primary)
    heard.goes_on()


@pytest.mark.parametrize(
    "message",
    [
        Ack(1, 1, -1),
        Ack(-1, 1, 1),
        Follow(1, 1, 1 << 63, 0),
        Missing(1, 1, 1 << 32, []),
        Missing(1, 1, 1, [-5]),
        Join(1, 1, Member("b", "x"), [Position(1, -7)], Position(1, 1), 0, False),
    ],
)
def test_numbers_that_are_none(message: Any) -> None:
    """No position, offset or queue is below zero or beyond what a store can hold."""
    with pytest.raises(ValueError, match="int"):
        decode(encode(message))


def test_configuration_that_is_too_deep() -> None:
    data = encode(SnapshotConfiguration(1, 1, [QueueSpec(1, "q", False, {"argument": "here"})], [], []))
    assert decode(data)
    with pytest.raises(ValueError, match="deep"):
        decode(data.replace(b"\xa4here", b"\x91" * 5000 + b"\xc0"))


def test_outcomes_that_are_not_those_of_the_primary() -> None:
    """It is found before the former log is thrown away for the snapshot."""
    known = [Remembered(Kind.BRANCH, 1, b"g", b"%d" % number, True, number, 1) for number in range(3)]
    meta = Outcomes(OutcomesMeta(), known).meta
    end = SnapshotEnd(1, 1, Position(1, 20), [], 0, (0, 0, 0), [], meta)
    for came in ([], known[:2], [*known[:2], replace(known[2], commit=False)]):
        replicator = QueueReplicator("a", 1, Replica(MemoryBase(), Meta(), {}), lambda effect: None)
        replicator.remember(ForwardOutcomes(1, 1, came))
        with pytest.raises(SnapshotMismatch, match="not those that were sent"):
            replicator.end(end)
    proper = QueueReplicator("a", 1, Replica(MemoryBase(), Meta(), {}), lambda effect: None)
    proper.remember(ForwardOutcomes(1, 1, known[:1]))
    proper.remember(ForwardOutcomes(1, 1, known[1:]))
    proper.end(end)


def forwarded(*events: TxEvent) -> ForwardTx:
    return ForwardTx(1, 1, 5, list(enumerate(events, 10)))


@pytest.mark.parametrize(
    "message",
    [forwarded(), forwarded(TxPrepare(5, 0, [])), forwarded(TxOpen(5), TxOpen(5)), forwarded(TxOpen(6))],
    ids=["empty", "never opened", "opened twice", "another's"],
)
def test_a_forwarded_transaction_that_cannot_be(message: ForwardTx) -> None:
    """It is found before the former log is thrown away for the snapshot."""
    replicator = QueueReplicator("a", 1, Replica(MemoryBase(), Meta(), {}), lambda effect: None)
    with pytest.raises(SnapshotMismatch):
        replicator.forward(message)
    proper = QueueReplicator("a", 1, Replica(MemoryBase(), Meta(), {}), lambda effect: None)
    proper.forward(forwarded(TxOpen(5)))
    proper.forward(ForwardTx(1, 1, 5, [(11, TxPrepare(5, 0, []))]))
    proper.end(SnapshotEnd(1, 1, Position(1, 20), [], 0, (0, 0, 0), [(5, 2)], OutcomesMeta()))
    assert proper.finish() == 20


def test_a_snapshot_that_lacks_something() -> None:
    """A transaction, a part of the configuration or a queue that did not come is found by what the end counts."""
    for end in (
        SnapshotEnd(1, 1, Position(1, 20), [], 0, (0, 0, 0), [(5, 2)], OutcomesMeta()),
        SnapshotEnd(1, 1, Position(1, 20), [], 0, (1, 0, 0), [], OutcomesMeta()),
        SnapshotEnd(1, 1, Position(1, 20), [], 0, (0, 1, 0), [], OutcomesMeta()),
        SnapshotEnd(1, 1, Position(1, 20), [], 0, (0, 0, 1), [], OutcomesMeta()),
    ):
        replicator = QueueReplicator("a", 1, Replica(MemoryBase(), Meta(), {}), lambda effect: None)
        with pytest.raises(SnapshotMismatch):
            replicator.end(end)
    replicator = QueueReplicator("a", 1, Replica(MemoryBase(), Meta(), {}), lambda effect: None)
    replicator.configure(SnapshotConfiguration(1, 1, [QueueSpec(1, "q", False, {})], [], []))
    with pytest.raises(SnapshotMismatch):
        replicator.end(SnapshotEnd(1, 1, Position(1, 20), [], 1, (1, 0, 0), [], OutcomesMeta()))
