"""Faults that source and sink once had, put back on purpose, to see that drawn cases find them.

Each is put in front of the code as it is now, in this process and in the drivers that it starts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any
from unittest import mock

from recovery.dtx.conversation import Deadline
from recovery.dtx.errors import OperationalError, RolledBack
from recovery.dtx.lost import LOST
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues import queue_intake, settle, sink
from recovery.pipeline.queues.batch_decisions import BatchDecisions, RecordElsewhere, decided_by
from recovery.pipeline.queues.batch_record import BatchRecord
from recovery.pipeline.queues.kept import Taken
from recovery.pipeline.queues.options import SinkOptions
from recovery.pipeline.queues.queue_intake import QueueIntake
from recovery.pipeline.queues.rows import RowToPublish


def _undelivered_is_gone() -> Any:
    """What is committed, and is not delivered while something later is, is taken for gone."""
    settled = QueueIntake.settle

    def settle_and_drop(intake: QueueIntake, *arguments: Any) -> None:
        settled(intake, *arguments)
        with intake._lock:
            here, settlements = intake._here, intake.settlements
            settlements.done = {each for each in settlements.done if each in here.places or each > here.highest}

    return mock.patch.object(QueueIntake, "settle", settle_and_drop)


def _returns_behind_prepare() -> Any:
    """Rows that no queue took are looked for when the branch is prepared."""

    def publish_and_prepare(broker: DtxConnection, first: RowToPublish, others: Any, options: SinkOptions) -> bool:
        returned: list[object] = []
        channel = broker.channel
        channel.add_on_return_callback(lambda channel, method, properties, body: returned.append(method))
        for message in (first, *islice(others, options.rows_per_branch - 1)):
            channel.basic_publish(*message, options.mandatory)
        try:
            prepared = broker.tpc_prepare()
            broker.connection.process_data_events(0)
        except RolledBack:
            broker.tpc_rollback()
            raise
        if returned:
            broker.tpc_rollback()
            raise PipelineError(f"{len(returned)} rows were taken by no queue, the first: {returned[0]}")
        return prepared

    return mock.patch.object(sink, "_publish_and_prepare", publish_and_prepare)


def _elsewhere_is_none() -> Any:
    """``settle-spark`` takes a record that an operator holds for none, and deletes its queue."""

    class Careless(BatchDecisions):
        def record(self) -> BatchRecord | None:
            try:
                return super().record()
            except RecordElsewhere:
                return None

    return mock.patch.object(settle, "BatchDecisions", Careless)


def _empty_is_none() -> Any:
    """A driver takes an empty queue for no record as soon as no change of it is on its way."""

    def take(decisions: BatchDecisions, deadline: Deadline) -> Taken:
        while True:
            try:
                held = decisions._kept.take(decisions._broker.channel)
                if held is None:
                    decisions._wait_for_changes(deadline)
                    held = decisions._kept.take(decisions._broker.channel)
                return Taken(decisions._broker.channel) if held is None else held
            except LOST:
                if deadline.over:
                    raise
                decisions._broker.reconnect()

    return mock.patch.object(BatchDecisions, "_take", take)


def _anothers_is_ones_own() -> Any:
    """A driver whose answer was lost takes the decision that has the one xid for its own, whichever driver made it."""
    change = BatchDecisions._change

    def change_and_believe(decisions: BatchDecisions, held: Taken, wanted: BatchRecord, first: bool) -> BatchRecord:
        before = decided_by(held)
        try:
            return change(decisions, held, wanted, first)
        except OperationalError as error:
            if "the answer to a change of the record was lost" not in str(error):
                raise
            return wanted if before is None else BatchRecord(wanted.query, wanted.batch, wanted.branches, before.batch)

    return mock.patch.object(BatchDecisions, "_change", change_and_believe)


def _any_history_is_ones_own() -> Any:
    """Places are taken for those of the same messages, though a loss of data was accepted since."""
    return mock.patch.object(queue_intake, "history_of", lambda told: "")


def _full_is_the_end() -> Any:
    """A source that is full of what Spark has committed gives up, though it could settle that."""
    make_room = QueueIntake._make_room

    def make_room_or_give_up(intake: QueueIntake) -> None:
        with mock.patch.object(intake.settlements, "settle", lambda *arguments: None):
            make_room(intake)

    return mock.patch.object(QueueIntake, "_make_room", make_room_or_give_up)


FAULTS: dict[str, Callable[[], Any]] = {
    "undelivered-is-gone": _undelivered_is_gone,
    "returns-behind-prepare": _returns_behind_prepare,
    "elsewhere-is-none": _elsewhere_is_none,
    "empty-is-none": _empty_is_none,
    "anothers-is-ones-own": _anothers_is_ones_own,
    "any-history-is-ones-own": _any_history_is_ones_own,
    "full-is-the-end": _full_is_the_end,
}
"""By name."""


@contextlib.contextmanager
def put_back(name: str | None) -> Iterator[None]:
    """While this is open, the fault is there. None is no fault."""
    if name is None:
        yield
    else:
        with FAULTS[name]():
            yield
