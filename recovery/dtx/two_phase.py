"""A client's side of two-phase commit: PEP 249's ``tpc_*`` as conversations, with what follows from a lost answer.

Promise: each method does what it says, or raises; what it raises says whether the branch has ended, and how. A request
whose answer was lost is never simply sent again: the outcome is asked for first, and only a branch that still waits
for the request gets it again. That is right because an xid names one branch for ever, and because the same decision
twice is one decision.

A branch of which nothing had reached the stream leaves no trace when it is rolled back. So UNKNOWN and EXPIRED mean
"rolled back" wherever nobody can have committed: after a lost prepare, and after a lost rollback. After a lost commit
in one phase, EXPIRED may also be a commit that is not remembered any more; that is told as it is. It is told seldom:
the question says how far the broker was when the branch began, and only what was forgotten behind that counts.

While the broker has not noticed that an earlier connection is gone, the request on it may still arrive, and the
branch may still be worked on (409). Both pass, so the question is repeated.
"""

from __future__ import annotations

import contextlib
from typing import NamedTuple, TypeAlias

from recovery.dtx.arguments import check_timeout, checked_decision, checked_global, fields_of
from recovery.dtx.conversation import Conversation, Lost, Patience, Refused, Steps
from recovery.dtx.errors import (
    HEURISTIC,
    Conflict,
    DatabaseError,
    HeuristicOutcome,
    OperationalError,
    OutcomeUnknown,
    ProgrammingError,
    RolledBack,
    StaleDelivery,
    TimedOut,
    UnknownXid,
    heuristic,
)
from txobserver import dtx_wire as dtx
from txobserver.outcomes import Outcome, Status
from txobserver.table import Table
from txobserver.xid import Global, Xid

IDLE, ACTIVE, PREPARED, READ_ONLY = "idle", "active", "prepared", "read-only"
ROLLED_BACK, IN_DOUBT = "rolled back", "in doubt"

CLIENT_TABLE: Table[str, str] = Table(
    "client",
    IDLE,
    {
        (IDLE, "begin"): ACTIVE,
        (ACTIVE, "prepare"): PREPARED,
        (ACTIVE, "nothing to prepare"): READ_ONLY,
        **{(state, "refused"): ROLLED_BACK for state in (ACTIVE, PREPARED)},
        (ACTIVE, "prepare unanswered"): IN_DOUBT,
        **{(state, "commit"): IDLE for state in (ACTIVE, PREPARED, READ_ONLY)},
        **{(state, "rollback"): IDLE for state in (ACTIVE, PREPARED, READ_ONLY, ROLLED_BACK, IN_DOUBT)},
        **{(state, "left"): IDLE for state in (ACTIVE, PREPARED, IN_DOUBT)},
    },
)
"""The branch of a connection. ``left``: it has not ended as was asked, and is named by its xid from then on."""

DECISIONS = {number: outcome for outcome, number in dtx.DECISIONS.items()}
OPEN = (Outcome.ACTIVE, Outcome.ROLLED_BACK)
"""A branch that is not prepared; ROLLED_BACK: it is rollback-only, and the next request is told why."""

NOT_THERE = (Outcome.UNKNOWN, Outcome.EXPIRED)

Closing: TypeAlias = dtx.Prepare | dtx.Commit | dtx.Rollback
"""Requests after which nobody works on the branch any more."""


class GlobalState(NamedTuple):
    """A global transaction: its ``decision`` (UNKNOWN for none), and what became of each branch."""

    decision: Outcome
    branches: dict[Xid, Outcome]


