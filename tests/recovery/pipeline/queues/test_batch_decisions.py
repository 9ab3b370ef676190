"""Each row of a batch is in its queue once, however often it was prepared, and wherever the driver died."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from pathlib import Path

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.harness.cluster import LocalCluster
from recovery.dtx.errors import OperationalError, RolledBack
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues import sink
from recovery.pipeline.queues.batch_decisions import BatchDecisions
from recovery.pipeline.queues.names import Batch, record_queue, record_xid
from recovery.pipeline.queues.options import SinkOptions
from recovery.pipeline.queues.sink import Written
from tests.recovery.pipeline.queues.conftest import Query, drained
from txobserver.outcomes import BranchOutcome, GlobalState
from txobserver.xid import Global

pytestmark = pytest.mark.slice


def in_doubt(query: Query) -> int:
    with DtxConnection(*query.options.hosts) as broker:
        return sum(query.id.encode() in xid.gtrid for xid in broker.tpc_recover())


def decisions(query: Query, patience: float = 20) -> BatchDecisions:
    return BatchDecisions(query.options.hosts, query.id, patience)


def test_what_no_message_names_is_not_committed(query: Query, channel: BlockingChannel, queue: str) -> None:
    """A failed attempt that had prepared, a speculative one, and one of an earlier driver."""
    query.write(0, "a", "b", "c", "d")
    query.write(0, "a", "b")
    first, second = query.write(0, "a", "b", attempt=1), query.write(0, "c", "d", partition=1)
    query.write(0, "c", "d", partition=1, attempt=1)
    query.commit(first, second)
    assert drained(channel, queue) == ["a", "b", "c", "d"]
    assert not in_doubt(query)


def test_a_replayed_batch_discards_its_rows(query: Query, channel: BlockingChannel, queue: str) -> None:
    query.commit(query.write(0, "a", "b"))
    again = query.write(0, "b", "a", partition=3)
    assert again.branches == ()
    query.commit(again)
    assert drained(channel, queue) == ["a", "b"]


@pytest.mark.parametrize("committed", range(3))
def test_a_driver_that_dies_behind_its_decision(
    query: Query, channel: BlockingChannel, queue: str, committed: int
) -> None:
    """The next one commits what was decided, not what it has written itself, cut into other partitions."""
    written = [query.write(0, "a", "b"), query.write(0, "c", partition=1)]
    names = [each.branches[0] for each in written]
    with decisions(query) as driver:
        driver.decide(0, names, first=True)
    with DtxConnection(*query.options.hosts) as broker:
        for name in names[:committed]:
            broker.tpc_commit(Batch(query.id, 0).branch(name))
    query.commit(query.write(0, "c"), query.write(0, "b", partition=1), query.write(0, "a", partition=2))
    assert sorted(drained(channel, queue)) == ["a", "b", "c"]
    assert not in_doubt(query)


def test_a_decision_that_nobody_has_carried_out_when_the_next_comes(
    query: Query, channel: BlockingChannel, queue: str
) -> None:
    """Its checkpoint says that the batch before is written, and its record names a branch that is prepared still."""
    written = query.write(0, "a")
    with decisions(query) as driver:
        driver.decide(0, written.branches, first=True)
    query.commit(query.write(1, "b"))
    assert drained(channel, queue) == ["a", "b"]
    assert not in_doubt(query)


def test_the_second_decision_on_a_batch_is_the_first(query: Query) -> None:
    one, other = query.write(0, "a"), query.write(0, "a")
    with decisions(query) as driver:
        assert driver.decide(0, one.branches, first=True).branches == one.branches
        assert driver.decide(0, other.branches, first=True).branches == one.branches


def test_a_change_of_the_record_that_its_connection_has_left(
    query: Query, channel: BlockingChannel, queue: str
) -> None:
    """Its name is in use until a driver is told that it was rolled back."""
    query.commit(query.write(0, "a"))
    dying, name = DtxConnection(*query.options.hosts), record_queue(query.id)
    dying.tpc_begin(record_xid(query.id))
    dying.channel.basic_ack(dying.channel.basic_get(name)[0].delivery_tag)
    dying.channel.basic_publish("", name, b"never")
    dying.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    query.commit(query.write(1, "b"))
    assert drained(channel, queue) == ["a", "b"]
    assert channel.queue_declare(name, passive=True).method.message_count == 1


def test_a_task_that_prepares_behind_the_decision(query: Query, channel: BlockingChannel, queue: str) -> None:
    """It is refused; and when the refusing is over, what it leaves behind ends with the next batch."""
    batch = Batch(query.id, 0)
    with DtxConnection(*query.options.hosts) as zombie:
        zombie.tpc_begin(batch.branch("late"))
        zombie.channel.basic_publish("", queue, b"a")
        query.commit(query.write(0, "a"))
        with pytest.raises(RolledBack):
            zombie.tpc_prepare()
        zombie.tpc_rollback()
        query.commit(query.write(1, "b"))
        zombie.tpc_begin(batch.branch("later"))
        zombie.channel.basic_publish("", queue, b"a")
        zombie.tpc_prepare()
        assert in_doubt(query) == 1
        query.commit(query.write(2, "c"))
        assert not in_doubt(query)
    assert drained(channel, queue) == ["a", "b", "c"]


def test_abort_does_not_undo_a_decision(query: Query, channel: BlockingChannel, queue: str, tmp_path: Path) -> None:
    written = query.write(0, "a")
    with decisions(query) as driver:
        driver.decide(0, written.branches, first=True)
    query.abort(0, written)
    query.abort(0, None, checkpoint=tmp_path)
    assert in_doubt(query) == 1, "the decided branch waits for its commit"
    query.commit(query.write(0, "a"))
    assert drained(channel, queue) == ["a"]


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_that_somebody_else_has_rolled_back_is_not_done(
    cluster: LocalCluster, query: Query, channel: BlockingChannel, queue: str, batch: int
) -> None:
    """By the global transaction, before there was a record. Its tasks leave their rows alone, as if it were done."""
    if batch:
        query.commit(query.write(0, "a"))
    which = Batch(query.id, batch).globally
    with DtxConnection(cluster.urls[0]) as other:
        other.decide(which, False)
    with pytest.raises(PipelineError, match="was decided by another client"):
        query.commit(query.write(batch, "b"))
    with DtxConnection(cluster.urls[0]) as other:
        other.forget(which)
    query.commit(query.write(batch, "b"))
    channel.queue_delete(record_queue(query.id))
    query.options = query.options.model_copy(update={"new_record": True})
    query.commit(query.write(batch, "b"))
    assert drained(channel, queue) == ["a", "b"][1 - batch :], "it is done: only its record was removed"


@pytest.mark.parametrize("left", [(True, True), (True, False), (False, True), (False, False)])
def test_one_task_that_found_the_batch_decided_is_enough(
    monkeypatch: pytest.MonkeyPatch, left: tuple[bool, ...]
) -> None:
    """The other's rows were prepared before, and are not all of the batch."""

    class Asked(Exception):
        """So far, and no further."""

    def asked(decisions: BatchDecisions, *given: object) -> None:
        raise Asked(*given)

    for name, does in (("__init__", lambda *_: None), ("__exit__", lambda *_: None), ("decide", asked)):
        monkeypatch.setattr(BatchDecisions, name, does)
    messages = [Written("q", 3, () if each else ("b",), each) for each in left]
    with pytest.raises(Asked) as told:
        sink.commit(messages, SinkOptions(queue="q"), first=False, last=False)
    assert told.value.args == (3, ["b"] * left.count(False), False, not any(left))


