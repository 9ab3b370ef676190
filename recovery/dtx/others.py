"""What a client may do with branches and global transactions that it knows by name, while it works on none itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from recovery.dtx.arguments import checked_decision, checked_global, fields_of
from recovery.dtx.conversation import Lost, Steps
from recovery.dtx.errors import UnknownXid
from recovery.dtx.settling import Settling, checked
from txobserver import dtx_wire as dtx
from txobserver.outcomes import BranchOutcome, GlobalState, XaStatus
from txobserver.xid import Global, Xid

DECISIONS = {number: outcome for outcome, number in dtx.DECISIONS.items()}


class OtherBranches(Settling):
    """All but the one at hand. ``check_idle``: raises ProgrammingError, with what is wanted, while there is such."""

    def __init__(self, patience: float, check_idle: Callable[[str], None]) -> None:
        super().__init__(patience)
        self._check_idle = check_idle

    def commit(self, xid: Xid) -> Steps[None]:
        """tpc_commit with an xid. One that has been committed already is no error."""
        self._check_idle("commit")
        yield from self.settled(xid, dtx.Commit(fields_of(xid)))

    def rollback(self, xid: Xid) -> Steps[None]:
        """tpc_rollback with an xid."""
        self._check_idle("roll back")
        yield from self.settled(xid, dtx.Rollback(fields_of(xid)))

    def outcome(self, xid: Xid) -> Steps[BranchOutcome]:
        """What is known of a branch."""
        self._check_idle("ask for")
        return BranchOutcome((yield from self.insist(dtx.Outcome(dtx.BY_XID, fields_of(xid)))).outcome)

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

    def decide(self, which: Global, commit: bool) -> Steps[None]:
        """One durable record for all its branches."""
        self._check_idle("decide on")
        request = dtx.Decide(*checked_global(which), checked_decision(commit))
        checked(which, XaStatus((yield from self.insist(request)).status))

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
                branches = {Xid(*xid): BranchOutcome(outcome) for xid, outcome in found}
                return GlobalState(DECISIONS.get(answer.decision, BranchOutcome.UNKNOWN), branches)

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