class TwoPhase(Conversation):
    """One branch after the other on a channel in dtx mode. ``xid`` is that of the branch at hand, None for none."""

    def __init__(self, patience: float) -> None:
        super().__init__(patience)
        self.xid: Xid | None = None
        self.state = CLIENT_TABLE.start
        self._since = 0

    # -- the branch at hand

    def begin(self, xid: Xid, timeout: int | None = None) -> Steps[None]:
        """tpc_begin. ``timeout`` in seconds; None leaves it to the broker."""
        if not CLIENT_TABLE.allows(self.state, "begin"):
            raise ProgrammingError(f"branch {self.xid} has not ended: it is {self.state}")
        check_timeout(timeout)
        try:
            self._since = (yield from self.ask(dtx.Start(fields_of(xid)))).since
        except Lost:
            yield from self._begin_again(xid)
        self.xid = xid
        self._move("begin")
        if timeout is not None:
            try:
                yield from self.ask(dtx.SetTimeout(fields_of(xid), timeout))
            except (Lost, DatabaseError) as error:
                yield from self._tell(xid)
                self._move("left")
                if isinstance(error, Lost):
                    raise OperationalError(f"the connection was lost: {error}") from error
                raise

    def _begin_again(self, xid: Xid) -> Steps[None]:
        """The connection had been lost, maybe long ago: begin on another one if the branch has not been begun.

        Not with messages in hand that the lost one had delivered: what is acknowledged on another one is another
        message.
        """
        if (yield from self.connect()):
            raise StaleDelivery("the connection was lost, and what it delivered and was not settled is delivered again")
        outcome = yield from self.outcome(xid)
        if outcome not in NOT_THERE:
            raise OperationalError(f"the connection was lost; branch {xid} is {outcome.name.lower()} and cannot go on")
        try:
            self._since = (yield from self.ask(dtx.Start(fields_of(xid)))).since
        except Lost as loss:
            raise OperationalError(f"the connection was lost: {loss}") from loss

    def prepare(self) -> Steps[bool]:
        """tpc_prepare. Whether there is anything to commit; if not, the branch has ended."""
        xid = self._at_hand("prepare")
        try:
            status = yield from self._end_and_ask(xid, dtx.Prepare(fields_of(xid)))
        except OutcomeUnknown:
            self._move("prepare unanswered")
            raise
        self._move("nothing to prepare" if status is Status.READ_ONLY else "prepare")
        return status is not Status.READ_ONLY

    def commit(self) -> Steps[None]:
        """tpc_commit without an xid: in two phases, or in one if the branch is not prepared."""
        xid = self._at_hand("commit")
        try:
            if self.state == ACTIVE:
                yield from self._end_and_ask(xid, dtx.Commit(fields_of(xid), one_phase=True))
            elif self.state == PREPARED:
                yield from self._decide(xid, dtx.Commit(fields_of(xid)))
        except (OutcomeUnknown, HeuristicOutcome, Conflict, UnknownXid):
            self._move("left")
            raise
        self._move("commit")

    def rollback(self) -> Steps[None]:
        """tpc_rollback without an xid."""
        xid = self._at_hand("rollback")
        try:
            if self.state == ACTIVE:
                with contextlib.suppress(RolledBack):
                    yield from self._end_and_ask(xid, dtx.Rollback(fields_of(xid)))
            elif self.state == PREPARED:
                yield from self._decide(xid, dtx.Rollback(fields_of(xid)))
            elif self.state == IN_DOUBT:
                yield from self._settle(xid, dtx.Rollback(fields_of(xid)), lost=True)
        except (OutcomeUnknown, HeuristicOutcome, Conflict):
            self._move("left")
            raise
        self._move("rollback")

    def _at_hand(self, event: str) -> Xid:
        if self.xid is None or not CLIENT_TABLE.allows(self.state, event):
            raise ProgrammingError(f"there is nothing to {event}: the branch of this connection is {self.state}")
        return self.xid

    def _move(self, event: str) -> None:
        self.state = CLIENT_TABLE.next(self.state, event)
        if self.state == IDLE:
            self.xid = None

    def _end_and_ask(self, xid: Xid, request: Closing) -> Steps[Status]:
        """End the association, and ask. Raises RolledBack, with the state moved, and OutcomeUnknown."""
        try:
            yield from self._end(xid)
            status = Status((yield from self.ask(request)).status)
        except Lost:
            status = yield from self._settle(xid, request, lost=True)
        except RolledBack:
            self._move("refused")
            raise
        if status in (Status.ROLLED_BACK, Status.TIMED_OUT):
            self._move("refused")
            timed_out = status is Status.TIMED_OUT
            raise (TimedOut if timed_out else RolledBack)(
                f"branch {xid} was rolled back" + (": it was not prepared in time" if timed_out else "")
            )
        return status

    def _end(self, xid: Xid) -> Steps[None]:
        """dtx.end. That the channel is closed here means that work in the branch was refused: RolledBack."""
        try:
            yield from self.ask(dtx.End(fields_of(xid)))
        except DatabaseError as error:
            yield from self._tell(xid)
            raise RolledBack(f"branch {xid} was rolled back: {error}", error.code) from error

    def _tell(self, xid: Xid) -> Steps[None]:
        """A branch that ended with its channel frees its name once somebody has asked for it."""
        with contextlib.suppress(Lost, Refused):
            yield dtx.Rollback(fields_of(xid))
            return
        with contextlib.suppress(Lost):
            yield from self.reopen(self.patience())

    # -- any branch

    def commit_other(self, xid: Xid) -> Steps[None]:
        """tpc_commit with an xid. One that has been committed already is no error."""
        self._check_idle("commit")
        yield from self._settled(xid, dtx.Commit(fields_of(xid)))

    def rollback_other(self, xid: Xid) -> Steps[None]:
        """tpc_rollback with an xid."""
        self._check_idle("roll back")
        yield from self._settled(xid, dtx.Rollback(fields_of(xid)))

    def _check_idle(self, what: str) -> None:
        if self.state != IDLE:
            raise ProgrammingError(f"branch {self.xid} has not ended: {what} others when it has")

    def _decide(self, xid: Xid, request: dtx.Commit | dtx.Rollback) -> Steps[None]:
        """A branch that was prepared here."""
        try:
            _checked(xid, Status((yield from self.ask(request)).status))
        except (Lost, UnknownXid):
            try:
                yield from self._settled(xid, request, lost=True)
            except RolledBack:
                self._move("refused")
                raise

    def _settled(self, xid: Xid, request: dtx.Commit | dtx.Rollback, lost: bool = False) -> Steps[None]:
        """As ``_settle``. Raises RolledBack if it was that instead of committed."""
        status = yield from self._settle(xid, request, lost)
        if status is not Status.OK and isinstance(request, dtx.Commit):
            raise RolledBack(f"branch {xid} was rolled back")

    def _settle(self, xid: Xid, request: Closing, lost: bool = False) -> Steps[Status]:
        """Ask what has become of the branch, and make the request if it still waits for that; the request's status.

        ``lost``: the branch is ours, and the request may have arrived before.
        """
        patience = self.patience()
        while True:
            outcome = None
            try:
                outcome = yield from self._hear(xid, patience)
                if _waits_for(request, outcome):
                    return _checked(xid, Status((yield from self.ask(request)).status))
            except Lost:
                lost = True
            except UnknownXid:  # it has ended between question and request
                if outcome is Outcome.ROLLED_BACK:
                    return Status.OK if isinstance(request, dtx.Rollback) else Status.ROLLED_BACK
            except Conflict:
                if not (lost and outcome in OPEN):  # it may be worked on by a connection that is gone, for a while
                    raise
            else:
                if outcome is not Outcome.PENDING:
                    return _status(xid, request, outcome, lost)
            yield from patience.wait(f"branch {xid}")

    # -- questions

    def _hear(self, xid: Xid, patience: Patience) -> Steps[Outcome]:
        """The outcome, on a channel that is opened anew if need be. Raises Lost."""
        yield from self.reopen(patience)
        question = dtx.Outcome(dtx.BY_XID, fields_of(xid), self._since if xid == self.xid else 0)
        patience.outcome = Outcome((yield from self.ask(question)).outcome)
        return patience.outcome

    def outcome(self, xid: Xid) -> Steps[Outcome]:
        """What is known of a branch."""
        self._check_idle("ask for")
        return Outcome((yield from self.insist(dtx.Outcome(dtx.BY_XID, fields_of(xid)))).outcome)

    def recover(self) -> Steps[list[Xid]]:
        """tpc_recover: prepared, or decided by an operator and not forgotten."""
        self._check_idle("list")
        while True:
            found: list[Xid] = []
            answer = yield from self.insist(dtx.Recover())
            with contextlib.suppress(Lost):  # the pages are those of one channel: begin again
                found += (Xid(*xid) for xid in dtx.unpack_xids(answer.xids))
                while answer.more:
                    answer = yield from self.ask(dtx.Recover(True))
                    found += (Xid(*xid) for xid in dtx.unpack_xids(answer.xids))
                return found

    # -- global transactions

    def decide(self, which: Global, commit: bool) -> Steps[None]:
        """One durable record for all its branches."""
        self._check_idle("decide on")
        request = dtx.Decide(*checked_global(which), checked_decision(commit))
        _checked(which, Status((yield from self.insist(request)).status))

    def look(self, which: Global) -> Steps[GlobalState]:
        """Its decision and its branches."""
        self._check_idle("look at")
        while True:
            answer = yield from self.insist(dtx.Global(*checked_global(which)))
            found = dtx.unpack_states(answer.branches)
            with contextlib.suppress(Lost):
                while answer.more:
                    answer = yield from self.ask(dtx.Global(which.format_id, which.gtrid, True))
                    found += dtx.unpack_states(answer.branches)
                branches = {Xid(*xid): Outcome(outcome) for xid, outcome in found}
                return GlobalState(DECISIONS.get(answer.decision, Outcome.UNKNOWN), branches)

    def forget(self, name: Xid | Global) -> Steps[None]:
        """How it ended is not needed any more."""
        self._check_idle("forget")
        request = dtx.ForgetGlobal(*name) if isinstance(name, Global) else dtx.Forget(fields_of(name))
        again = False
        while True:
            try:
                yield from self.ask(request)
                return
            except Lost:
                yield from self.connect()
                again = True
            except UnknownXid:
                if again:
                    return
                raise


