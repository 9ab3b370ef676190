"""``counters_at_their_ends``: what would need a number behind the last one is refused before it is confirmed."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
import pytest

from ha.apply.replica import GapInStream, Replica
from ha.effects import CompareAndSet, Effect, LogLine
from ha.log_events import GenerationsUsedUp
from ha.membership.candidate import Candidate
from ha.membership.record import Record
from ha.messages.copying import QueueSnapshot
from ha.messages.stream import Ack
from ha.messages.wire import decode, encode
from ha.settings import Settings
from recovery.store.lmdb_state import LmdbState
from tests.support.branch_steps import (
    X,
    branch_prepared,
    decide,
    in_doubt,
    ledger_of,
    outcome,
    prepare,
    refused,
    work_on,
)
from tests.support.memory_cluster import MemoryCluster
from tests.support.steps import all_agree, answered, begin, begin_t, commit, declared, publish, survivors_agree
from txobserver.configuration import DELETE_QUEUE, Configuration
from txobserver.ends import END_OF_GENERATIONS, RESERVED_IDS, RESERVED_SEQUENCES
from txobserver.events import Configure, Delivered
from txobserver.frames import encode_frame
from txobserver.ids import (
    LAST_CONFIG_ID,
    LAST_COUNTER,
    LAST_GENERATION,
    LAST_SEQUENCE,
    MAX_TRANSACTION_EVENTS,
    Member,
    Position,
    generated_id,
    offset_of,
)
from txobserver.observer import TransactionObserverFactory
from txobserver.outcomes import BranchOutcome
from txobserver.ports.store import MemoryBase, Meta
from txobserver.xid import Xid

pytestmark = pytest.mark.usefixtures("without_invariants")

SIGNED = 1 << 63


def restarted(cluster: MemoryCluster, sequence: int = 0, config_id: int = 0) -> MemoryCluster:
    """Every node again, as if the stream had come to this sequence, and the configuration to this step."""
    cluster.pause(0.5)
    bases = {name: node.core.replica.checkpoint() for name, node in cluster.nodes.items()}
    for name, checkpoint in bases.items():
        cluster.kill(name)
        meta = checkpoint.meta
        configuration = msgspec.structs.replace(meta.configuration, last_id=config_id or meta.configuration.last_id)
        applied = meta.applied._replace(sequence=sequence or meta.applied.sequence)
        meta = msgspec.structs.replace(meta, applied=applied, configuration=configuration)
        cluster.disks[name].base.write(checkpoint._replace(meta=meta))
        cluster.disks[name].frames.clear()
    for name in bases:
        cluster.start(name)
    return cluster.settled()


def checkpoints_can_be_written(cluster: MemoryCluster) -> None:
    for node in cluster.nodes.values():
        with tempfile.TemporaryDirectory() as directory:
            state = LmdbState(Path(directory) / "state")
            replica = node.core.replica
            replica.checkpoint_written()
            state.write(replica.checkpoint())
            assert state.load().meta.applied == replica.applied
            state.close()


def test_config_id_at_its_end() -> None:
    """It is the number of a queue, which has 32 bits in the store's keys and on the wire."""
    cluster = restarted(declared("q"), config_id=LAST_CONFIG_ID - 1)
    primary = cluster.primary
    primary.report(lambda: primary.host.declare("the last"))
    primary.report(lambda: primary.host.declare("one more"))
    answered(cluster, primary, "declare the last")
    assert f"had its {LAST_CONFIG_ID} steps" in refused(primary, "declare one more")
    assert primary.host.number("the last") == LAST_CONFIG_ID
    publish(primary, "the last", "m")
    answered(cluster, primary, "publish m")
    all_agree(cluster)
    checkpoints_can_be_written(cluster)
    snapshot = QueueSnapshot(1, 1, LAST_CONFIG_ID, -1, 5, [])
    assert decode(encode(snapshot)) == snapshot


def test_what_lies_behind_an_end_is_no_event() -> None:
    """Whichever node made it: a node takes no step and no position that it could never write down."""
    replica = Replica(MemoryBase(), Meta(configuration=Configuration(last_id=LAST_CONFIG_ID)), {})
    step = Configure(LAST_CONFIG_ID + 1, DELETE_QUEUE, "q", b"")
    with pytest.raises(ValueError, match="behind the last one"):
        replica.append(1, step)
    replica = Replica(MemoryBase(), Meta(configuration=Configuration(last_id=LAST_CONFIG_ID)), {})
    with pytest.raises(GapInStream, match="behind the last one"):
        replica.receive(encode_frame(1, 1, [Delivered(1, 1), step], 0))
    assert replica.tail == Position(0, 0), "nothing of it was taken"
    replica = Replica(MemoryBase(), Meta(applied=Position(1, LAST_SEQUENCE - 1)), {})
    with pytest.raises(GapInStream, match="the last sequence"):
        replica.receive(encode_frame(1, LAST_SEQUENCE, [Delivered(1, 1), Delivered(1, 2)], 0))
    assert len(replica.receive(encode_frame(1, LAST_SEQUENCE, [Delivered(1, 1)], 0))) == 1


