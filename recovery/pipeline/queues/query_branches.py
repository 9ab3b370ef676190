"""The branches of a query's batches: what is done to them by their names. What may be done, decisions say."""

from __future__ import annotations

import contextlib

from recovery.dtx.errors import Conflict, HeuristicCommit, HeuristicOutcome, RolledBack, UnknownXid
from recovery.dtx.with_pika import DtxConnection
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.batch_record import BatchRecord
from recovery.pipeline.queues.names import JOB, batch_of
from recovery.pipeline.queues.steps import reached
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Global, Xid

LEFT = (BranchOutcome.PREPARED, BranchOutcome.PENDING)
GONE_WRONG = (BranchOutcome.ROLLED_BACK, BranchOutcome.HEURISTICALLY_ROLLED_BACK)

NOTHING = "Nothing of the batch is committed; start the query again"
MAYBE = "Its rows may be in their queues, and would come twice if they were written again: look there first"


class QueryBranches:
    """Of one query, at the broker. Everything here can be done again."""

    def __init__(self, broker: DtxConnection, query: str) -> None:
        self._broker = broker
        self._query = query

    def check_prepared(self, wanted: BatchRecord) -> None:
        """Raises PipelineError if one that a decision would name is not prepared any more."""
        known = self._broker.branches(wanted.decided.globally).branches
        for name in wanted.branches:
            if (outcome := known.get(wanted.decided.branch(name), BranchOutcome.UNKNOWN)) is not BranchOutcome.PREPARED:
                raise PipelineError(
                    f"branch {wanted.decided.branch(name)} was prepared and is {outcome.name.lower()} now: another "
                    f"client has settled it. {NOTHING if self._was_rolled_back(outcome) else MAYBE}"
                )

    def _was_rolled_back(self, outcome: BranchOutcome) -> bool:
        """What was not decided yet. Of a job that was decided and carried out nothing is known, either."""
        gone = outcome in (BranchOutcome.UNKNOWN, BranchOutcome.EXPIRED) and not self._query.startswith(JOB)
        return gone or outcome in GONE_WRONG

    def finish(self, record: BatchRecord) -> None:
        """Commit its branches, and forget how they ended. Done before, it does nothing.

        Raises PipelineError if an operator rolled one back, OperationalError.
        """
        known = self._broker.branches(record.decided.globally).branches
        for name in record.branches:
            xid = record.decided.branch(name)
            if (outcome := known.get(xid)) is None:  # it was committed, and forgotten
                continue
            if outcome in LEFT:
                outcome = self._commit(xid)
                reached("one committed")
            if outcome in GONE_WRONG:
                raise PipelineError(
                    f"branch {xid} was rolled back by another client, though batch {record.batch} is decided: its rows "
                    f"are lost. To go on without them: txha dtx forget {xid}"
                )
            self.forget(xid)

    def _commit(self, xid: Xid) -> BranchOutcome:
        try:
            self._broker.tpc_commit(xid)
        except HeuristicCommit:
            return BranchOutcome.HEURISTICALLY_COMMITTED
        except (HeuristicOutcome, RolledBack):
            return BranchOutcome.HEURISTICALLY_ROLLED_BACK
        except UnknownXid:
            return BranchOutcome.EXPIRED
        return BranchOutcome.COMMITTED

    def forget(self, name: Xid | Global) -> None:
        """How it ended. Forgotten before, it is no error."""
        with contextlib.suppress(UnknownXid):
            self._broker.forget(name)

    def prepared(self) -> list[Xid]:
        """The branches of this query that are prepared."""
        ours = [(xid, batch_of(xid)) for xid in self._broker.tpc_recover()]
        return [xid for xid, batch in ours if batch is not None and batch.query == self._query]

    def roll_back(self, xid: Xid) -> None:
        """End a branch that no decision names. What is gone already is no error."""
        with contextlib.suppress(UnknownXid, Conflict, HeuristicOutcome):
            self._broker.tpc_rollback(xid)
            self.forget(xid)
