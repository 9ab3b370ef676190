"""Two drivers of one query: one loses the lock between what it reads and what it does by that."""

from __future__ import annotations

import socket
from collections.abc import Callable
from functools import partial

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from python_tests.suites.spark_queues.drawn.planted import put_back
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues import settle
from recovery.pipeline.queues.batch_decisions import BatchDecisions
from recovery.pipeline.queues.batch_record import BatchRecord
from recovery.pipeline.queues.names import JOB, Batch
from recovery.pipeline.queues.sink import Written
from tests.recovery.pipeline.queues.conftest import Query, drained
from txobserver.xid import Xid


def decide_and_die(query: Query, *written: Written) -> None:
    """Another driver, which is killed when it has committed the first branch of its decision."""
    branches = [name for each in written for name in each.branches]
    with BatchDecisions(query.options.hosts, query.id, 20) as driver:
        driver.decide(0, branches, first=True)
        driver.branches._commit(Batch(query.id, 0).branch(branches[0]))


def written(query: Query) -> list[Written]:
    """By its tasks."""
    return [query.write(0, "a"), query.write(0, "b", partition=1)]


def once(driver: BatchDecisions, query: Query, tasks: Callable[[], list[Written]]) -> Callable[[], None]:
    """When it is called first, the driver's connection goes, and another driver does as above."""
    left = [tasks]

    def lose() -> None:
        if left:
            found = left.pop()()
            driver._broker.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
            decide_and_die(query, *found)

    return lose


def test_an_abort_that_has_lost_its_lock(
    query: Query, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver wakes up and aborts; its connection goes, and the next driver decides what it is about to roll back."""
    with BatchDecisions(query.options.hosts, query.id, 20) as asleep:
        lose, prepared = once(asleep, query, partial(written, query)), asleep.branches.prepared

        def then() -> list[object]:
            lose()
            return [*prepared()]

        monkeypatch.setattr(asleep.branches, "prepared", then)
        asleep.abandon(Batch(query.id, 0))
    query.commit(*written(query))
    assert drained(channel, queue) == ["a", "b"]


@pytest.mark.parametrize(("fault", "rows"), [(None, ["a", "b"]), ("anothers-is-ones-own", ["a", "a", "b"])])
def test_the_decision_of_another_driver_is_not_ones_own(
    query: Query,
    channel: BlockingChannel,
    queue: str,
    monkeypatch: pytest.MonkeyPatch,
    fault: str | None,
    rows: list[str],
) -> None:
    """All changes of a record have one xid. A driver sleeps in front of its own, and another one decides."""
    mine = written(query)
    with put_back(fault), BatchDecisions(query.options.hosts, query.id, 20) as asleep:
        lose, commit = once(asleep, query, partial(written, query)), asleep._broker.tpc_commit

        def then(*xid: Xid) -> None:
            lose()
            commit(*xid)

        monkeypatch.setattr(asleep._broker, "tpc_commit", then)
        record = asleep.decide(0, [name for each in mine for name in each.branches], first=True)
        asleep.branches.finish(record)
        asleep.clean(record)
    assert sorted(drained(channel, queue)) == rows


@pytest.mark.parametrize("before", ["rolled back", "dropped"])
def test_settle_spark_that_has_lost_its_lock(
    query: Query, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """It found no decision. The driver comes again, against the word of who gave it up, and decides."""
    prepared = written(query)
    record, steps = BatchDecisions.record, []

    def then(self: BatchDecisions) -> BatchRecord | None:
        found = record(self)
        if not steps:
            steps.append(once(self, query, lambda: prepared))
            if before == "rolled back":
                steps[0]()
        return found

    def drop(self: BatchDecisions) -> None:
        steps[0]()
        dropped(self)

    dropped = BatchDecisions.drop
    monkeypatch.setattr(BatchDecisions, "record", then)
    monkeypatch.setattr(BatchDecisions, "drop", drop)
    give_up = [query.id] if before == "rolled back" else []
    settle.settle(query.options.hosts, give_up, 20)
    monkeypatch.undo()
    query.commit(*written(query))
    assert drained(channel, queue) == ["a", "b"]


def test_a_job_that_settle_spark_has_carried_out(
    query: Query, channel: BlockingChannel, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to its decision is lost, and with it the lock: no query may be told that nothing is committed."""
    query.id = f"{JOB}{query.id}"
    names = [name for each in written(query) for name in each.branches]
    with BatchDecisions(query.options.hosts, query.id, 20) as driver:
        broker = driver._broker
        commit = broker.tpc_commit

        def then(*xid: Xid) -> None:
            commit(*xid)
            broker.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
            settle.settle(query.options.hosts, [], 20)
            broker.outcome(Batch(query.id, 0).branch(names[0]))  # it notices, and has the lock again

        monkeypatch.setattr(broker, "tpc_commit", then)
        with pytest.raises(PipelineError, match="may be in their queues") as refused:
            driver.decide(0, names, first=True)
    assert "Nothing of the batch" not in str(refused.value)
    assert sorted(drained(channel, queue)) == ["a", "b"]


@pytest.mark.parametrize(("commit", "said"), [(True, "may be in their queues"), (False, "Nothing of the batch")])
def test_a_branch_that_an_operator_has_settled(query: Query, commit: bool, said: str) -> None:
    """Before the batch was decided, though he must not."""
    (name,) = query.write(0, "a").branches
    with DtxConnection(*query.options.hosts) as operator, BatchDecisions(query.options.hosts, query.id, 20) as driver:
        (operator.tpc_commit if commit else operator.tpc_rollback)(Batch(query.id, 0).branch(name))
        with pytest.raises(PipelineError, match=said):
            driver.decide(0, [name], first=True)