def test_config_id_at_its_end_after_a_take_over() -> None:
    cluster = restarted(declared("q"), config_id=LAST_CONFIG_ID)
    primary = cluster.primary
    primary.report(lambda: primary.host.declare("one more"))
    assert "nothing can be declared" in refused(primary, "declare one more")
    publish(primary, "q", "goes on")
    answered(cluster, primary, "publish goes on")


def test_sequence_at_its_end() -> None:
    """Places have 63 bits: nothing new is taken, what is there can be finished and taken out, and the node goes on."""
    cluster = declared("q", "r")
    branch_prepared(cluster)
    publish(cluster.primary, "q", "there")
    cluster = restarted(cluster, sequence=LAST_SEQUENCE - RESERVED_SEQUENCES - 30)
    primary = cluster.primary
    opened = begin_t(primary)
    branch = work_on(primary, Xid(2, b"late", b""))
    for number in range(40):
        publish(primary, "q", f"m{number}")
        cluster.pause(0.1)
    assert primary.host.answer("publish m0") == "ok" and "used its positions up" in refused(primary, "publish m39")
    primary.report(lambda: primary.host.declare("one more"))
    commit(primary, opened)
    prepare(primary, branch)
    for label in ("declare one more", "commit", "prepare"):
        assert "used its positions up" in refused(primary, label)
    decide(primary, True)
    answered(cluster, primary, "decide")
    primary.report(lambda: ledger_of(primary).settle(primary.host.number("q"), [primary.host.entry("q", "there")], 1))
    cluster.run(lambda: "there" not in primary.host.bodies("q"))
    assert in_doubt(primary) == [] and outcome(primary, X) is BranchOutcome.COMMITTED
    survivors_agree(cluster)
    checkpoints_can_be_written(cluster)
    assert all(node.stopped is None for node in cluster.nodes.values())


def test_sequence_behind_its_end() -> None:
    """However many events are made of what was there: none that would need 64 bits is written, or told."""
    cluster = restarted(declared("q"), sequence=LAST_SEQUENCE - 3)
    primary, leading = cluster.primary, cluster.primary.core.leading.primary
    number = primary.host.number("q")
    for offset in range(1, 6):
        primary.report(lambda p=offset: ledger_of(primary).raise_watermark(number, p))  # type: ignore[misc]
        for _ in range(3):
            cluster.turn()
    assert "positions up" in str(primary.stopped)
    assert leading is not None and leading.writer.abandoned, "late calls have no effect"
    assert primary.disk.durable <= LAST_SEQUENCE and offset_of(LAST_SEQUENCE + 1) == SIGNED


def test_replication_ids_at_their_end() -> None:
    """Of one generation: the next one goes on."""
    cluster = declared("q", "r")
    primary = cluster.primary
    assert primary.core.leading
    primary.core.leading.primary.writer.ids.given = LAST_COUNTER - RESERVED_IDS
    publish(primary, "q", "the last")
    answered(cluster, primary, "publish the last")
    opened = begin_t(primary)
    publish(primary, "q", "one more")
    commit(primary, opened)
    for label in ("publish one more", "commit"):
        assert "promote another node" in refused(primary, label)
    assert primary.host.bodies("q") == ["the last"]
    cluster.kill(primary.name)
    cluster.run(lambda: any(node.state == "active" for node in cluster.nodes.values()))
    publish(cluster.primary, "q", "next generation")
    answered(cluster, cluster.primary, "publish next generation")
    survivors_agree(cluster)


def test_replication_ids_behind_their_end() -> None:
    """Transactions that are open take the ids that are reserved; one that finds none is rolled back, and says so."""
    cluster = declared("q", "r")
    primary = cluster.primary
    assert primary.core.leading
    first, second = (begin(primary, {"q": [body]}) for body in "ab")
    primary.core.leading.primary.writer.ids.given = LAST_COUNTER - 1
    number = primary.host.number("q")
    message = msgspec.structs.replace(primary.core.replica.buffers[first.tx].events[0][1].message)
    for observer in (first, second):
        primary.report(lambda o=observer: o.enqueue([number], message))  # type: ignore[misc]
    assert primary.core.replica.buffers[first.tx].events[-1][1].rid == generated_id(1, LAST_COUNTER) < SIGNED
    commit(primary, second, "second")
    assert "no id left" in refused(primary, "second")
    cluster.pause(0.2)
    assert primary.host.bodies("q") == [] and primary.stopped is None