@pytest.mark.parametrize("later", [0, 1])
def test_a_driver_that_comes_late_leaves_nothing_prepared(
    query: Query, channel: BlockingChannel, queue: str, tmp_path: Path, later: int
) -> None:
    """It woke up behind another one, which has decided the batch, and maybe the next one; no batch comes any more."""
    late = query.write(0, "a", "b")
    with decisions(query) as other:
        for batch in range(later + 1):
            decided = query.write(batch, "a", "b") if batch == 0 else query.write(batch, "c")
            other.branches.finish(other.decide(batch, decided.branches, first=batch == 0))
    query.abort(0, late)
    assert not in_doubt(query)
    assert drained(channel, queue) == ["a", "b", "c"][: 2 + later]


def test_abort_finds_what_killed_tasks_had_prepared(
    query: Query, channel: BlockingChannel, queue: str, tmp_path: Path
) -> None:
    """By the global id: Spark tells nothing of what tasks had done when one has failed."""
    query.commit(query.write(0, "a"))
    for partition in range(2):
        task = multiprocessing.get_context("fork").Process(target=prepare_and_die, args=(query, partition))
        task.start()
        task.join()
        assert task.exitcode == -signal.SIGKILL
    assert in_doubt(query) == 2
    query.abort(1, None, None)
    assert in_doubt(query) == 2, "which query it is cannot be known without its checkpoint"
    query.abort(1, None, None, checkpoint=tmp_path)
    assert not in_doubt(query)
    query.write(1, "late")
    query.commit(query.write(1, "b"))
    assert drained(channel, queue) == ["a", "b"], "neither was the batch taken for done, nor what came late for it"
    assert not in_doubt(query)


