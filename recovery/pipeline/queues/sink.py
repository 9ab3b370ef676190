"""The sink: tasks prepare branches, and the driver decides which of them are the batch (``decisions``).

Spark calls ``write`` in a worker for each attempt of a partition, and ``commit`` or ``abort`` in another process at the
driver, on an object made anew for it: all that the driver knows is what the tasks' messages say.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from recovery.dtx.errors import RolledBack
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.batch_decisions import BatchDecisions
from recovery.pipeline.queues.names import JOB, Batch, new_branch
from recovery.pipeline.queues.options import SinkOptions
from recovery.pipeline.queues.rows import RowToPublish, publishes
from recovery.pipeline.queues.steps import reached
from txobserver.outcomes import BranchOutcome

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties that Spark gives to the tasks of a micro-batch."""

DECIDED = (BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK, BranchOutcome.PENDING)
"""What is known of a batch's global transaction once the batch is done: see ``BatchDecisions.clean``."""

BRANCH_BYTES = 64 << 20
"""Of bodies and properties: a branch that has so many is prepared, and the next row is in another one."""

Messages = Sequence[WriterCommitMessage | None]


@dataclass
class Written(WriterCommitMessage):
    """What one attempt of a partition has prepared. ``left``: nothing, since the batch was decided already."""

    query: str
    batch: int
    branches: tuple[str, ...]
    left: bool = False


def write(rows: Iterator[pa.RecordBatch], batch: Batch, partition: int, attempt: int, options: SinkOptions) -> Written:
    """Prepare a partition. Of a batch that has been decided the rows are left alone.

    Raises PipelineError, recovery.dtx.errors, pika's errors; no driver will commit what was prepared until then.
    """
    names: list[str] = []
    messages = (message for each in rows for message in publishes(each, options))
    while True:
        with DtxConnection(*options.hosts, patience=options.patience) as broker:  # it is for one branch
            if not names and broker.branches(batch.globally).decision in DECIDED:
                return Written(*batch, (), left=True)
            first = next(messages, None)
            if first is None:
                return Written(*batch, tuple(names))
            name = new_branch(partition, attempt)
            broker.tpc_begin(batch.branch(name), options.timeout)
            reached("write begun")
            if _publish_and_prepare(broker, first, messages, options):
                names.append(name)
            elif options.mandatory:
                raise PipelineError(
                    f"rows of batch {batch.number} went only to queues that are not durable, where they can be twice: "
                    "the sink needs durable ones"
                )
            reached("branch prepared")


def _publish_and_prepare(
    broker: DtxConnection, first: RowToPublish, others: Iterator[RowToPublish], options: SinkOptions
) -> bool:
    """Whether there is anything to commit: not if no durable queue has taken a row."""
    returned: list[object] = []
    channel = broker.channel
    channel.add_on_return_callback(lambda channel, method, properties, body: returned.append(method))
    channel.basic_publish(*first, options.mandatory)
    rows, size = 1, first.size
    while rows < options.rows_per_branch and size < BRANCH_BYTES and (message := next(others, None)) is not None:
        channel.basic_publish(*message, options.mandatory)
        rows, size = rows + 1, size + message.size
    reached("rows published")
    if options.mandatory:
        _hear_of_returns(broker)
    if returned:
        broker.tpc_rollback()
        raise PipelineError(f"{len(returned)} rows were taken by no queue, the first: {returned[0]}")
    try:
        return broker.tpc_prepare()
    except RolledBack:
        broker.tpc_rollback()
        raise


def _hear_of_returns(broker: DtxConnection) -> None:
    """Every row that no queue took has come back when this returns. Raises pika's errors, and the branch ends then.

    A row comes back on its channel and nowhere else. The branch outlives the channel from prepare on: if the answer to
    that is lost, what came back is lost with it, and that nothing came back would say nothing. So it is asked before,
    for an answer on this channel, which comes behind whatever the rows had for one.
    """
    broker.channel.basic_qos()
    broker.connection.process_data_events(0)


def commit(messages: Messages, options: SinkOptions, first: bool, last: bool) -> None:
    """Decide on the batch that the messages tell of, and carry the decision out, whichever driver took it.

    ``first``, ``last``: whether it may be the first of its query, and is the last. Raises as ``BatchDecisions.decide``
    and ``branches.finish``.
    """
    written = _told(messages)
    if not written:
        return
    reached("commit called")
    with BatchDecisions(options.hosts, written[0].query, options.patience) as decisions:
        names = [name for each in written for name in each.branches]
        whole = options.new_record or not any(each.left for each in written)
        record = decisions.decide(written[0].batch, names, first, whole)
        decisions.branches.finish(record)
        reached("committed")
        decisions.clean(record)
        if last:
            decisions.drop()


def abort(messages: Messages, options: SinkOptions, number: int) -> None:
    """Roll back what was prepared for a batch, unless it was decided: then the next attempt finds it done.

    Spark does not say what succeeded when something failed: branches are found by their global id. Without messages the
    query is known from its checkpoint; where that cannot be read, the next writing of the batch rolls them back.
    Raises as ``BatchDecisions``.
    """
    written = _told(messages)
    query = written[0].query if written else options.query()
    if query is not None:
        with BatchDecisions(options.hosts, query, options.patience) as decisions:
            decisions.abandon(Batch(query, number))


def _told(messages: Messages) -> list[Written]:
    return [each for each in messages if isinstance(each, Written)]


class StreamSink(DataSourceStreamArrowWriter):
    """The sink of a streaming query: ``format("txha-queue")`` of a ``DataStreamWriter``."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One attempt of one partition of one micro-batch."""
        context = TaskContext.get()
        assert context is not None, "write is called in a task"
        query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or number is None:
            raise PipelineError("this Spark does not tell its tasks the query and the batch that they write")
        batch = Batch(query, int(number))
        return write(iterator, batch, context.partitionId(), context.attemptNumber(), self._options)

    def commit(self, messages: Messages, batchId: int) -> None:
        """Every partition of the micro-batch was written."""
        commit(messages, self._options, first=batchId == 0 or self._options.new_record, last=False)

    def abort(self, messages: Messages, batchId: int) -> None:
        """Something failed, maybe in ``commit``."""
        abort(messages, self._options, batchId)


class BatchSink(DataSourceArrowWriter):
    """The sink of a batch job, which is never run again under its name, by lot."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._batch = Batch(f"{JOB}{uuid.uuid4().hex}", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """One attempt of one partition."""
        context = TaskContext.get()
        assert context is not None, "write is called in a task"
        return write(iterator, self._batch, context.partitionId(), context.attemptNumber(), self._options)

    def commit(self, messages: Messages) -> None:
        """Every partition was written."""
        commit(messages, self._options, first=True, last=True)

    def abort(self, messages: Messages) -> None:
        """Something failed, maybe in ``commit``: then what was decided is carried out by ``txha dtx settle-spark``."""
        with BatchDecisions(self._options.hosts, self._batch.query, self._options.patience) as decisions:
            decisions.refuse(self._batch)


def check_append(overwrite: bool) -> None:
    """Raises PipelineError for what queues cannot do."""
    if overwrite:
        raise PipelineError("a queue can be appended to, not overwritten: use mode append")
