"""BatchDecisions: which branches are a batch. The driver's half of the sink.

Promise: of all branches that were ever prepared for a batch, by whichever attempt, task, run or driver, those that one
decision names are committed and no others; and each batch has one decision.

Algorithm: the decision is a record, a message in a durable queue of the query, that names a batch and its branches.
It takes the place of the one before in one transaction of the broker, and only if that is of an earlier batch: so the
record is compared and set, durably, and every process that comes later finds the same. Only then are the branches
committed, one by one and by name. A branch without a name in the record can be prepared whenever it likes: no process
commits it. So nothing hangs on fences, timeouts or the end of zombies; what they leave behind is rolled back.

Why it is right, case by case: ``docs/decisions/spark-sink.md``. Two points that are easy to lose:

- A driver that finds the record's queue empty must not take itself for the first to come: the record may be in a
  transaction on its way, whose driver is gone, or with an operator who looks at it. So the queue is made with an empty
  record in it, and says "none yet" only by not being there (``kept``). Every process that touches the record holds the
  lock, an exclusive queue that the broker takes away with the connection; it gives back what the connection held
  before. And every change of the record has the one xid of its query, so that a change on its way can be asked for.
  What became of that xid says nothing of *whose* change it was: a driver whose answer was lost looks the record up.
- A process that does what a decision would forbid (to roll back what has none, to remove the record) must not have lost
  the lock since it looked: between two connections another driver may have decided, and died (``under_one_lock``). What
  follows from a decision can be done at any time, by any process.
- A record may only be replaced when each of its branches has been committed and told so: a branch whose commit is on
  its way may be prepared again after a take-over, and would then look like a leftover.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Self, TypeVar

from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from recovery.dtx.conversation import PAUSE, Deadline
from recovery.dtx.errors import OperationalError, ProgrammingError, UnknownXid
from recovery.dtx.lost import LOST
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.batch_record import BatchRecord, decoded
from recovery.pipeline.queues.kept import KeptRecord, Taken
from recovery.pipeline.queues.names import Batch, batch_of, lock_queue, record_queue, record_xid
from recovery.pipeline.queues.query_branches import LEFT, QueryBranches
from recovery.pipeline.queues.steps import reached
from txobserver.outcomes import BranchOutcome

T = TypeVar("T")


class LockLost(OperationalError):
    """The connection that held a query's lock is gone, and what was known by it with it."""


class RecordElsewhere(OperationalError):
    """A client holds the record of a query, and it cannot be known what it says."""


