"""A client's side of two-phase commit: PEP 249's ``tpc_*`` as conversations, with what follows from a lost answer.

Promise: each method does what it says, or raises; what it raises says whether the branch has ended, and how. A request
whose answer was lost is never simply sent again: the outcome is asked for first, and only a branch that still waits
for the request gets it again. That is right because an xid names one branch for ever, and because the same decision
twice is one decision.

A branch of which nothing had reached the stream leaves no trace when it is rolled back. So UNKNOWN and EXPIRED mean
"rolled back" wherever no client can have committed: after a lost prepare, and after a lost rollback. After a lost
commit in one phase, EXPIRED may also be a commit that is not remembered any more; that is told as it is. It is told
seldom: the question says how far the broker was when the branch began, and only what was forgotten behind that counts.

While the broker has not noticed that an earlier connection is gone, the request on it may still arrive, and the
branch may still be worked on (409). Both pass, so the question is repeated.
"""

from __future__ import annotations

import contextlib

from recovery.dtx.arguments import check_timeout, fields_of
from recovery.dtx.conversation import Lost, Refused, Steps
from recovery.dtx.errors import (
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
)
from recovery.dtx.others import OtherBranches
from recovery.dtx.settling import NOT_THERE, Closing, Settling, checked
from txobserver import dtx_wire as dtx
from txobserver.outcomes import XaStatus
from txobserver.table import Table
from txobserver.xid import Xid

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


class TwoPhase(Settling):
    """One branch after the other on a channel in dtx mode. ``xid`` is that of the branch at hand, None for none.

    ``others``: what may be done with all others while none is at hand.
    """

    def __init__(self, patience: float) -> None:
        super().__init__(patience)
        self.xid: Xid | None = None
        self.state = CLIENT_TABLE.start
        self.others = OtherBranches(patience, self._check_idle)
        self._since = 0

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
        outcome = yield from self.others.outcome(xid)
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
        self._move("nothing to prepare" if status is XaStatus.READ_ONLY else "prepare")
        return status is not XaStatus.READ_ONLY

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
                yield from self.settle(xid, dtx.Rollback(fields_of(xid)), self._since, lost=True)
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

    def _end_and_ask(self, xid: Xid, request: Closing) -> Steps[XaStatus]:
        """End the association, and ask. Raises RolledBack, with the state moved, and OutcomeUnknown."""
        try:
            yield from self._end(xid)
            status = XaStatus((yield from self.ask(request)).status)
        except Lost:
            status = yield from self.settle(xid, request, self._since, lost=True)
        except RolledBack:
            self._move("refused")
            raise
        if status in (XaStatus.ROLLED_BACK, XaStatus.TIMED_OUT):
            self._move("refused")
            timed_out = status is XaStatus.TIMED_OUT
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
        """A branch that ended with its channel frees its name once a client has asked for it."""
        with contextlib.suppress(Lost, Refused):
            yield dtx.Rollback(fields_of(xid))
            return
        with contextlib.suppress(Lost):
            yield from self.reopen(self.deadline())

    def _check_idle(self, what: str) -> None:
        if self.state != IDLE:
            raise ProgrammingError(f"branch {self.xid} has not ended: {what} others when it has")

    def _decide(self, xid: Xid, request: dtx.Commit | dtx.Rollback) -> Steps[None]:
        """A branch that was prepared here."""
        try:
            checked(xid, XaStatus((yield from self.ask(request)).status))
        except (Lost, UnknownXid):
            try:
                yield from self.settled(xid, request, self._since, lost=True)
            except RolledBack:
                self._move("refused")
                raise