def prepare_and_die(query: Query, partition: int) -> None:
    """A task that is killed before Spark hears of it."""
    query.write(1, "b", partition=partition)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_branch_that_was_pending_at_a_take_over(
    query: Query, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit on its way is none yet: the next primary has the branch prepared. The record waits for the answer.

    What the dying primary said is put into the mouth of the living one.
    """
    written = query.write(0, "a")
    with decisions(query) as driver:
        driver.decide(0, written.branches, first=True)
    pending = Batch(query.id, 0).branch(written.branches[0])
    look = DtxConnection.branches

    def said(broker: DtxConnection, which: Global) -> GlobalState:
        found = look(broker, which)
        return found._replace(
            branches={xid: BranchOutcome.PENDING if xid == pending else end for xid, end in found.branches.items()}
        )

    with monkeypatch.context() as dying:
        dying.setattr(DtxConnection, "branches", said)
        with decisions(query) as driver:
            driver.decide(1, query.write(1, "b").branches, first=False)
    query.commit(query.write(1, "b"))
    assert sorted(drained(channel, queue)) == ["a", "b"]
    assert not in_doubt(query)


def test_a_driver_that_was_overtaken(query: Query, channel: BlockingChannel, queue: str) -> None:
    late = query.write(0, "a")
    query.commit(query.write(0, "a"))
    query.commit(query.write(1, "b"))
    with pytest.raises(PipelineError, match=r"batch 0 .* comes late: batch 1 has been decided"):
        query.commit(late)
    assert drained(channel, queue) == ["a", "b"]


def test_two_drivers_at_once(query: Query) -> None:
    with decisions(query), pytest.raises(PipelineError, match="another driver"):
        decisions(query, patience=0.2)


def test_a_change_that_is_on_its_way_is_no_missing_record(query: Query) -> None:
    """A driver that finds the queue of the record empty waits until it is known why."""
    query.commit(query.write(0, "a"))
    with DtxConnection(*query.options.hosts) as dying:
        dying.tpc_begin(record_xid(query.id))
        method, _, _ = dying.channel.basic_get(record_queue(query.id))
        dying.channel.basic_ack(method.delivery_tag)
        with decisions(query, patience=0.3) as driver, pytest.raises(OperationalError, match="is being changed"):
            driver.record()
    with decisions(query) as driver:
        record = driver.record()
        assert record is not None and record.batch == 0


def test_a_change_whose_driver_did_not_hear_the_answer(query: Query) -> None:
    query.commit(query.write(0, "a"))
    with DtxConnection(*query.options.hosts) as dying:
        dying.tpc_begin(record_xid(query.id))
        dying.channel.basic_publish("", "nowhere", b"")
        dying.tpc_commit()
        assert dying.outcome(record_xid(query.id)) in (BranchOutcome.COMMITTED, BranchOutcome.UNKNOWN)
    query.commit(query.write(1, "b"))


def test_a_change_that_was_undone_and_is_remembered(query: Query, channel: BlockingChannel, queue: str) -> None:
    """A take-over leaves it so if it had come to a backup: no channel works on it, and how it ended is remembered."""
    query.commit(query.write(0, "a"))
    with DtxConnection(*query.options.hosts) as dying:
        dying.tpc_begin(record_xid(query.id))
        dying.channel.basic_publish("", queue, b"never")
        dying.tpc_prepare()
        dying.tpc_rollback()
        assert dying.outcome(record_xid(query.id)) is BranchOutcome.ROLLED_BACK
    query.commit(query.write(1, "b"))
    assert drained(channel, queue) == ["a", "b"]


def test_a_record_that_is_gone(query: Query, channel: BlockingChannel, queue: str, cluster: LocalCluster) -> None:
    query.commit(query.write(0, "a"))
    channel.queue_delete(record_queue(query.id))
    with pytest.raises(PipelineError, match=r"no record of query .* newRecord"):
        query.commit(query.write(1, "b"))
    told = Query(cluster, queue, newRecord=True)
    told.id = query.id
    told.commit(told.write(1, "b"))
    assert drained(channel, queue) == ["a", "b"]


def test_a_record_that_is_older_than_the_last_batch(
    query: Query, channel: BlockingChannel, queue: str, cluster: LocalCluster
) -> None:
    """An operator has accepted the loss of what was decided since: batches between may not have been written."""
    query.commit(query.write(0, "a"))
    written = query.write(3, "d")
    with pytest.raises(PipelineError, match=r"is of batch 0, and this is batch 3: .* newRecord"):
        query.commit(written)
    assert drained(channel, queue) == ["a"]
    told = Query(cluster, queue, newRecord=True)
    told.id = query.id
    told.commit(told.write(3, "d"))
    query.commit(query.write(4, "e"))
    assert drained(channel, queue) == ["d", "e"]


def test_an_operator_who_rolled_a_branch_back(query: Query, channel: BlockingChannel, queue: str) -> None:
    written = query.write(0, "a")
    xid = Batch(query.id, 0).branch(written.branches[0])
    with DtxConnection(*query.options.hosts) as broker:
        broker.tpc_rollback(xid)
        with pytest.raises(PipelineError, match="another client has settled it"):
            query.commit(written)
        decided = query.write(0, "a")
        with decisions(query) as driver:
            driver.decide(0, decided.branches, first=True)
        broker.tpc_rollback(Batch(query.id, 0).branch(decided.branches[0]))
        with pytest.raises(PipelineError, match="its rows are lost"):
            query.commit(query.write(0, "a"))
        broker.forget(Batch(query.id, 0).branch(decided.branches[0]))
    query.commit(query.write(0, "a"))
    assert drained(channel, queue) == []


def test_many_branches_for_one_partition(cluster: LocalCluster, channel: BlockingChannel, queue: str) -> None:
    query = Query(cluster, queue, rowsPerBranch=2)
    written = query.write(0, *"abcde")
    assert len(written.branches) == 3
    query.commit(written)
    assert drained(channel, queue) == list("abcde")


def test_rows_that_no_queue_takes(cluster: LocalCluster, channel: BlockingChannel) -> None:
    query = Query(cluster, "nowhere")
    with pytest.raises(PipelineError, match="2 rows were taken by no queue"):
        query.write(0, "a", "b")
    careless = Query(cluster, "nowhere", mandatory=False)
    careless.commit(careless.write(0, "a", "b"))


def test_batch_after_batch_leaves_one_record(query: Query, cluster: LocalCluster, channel: BlockingChannel) -> None:
    """One message, and one decision that is remembered, however many batches there were."""
    for number in range(3):
        query.commit(query.write(number, "a"), query.write(number, "b", partition=1))
    before = cluster.status()[0]["outcomes"]["remembered"]
    for number in range(3, 20):
        query.commit(query.write(number, "a"), query.write(number, "b", partition=1))
    assert cluster.status()[0]["outcomes"]["remembered"] == before
    assert channel.queue_declare(record_queue(query.id), passive=True).method.message_count == 1
    assert not in_doubt(query)
