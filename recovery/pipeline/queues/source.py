"""The source: each message of a queue in one micro-batch, and settled when Spark has committed that.

The driver consumes the queue and hands the messages to tasks inside their partitions: a queue has one reader, and a
batch that is read again must be the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.options import QueueSourceOptions
from recovery.pipeline.queues.places import Offset, goes_on, offset_of
from recovery.pipeline.queues.prefetched import Delivery
from recovery.pipeline.queues.queue_intake import QueueIntake
from recovery.pipeline.queues.steps import reached
from txobserver.octets import text_of

SCHEMA = (
    "body binary, message_id string, headers map<string, string>, exchange string, routing_key string, "
    "properties binary, redelivered boolean, place bigint"
)
ARROW = pa.schema(
    [
        ("body", pa.binary()),
        ("message_id", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("properties", pa.binary()),
        ("redelivered", pa.bool_()),
        ("place", pa.int64()),
    ]
)
"""The same."""


class QueueReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Of one streaming query. Spark pickles it, so the queue is consumed from the first question on only."""

    def __init__(self, options: QueueSourceOptions) -> None:
        self._options = options
        self._intake: QueueIntake | None = None
        self._available_now = False
        self._left: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Nothing has been taken."""
        return Offset(self._options.queue).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Admission control."""
        return ReadMaxRows(self._options.max_messages_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:
        """Spark will have what is in the queue when it first asks, and no more."""
        self._available_now = True

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Plan a batch: ``start`` again if there is nothing. Raises PipelineError, recovery.dtx.errors."""
        before = offset_of(start)
        intake = self._open(before)
        intake.settle((), _in(intake.history, before).done)  # first: what is not settled may leave no room for others
        size = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_messages_per_batch
        size = min(size, self._options.max_messages_per_batch)
        if self._available_now:
            if self._left is None:
                self._left = intake.waiting()
            size = min(size, self._left)
        taken = intake.take(size, wait=self._available_now) if size else []
        history = intake.history  # of what was taken: to settle may lead to another broker
        before = _in(history, before)
        intake.settle((), before.done)  # what came again though Spark had committed it
        if not taken:
            return dict(start)
        if self._left is not None:
            self._left -= len(taken)
        reached("offset planned")
        earlier = frozenset(before.taken | intake.settlements.done)
        return Offset(self._options.queue, frozenset(taken), earlier, history).as_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The messages of a batch, in parts. Raises PipelineError if some are gone, and that is not allowed."""
        offset = offset_of(end)
        wanted = offset.taken
        intake = self._open(_in(offset.history, offset_of(start))._replace(history=offset.history))
        found = intake.bring(_in(intake.history, offset).taken)
        if len(found) < len(wanted) and self._options.fail_on_data_loss:
            raise PipelineError(
                f"{len(wanted) - len(found)} of {len(wanted)} messages of a batch that is to be read again have left "
                f"queue {self._options.queue}: another client has taken or purged them. "
                "To go on without them, set failOnDataLoss to false"
            )
        size = max(1, -(-len(found) // self._options.partitions))
        return [InputPartition(_packed(found[at : at + size])) for at in range(0, max(1, len(found)), size)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task."""
        with pa.ipc.open_stream(partition.value) as stream:
            yield from stream

    def commit(self, end: Mapping[str, Any]) -> None:
        """Spark has committed this batch: settle its messages. Raises recovery.dtx.errors.OutcomeUnknown."""
        reached("settling")
        offset = offset_of(end)
        intake = self._open(offset)
        offset = _in(intake.history, offset)
        intake.settle(offset.taken, offset.done)
        reached("settled")

    def stop(self) -> None:
        """The query ends. Messages of its last batch are settled when it starts again: Spark did not ask for it."""
        if self._intake is not None:
            self._intake.close()
            self._intake = None

    def _open(self, committed: Offset) -> QueueIntake:
        """Begin where the query stands: what it has committed leaves the queue unseen."""
        if committed.queue != self._options.queue:
            raise PipelineError(
                f"this checkpoint is of queue {committed.queue}, not {self._options.queue}: give the query its own"
            )
        if self._intake is None:
            room = 2 * self._options.max_messages_per_batch
            self._intake = QueueIntake(self._options, committed.done, room, committed.history)
        return self._intake


def _in(history: str, offset: Offset) -> Offset:
    """What an offset names in this history: nothing if it was made in another one."""
    return offset if goes_on(offset.history, history) else Offset(offset.queue, history=history)


def _packed(messages: Sequence[Delivery]) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ARROW) as stream:
        stream.write_batch(_rows(messages))
    return bytes(sink.getvalue())


def _rows(messages: Sequence[Delivery]) -> pa.RecordBatch:
    columns = [
        [each.body for each in messages],
        [_text(each.properties.message_id) for each in messages],
        [_headers(each.properties.headers) for each in messages],
        [each.exchange for each in messages],
        [_text(each.routing_key) for each in messages],
        [b"".join(each.properties.encode()) for each in messages],
        [each.redelivered for each in messages],
        [each.place for each in messages],
    ]
    return pa.record_batch(
        [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)], schema=ARROW
    )


def _headers(table: Mapping[str, Any] | None) -> list[tuple[str, str]] | None:
    """As text; what is exact stands in ``properties``."""
    return (
        None
        if table is None
        else [(str(_text(name)), value if isinstance(value, str) else str(value)) for name, value in table.items()]
    )


def _text(sent: str | bytes | None) -> str | None:
    """What pika gives as bytes is no UTF-8; a column of text takes it as the log does."""
    return text_of(sent) if isinstance(sent, bytes) else sent
