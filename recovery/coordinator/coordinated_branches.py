"""Two-phase commit: what is done at several resources in one transaction takes effect at all of them, or at none.

    prepare each in turn, but the last behind the transaction's intent; record the commit, commit each in the same
    order, forget

The record is the moment of the decision. Before it, whatever breaks, the transaction is rolled back: by the
coordinator, or by a recovery run, which presumes that what has no record was aborted. Behind it, it is
committed: by the coordinator, or by a recovery run, which reads the record.

Who comes first in turn? A database: it can still refuse (a deferred constraint), and who is sent a message finds the
rows that belong to it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

from recovery.coordinator.decisions import (
    LONGEST_TRANSACTION,
    TOO_OLD,
    DecisionRefused,
    Decisions,
    DecisionUnknown,
    FencedDecisions,
)
from recovery.coordinator.names import branch_xid
from recovery.coordinator.resources import (
    LEFT,
    BranchRolledBack,
    Participant,
    Resource,
    ResourceLost,
    ResourceRefused,
)
from recovery.coordinator.steps import Reached, unwatched
from recovery.dtx.errors import HeuristicOutcome, OutcomeUnknown, RolledBack
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

PATIENCE = 10.0
"""Seconds for which a commit waits for a resource that was lost behind the decision; then a recovery run must do it."""
RETRY_SECONDS = 0.1
NO_FATES: Mapping[str, BranchOutcome] = MappingProxyType({})


class TransactionRolledBack(RolledBack):
    """Raised when a coordinator's transaction was rolled back, or will be where it could not be yet.

    The cause (``__cause__``) says why.
    """


class HeuristicTransaction(HeuristicOutcome):
    """Raised when a coordinator's transaction is committed, and a branch of it may not be.

    An operator had rolled it back (``outcome`` is MIXED), or its resource does not know any more how it ended
    (UNKNOWN); ``fates`` tells, by resource. It stays in the log, and recovery runs report it, until one is told to
    forget it.
    """

    def __init__(self, name: str, fates: Mapping[str, BranchOutcome] = NO_FATES) -> None:
        said = f"{name}: " + ", ".join(f"{who} is {fate.word}" for who, fate in fates.items()) if fates else name
        mixed = any(fate.contradicts(True) for fate in fates.values())
        super().__init__(said, BranchOutcome.MIXED if mixed else BranchOutcome.UNKNOWN)
        self.fates = dict(fates)


class CoordinatedBranches:
    """The branches of one global transaction; ``resources`` in turn, each under the name of its part in the work.

    The last of ``resources`` is the one whose branch tells an older copy of the decisions from the right one.

    ``patience``: seconds for which a commit waits for a resource that was lost behind the decision.
    ``reached``: for tests; it is told each step by name.
    """

    def __init__(
        self,
        decisions: Decisions,
        resources: Mapping[str, Resource],
        patience: float = PATIENCE,
        reached: Reached = unwatched,
    ) -> None:
        self._last = list(resources)[-1] if resources else ""
        self._fence = decisions if isinstance(decisions, FencedDecisions) else None
        self.name = str(decisions.new_name() if self._fence is None else self._fence.fenced_name(self._last))
        self._decisions = decisions
        self._resources = resources
        self._patience = patience
        self._reached = reached
        self._began = time.clock_gettime(time.CLOCK_BOOTTIME)
        self._xids: dict[str, Xid] = {}
        self._ended = False
        self._participants: dict[str, Participant] = {}

    def begin(self, part: str) -> Xid:
        """Let a resource take part, if it does not yet; its branch. Raises ResourceLost."""
        if self._ended:
            raise ResourceLost(LEFT)
        if part not in self._xids:
            xid = branch_xid(self.name, part)
            self._resources[part].begin(xid)
            self._xids[part] = xid
            self._reached(f"{part} begun")
        return self._xids[part]

    def commit(self) -> None:
        """Commit everywhere. Raises TransactionRolledBack, OutcomeUnknown, HeuristicTransaction.

        When it returns, the transaction is committed: a resource that was lost behind the decision follows when it is
        there again, by ``finish`` or a recovery run.
        """
        parts, self._ended = self._in_turn(), True
        try:
            if len(parts) > 1:
                self._prepare()
        except BaseException as error:
            self.abandon()
            if isinstance(error, BranchRolledBack | ResourceLost | ResourceRefused | DecisionRefused | DecisionUnknown):
                raise TransactionRolledBack(str(error)) from error
            raise
        if len(parts) == 1:
            self._commit_in_one_phase()
        elif self._participants:
            try:
                self._decide()
                self._finish()
            except (TransactionRolledBack, HeuristicTransaction):
                raise
            except BaseException:
                self._leave()
                raise

    def _in_turn(self) -> list[tuple[str, Resource, Xid]]:
        return [(part, each, self._xids[part]) for part, each in self._resources.items() if part in self._xids]

    def _prepare(self) -> None:
        for part, resource, xid in self._in_turn():
            if self._fence is not None and part == self._last:
                self._fence.intend(self.name, list(self._participants.values()), resource.name)
            participant = resource.prepare(xid)
            if participant is None:
                del self._xids[part]
            else:
                self._participants[part] = participant
            self._reached(f"{part} prepared")

    def _commit_in_one_phase(self) -> None:
        [(part, resource, xid)] = self._in_turn()
        try:
            resource.commit_in_one_phase(xid)
        except BranchRolledBack as error:
            raise TransactionRolledBack(str(error)) from error
        except ResourceLost as error:
            raise OutcomeUnknown(f"{xid}: {error}") from error
        self._reached(f"{part} committed")

    def _decide(self) -> None:
        try:
            if time.clock_gettime(time.CLOCK_BOOTTIME) - self._began > LONGEST_TRANSACTION:
                raise DecisionRefused(TOO_OLD)
            stands = self._decisions.decide(self.name, True, list(self._participants.values()))
        except DecisionRefused as error:
            self.abandon()
            raise TransactionRolledBack(str(error)) from error
        except Exception as error:
            raise OutcomeUnknown(f"{self.name}: {error}") from error
        if not stands:
            self.abandon()
            raise TransactionRolledBack("a recovery run has rolled the transaction back")

    def _finish(self) -> None:
        fates: dict[str, BranchOutcome] = {}
        left = False
        deadline = time.monotonic() + self._patience
        for part, resource, xid in self._in_turn():
            participant = self._participants[part]
            fate = settled(resource, xid, True, participant.ticket, deadline)
            if fate is None:
                left = True
                continue
            fates[participant.resource] = fate
            self._reached(f"{part} committed")
        if not all(fate.confirms(True) for fate in fates.values()):
            raise HeuristicTransaction(self.name, fates)
        if not left:
            with suppress(DecisionRefused):  # a recovery run will find that there is nothing left to do
                self._decisions.finish(self.name)
            self._reached("finished")

    def _leave(self) -> None:
        """To a recovery run, which may come over the same resources."""
        for _, resource, _ in self._in_turn():
            resource.close()
        self._xids.clear()

    def abandon(self) -> None:
        """Roll back everywhere. What cannot be reached does by itself, or by a recovery run if it has prepared."""
        self._ended = True
        for _, resource, xid in self._in_turn():
            with suppress(ResourceLost, ResourceRefused):
                resource.abandon(xid)
        self._xids.clear()


def settled(resource: Resource, xid: Xid, commit: bool, ticket: str, deadline: float) -> BranchOutcome | None:
    """What became of a branch that is decided; None if it had to be left to a recovery run.

    ``deadline``: the monotonic time until which a lost resource is waited for.
    """
    while True:
        try:
            return resource.settle(xid, commit, ticket)
        except ResourceRefused:
            return None
        except ResourceLost:
            if time.monotonic() > deadline:
                return None
            time.sleep(RETRY_SECONDS)
