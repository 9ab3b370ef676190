"""What drivers that never came back have left prepared, and what becomes of it without them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import NamedTuple

from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.queues.batch_decisions import BatchDecisions, RecordElsewhere
from recovery.pipeline.queues.batch_record import BatchRecord
from recovery.pipeline.queues.names import JOB, batch_of
from txobserver.xid import Xid

COMMITTED, ROLLED_BACK, UNDECIDED = "committed", "rolled back", "undecided"
ELSEWHERE = "record elsewhere"
"""A client has taken the query's record out of its queue: what was decided cannot be known until it is put back."""


class Left(NamedTuple):
    """A branch that was found prepared, and what became of it."""

    query: str
    batch: int
    branch: str
    state: str


def settle(hosts: Sequence[str], give_up: Collection[str], patience: float) -> list[Left]:
    """Carry out what was decided, and roll back what lost; branches of batches without a decision stay as they are.

    They belong to a driver that is at work, or to one that may come again. Of the queries in ``give_up`` they are
    rolled back: only for those that never will. A query whose record is held by a client is left as it is.
    Raises PipelineError if a driver holds a record and does not let go, recovery.dtx.errors.OperationalError.
    """
    with DtxConnection(*hosts, patience=patience) as broker:
        found = [(xid, batch) for xid in broker.tpc_recover() if (batch := batch_of(xid)) is not None]
    left: list[Left] = []
    for query in sorted({batch.query for _, batch in found}):
        ours = [(xid, batch.number) for xid, batch in found if batch.query == query]
        with BatchDecisions(hosts, query, patience) as decisions:
            left += decisions.under_one_lock(partial(_settle, decisions, ours, query in give_up))
    return left


def _settle(decisions: BatchDecisions, found: Sequence[tuple[Xid, int]], given_up: bool) -> list[Left]:
    """Of one query."""
    query = decisions.query
    try:
        record = decisions.record()
    except RecordElsewhere:
        return [Left(query, batch, xid.bqual.decode(), ELSEWHERE) for xid, batch in found]
    if record is not None:
        decisions.branches.finish(record)
    left = []
    for xid, batch in found:
        state = _state(xid, batch, record, given_up)
        if state == ROLLED_BACK:
            decisions.branches.roll_back(xid)
        left.append(Left(query, batch, xid.bqual.decode(), state))
    if record is None or query.startswith(JOB):
        decisions.drop()
    return left


def _state(xid: Xid, batch: int, record: BatchRecord | None, given_up: bool) -> str:
    if record is None or batch > record.batch:
        return ROLLED_BACK if given_up else UNDECIDED
    named = batch == record.batch and xid.bqual.decode() in record.branches
    return COMMITTED if named else ROLLED_BACK