def _waits_for(request: Closing, outcome: Outcome) -> bool:
    """Whether a branch of which this is known can be given the request."""
    if isinstance(request, dtx.Rollback):
        return outcome in (*OPEN, Outcome.PREPARED)
    one_phase = isinstance(request, dtx.Commit) and request.one_phase
    return outcome in OPEN if one_phase or isinstance(request, dtx.Prepare) else outcome is Outcome.PREPARED


def _status(xid: Xid, request: Closing, outcome: Outcome, lost: bool) -> Status:
    """What a branch that waits for nothing of this kind says about the request."""
    if outcome in NOT_THERE:
        return _status_of_none(xid, request, outcome, lost)
    if isinstance(request, dtx.Prepare):
        return Status.OK  # it was prepared, whatever was decided since
    if outcome in HEURISTIC:
        raise heuristic(f"branch {xid}", outcome)
    if isinstance(request, dtx.Commit) and outcome in (Outcome.COMMITTED, Outcome.ROLLED_BACK):
        return Status.OK if outcome is Outcome.COMMITTED else Status.ROLLED_BACK
    raise Conflict(f"branch {xid} is {outcome.name.lower().replace('_', ' ')}")


def _status_of_none(xid: Xid, request: Closing, outcome: Outcome, lost: bool) -> Status:
    """The same for one that is not there."""
    if not lost:
        raise UnknownXid(f"there is no branch {xid}; its outcome is: {outcome.name.lower()}")
    if isinstance(request, dtx.Rollback):
        return Status.OK
    if isinstance(request, dtx.Commit) and not request.one_phase:
        raise OutcomeUnknown(f"branch {xid} is gone: somebody else has rolled it back, or forgotten it", outcome)
    if isinstance(request, dtx.Commit) and outcome is Outcome.EXPIRED:
        raise OutcomeUnknown(f"how branch {xid} ended is not remembered (any more)", outcome)
    return Status.ROLLED_BACK


def _checked(name: Xid | Global, status: Status) -> Status:
    """The status, unless an operator has decided before."""
    if status in HEURISTIC:
        raise heuristic(f"{'branch' if isinstance(name, Xid) else 'global transaction'} {name}", status)
    return status