def test_transaction_ids_at_their_end() -> None:
    cluster = declared("q", "r")
    primary = cluster.primary
    assert primary.core.leading
    primary.core.leading.primary.decisions.factory._counter = LAST_COUNTER - 1
    last, none, branch = begin_t(primary), begin_t(primary), work_on(primary)
    assert last.tx == generated_id(1, LAST_COUNTER) and none.tx == branch.tx == 0
    commit(primary, none, "none")
    prepare(primary, branch)
    for label in ("none", "prepare"):
        assert "no id left" in refused(primary, label)
    commit(primary, last, "last")
    answered(cluster, primary, "last")
    another = ledger_of(primary).begin(b"token")
    primary.report(lambda: another.commit(primary.host.note("another")))
    assert "no id left" in refused(primary, "another")
    survivors_agree(cluster)
    assert primary.host.bodies("q") == ["t"]


@pytest.mark.parametrize("forced", [True, False])
def test_generation_at_its_end(forced: bool) -> None:
    """An id has 63 bits for its generation and its counter: who would need one more does not stand, and says why."""
    for generation in (LAST_GENERATION - 1, LAST_GENERATION):
        me, dead, effects = Member("b", "1"), Member("a", "1"), list[Effect]()
        candidate = Candidate(me, Settings(), effects.append)
        candidate.observe(Record("c", 5, generation, dead, (dead,) if forced else (dead, me)), 0.0)
        if forced:
            candidate.force([], 0.0)
        for step in range(200):
            candidate.tick(Position(1, 9), [], step * 0.02)
        promoted = [each.record for each in effects if isinstance(each, CompareAndSet)]
        lines = [each for each in effects if isinstance(each, LogLine)]
        if generation < LAST_GENERATION:
            assert [each.generation for each in promoted] == [LAST_GENERATION] and not lines  # type: ignore[attr-defined]
        else:
            assert not promoted and [each.event for each in lines] == [GenerationsUsedUp()]
    assert generated_id(LAST_GENERATION, LAST_COUNTER) == SIGNED - 1


@pytest.mark.parametrize("accept_data_loss", [True, False])
def test_who_asks_for_a_promotion_behind_the_last_generation_is_told(accept_data_loss: bool) -> None:
    """The lease would be given up, and no node could take it."""
    cluster = declared("q")
    primary, backup, _ = cluster.nodes.values()
    keeper, record = primary.core.leading.keeper, cluster.coordination.record
    assert keeper is not None and record is not None
    later = msgspec.structs.replace(record, version=record.version + 1, generation=LAST_GENERATION)
    cluster.coordination.record = keeper.record = later
    cluster.run(lambda: backup.core.generation == LAST_GENERATION)
    if accept_data_loss:
        cluster.kill(primary.name)
        cluster.pause(2.0)
    said: list[str | None] = []
    backup.report(lambda: said.append(backup.core.promote(accept_data_loss)))
    assert said == [END_OF_GENERATIONS]


def test_session_numbers_at_their_end() -> None:
    """A node counts its attachments from a number below 2^62 on; there are more than it can have time for."""
    last = Ack(1, SIGNED - 1, 5)
    assert decode(encode(last)) == last
    with pytest.raises(ValueError, match="int"):
        decode(encode(Ack(1, SIGNED, 5)))
    assert (SIGNED - (1 << 62)) / 1000 / 86_400 > 10**10, "days, at a thousand a second"


def test_place_in_a_transaction_at_its_end() -> None:
    """The last event of the largest transaction has an offset of its own, also at the end of the stream."""

    class Sink:
        def __init__(self) -> None:
            self.count = 0

        def tx_event(self, event: object) -> None:
            self.count += 1

        def tx_rollback(self, tx: int) -> None:
            self.count = 0

    sink = Sink()
    observer = TransactionObserverFactory(1, sink, lambda: 1).begin()  # type: ignore[arg-type]
    for _ in range(MAX_TRANSACTION_EVENTS):
        observer.dequeue(1, [])
    assert sink.count == 1 + MAX_TRANSACTION_EVENTS
    observer.dequeue(1, [])
    assert sink.count == 0, "rolled back"
    assert offset_of(7, MAX_TRANSACTION_EVENTS - 1) == offset_of(8) - 1
    assert offset_of(LAST_SEQUENCE, MAX_TRANSACTION_EVENTS - 1) == SIGNED - 1