class BatchDecisions:
    """The decisions of one query at the broker. A context manager; while it is open it holds the query's lock.

    ``patience``: seconds for which a lost connection is made anew, or another driver's lock is waited for. Raises
    OperationalError if no host answers, PipelineError if another driver keeps the lock. ``branches``: what a decision
    names and what it does not.
    """

    def __init__(self, hosts: Sequence[str], query: str, patience: float) -> None:
        self.query = query
        self._patience = patience
        self._kept = KeptRecord(record_queue(query))
        self._bound: BlockingConnection | None = None
        try:
            self._broker = DtxConnection(*hosts, patience=patience, on_channel=self._lock)
        except OperationalError as error:
            if "RESOURCE_LOCKED" in str(error):
                raise PipelineError(f"another driver is at work on query {query}, and does not end") from error
            raise
        self.branches = QueryBranches(self._broker, query)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the lock go."""
        self._broker.close()

    def _lock(self, channel: BlockingChannel) -> None:
        """Each new channel begins with it, so that nothing is ever done without: refused, it is asked for again."""
        if self._bound is not None and channel.connection is not self._bound:
            channel.close()  # it is not used any more
            raise LockLost(f"the connection that held the lock of query {self.query} was lost")
        channel.queue_declare(lock_queue(self.query), exclusive=True)
        self._kept.look(channel)

    def under_one_lock(self, what: Callable[[], T]) -> T:
        """Do this with one connection, which holds the lock all the while; if that is lost, from the beginning.

        Raises what it raises, and LockLost behind the deadline.
        """
        deadline = Deadline(self._patience)
        while True:
            self._broker.reconnect()
            self._bound = self._broker.connection
            try:
                return what()
            except (LockLost, *LOST):
                if deadline.over:
                    raise
                time.sleep(PAUSE)
            finally:
                self._bound = None

    # -- the record

    def record(self) -> BatchRecord | None:
        """The last decision; None if there was none. Raises RecordElsewhere, OperationalError."""
        held = self._take(Deadline(self._patience))
        held.put_back()
        return decided_by(held)

    def _take(self, deadline: Deadline) -> Taken:
        """The record, as soon as it is in its queue. Raises as ``record``."""
        while True:
            try:
                held = self._kept.take(self._broker.channel)
                if held is not None:
                    return held
                if deadline.over:
                    raise RecordElsewhere(
                        f"a client holds the record of query {self.query}, the message of queue {self._kept.name}: put "
                        "it back and start again. If it was taken out for good, delete the queue: then the query "
                        "stops, and says what is to be known"
                    )
                self._wait_for_changes(deadline)
                time.sleep(PAUSE)
            except LOST as error:
                if deadline.over:
                    raise OperationalError(f"the broker was lost: {error!r}") from error
                self._broker.reconnect()

    def _wait_for_changes(self, deadline: Deadline) -> None:
        """Until no change of the record is on its way, and its name is free.

        Rolled back is one that its connection has left, until a driver is told; and one that had come to a backup when
        a take-over undid it, until it is forgotten. To ask for what is not there costs the channel, and with it the
        record that it holds: so neither may be left as it is, or it would cost the next channel as well.
        """
        xid = record_xid(self.query)
        while (outcome := self._broker.outcome(xid)) in (BranchOutcome.ACTIVE, *LEFT):
            if deadline.over:
                raise OperationalError(f"the record of query {self.query} is being changed, and that does not end")
            time.sleep(PAUSE)
        with contextlib.suppress(UnknownXid):
            if outcome is BranchOutcome.COMMITTED:
                self._broker.forget(xid)
            elif outcome is BranchOutcome.ROLLED_BACK:
                self._broker.tpc_rollback(xid)
                self._broker.forget(xid)

    # -- a decision

    def decide(self, batch: int, branches: Sequence[str], first: bool, whole: bool = True) -> BatchRecord:
        """The decision on a batch: this one, or the one that was taken before. It is durable when this returns.

        ``first``: whether it may be the query's first. ``whole``: whether the branches are all of the batch; else some
        task has found it decided. Raises PipelineError for what must not be and is, or if the record is of a later
        batch; RecordElsewhere, OperationalError.
        """
        deadline = Deadline(self._patience)
        while True:
            held = self._take(deadline)
            reached("record held")
            try:
                if not whole:
                    self._check_decided(held, Batch(self.query, batch))
                found = self._change(held, BatchRecord(self.query, batch, tuple(branches)), first)
            except (*LOST, OperationalError) as error:
                self._leave()
                if deadline.over:
                    raise OperationalError(f"no decision on batch {batch} of query {self.query}: {error}") from error
                continue
            reached("decided")
            return found

    def _check_decided(self, held: Taken, batch: Batch) -> None:
        """Raises PipelineError where the global transaction says it, and the record is of the batch before."""
        before = decided_by(held)
        if (before.batch if before is not None else -1) + 1 == batch.number:
            raise PipelineError(
                f"batch {batch.number} of query {self.query} has no record, and its global transaction "
                f"{batch.globally} was decided by another client, or the record was removed: look whether the rows are "
                "in their queues. If so, set the option newRecord to true for one start; else have that decision "
                "forgotten (DtxConnection.forget), and start the query again"
            )

    def _change(self, held: Taken, wanted: BatchRecord, first: bool) -> BatchRecord:
        before = decided_by(held)
        if before is not None and before.batch >= wanted.batch:
            held.put_back()
            if before.batch > wanted.batch:
                raise PipelineError(
                    f"batch {wanted.batch} of query {self.query} comes late: batch {before.batch} has been decided. "
                    "Another driver runs the query, or the checkpoint is an old copy"
                )
            return before
        if before is None and not first:
            raise PipelineError(
                f"the broker has no record of query {self.query}, which has come to batch {wanted.batch}: it cannot be "
                "said whether that was written already. If it was not, set the option newRecord to true for one start"
            )
        if before is not None:
            if before.batch + 1 != wanted.batch and not first:
                raise PipelineError(
                    f"the broker's record of query {self.query} is of batch {before.batch}, and this is batch "
                    f"{wanted.batch}: what was decided since has been lost, with data whose loss an operator has "
                    "accepted, or was written elsewhere. Find out whether it is in the queues; to go on, set the "
                    "option newRecord to true for one start"
                )
            self.branches.finish(before)
            wanted = BatchRecord(wanted.query, wanted.batch, wanted.branches, before.batch)
        self.branches.check_prepared(wanted)
        self._wait_for_changes(Deadline(self._patience))
        if held.tag is None:
            self._kept.make(held.channel)
            held = self._take(Deadline(self._patience))
            if held.body:
                raise OperationalError("another driver was faster")
        self._broker.tpc_begin(record_xid(self.query))
        if self._broker.channel is not held.channel:
            raise OperationalError("the connection that held the record was lost")
        self._kept.exchange(held, wanted.encoded())
        self._broker.tpc_commit()
        if self._broker.channel is not held.channel:
            raise OperationalError("the answer to a change of the record was lost: what it says is looked up")
        return wanted

    def _leave(self) -> None:
        """The change that was begun, if any, has not come about, or its outcome is asked for by ``_take``."""
        with contextlib.suppress(ProgrammingError, OperationalError, *LOST):
            self._broker.tpc_rollback()

    # -- what follows from a decision

    def clean(self, record: BatchRecord) -> None:
        """Roll back what attempts that did not win have prepared, and refuse what they prepare from now on.

        The record's own branches must have been committed (``branches.finish``).
        """
        named = {record.decided.branch(name) for name in record.branches}
        for xid in self.branches.prepared():
            batch = batch_of(xid)
            if batch is not None and batch.number <= record.batch and xid not in named:
                self.branches.roll_back(xid)
        self._broker.decide(record.decided.globally, False)
        if record.before is not None:
            self.branches.forget(Batch(self.query, record.before).globally)
        self._wait_for_changes(Deadline(self._patience))

    def abandon(self, batch: Batch) -> None:
        """Roll back what is prepared for a batch, which will be written again; if it is decided, what has lost.

        Nothing fences what is prepared from now on: a decision on the global transaction would tell the next writing
        that the batch is done. It has no name in any record, and goes with the next batch that is decided.
        """
        self.under_one_lock(lambda: self._abandon(batch))

    def _abandon(self, batch: Batch) -> None:
        record = self.record()
        named = {batch.branch(name) for name in record.branches} if record and record.batch == batch.number else set()
        for xid in self.branches.prepared():  # all that a record named before this one are committed
            if batch_of(xid) == batch and xid not in named:
                self.branches.roll_back(xid)

    def refuse(self, batch: Batch) -> None:
        """Of a batch job: if it has no decision, it never will. Roll back what it has, and refuse what comes late."""
        self.under_one_lock(lambda: self._refuse(batch))

    def _refuse(self, batch: Batch) -> None:
        if self.record() is None:
            self._broker.decide(batch.globally, False)
            self.drop()

    def drop(self) -> None:
        """The query will never come again: remove its record."""
        self._broker.reconnect()
        self._kept.remove(self._broker.channel)


def decided_by(held: Taken) -> BatchRecord | None:
    """What the record says; None if nothing has been decided."""
    return decoded(held.body) if held.body else None
