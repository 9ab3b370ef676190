"""What coordinators and operators ask for whole branches: prepare, commit, rollback, forget, recover, global decisions.

The checks are those of AMQP 0-10's class dtx. What has to wait for the ledger is answered through ``reply``, unless the
channel has ended meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker_plugin.embedded.errors import dtx_error
from broker_plugin.embedded.operations.requester import Requester
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.transactions.branch import DECIDING, ENDED, IDLE, PREPARED, ROLLBACK_ONLY, Branch
from broker_plugin.embedded.transactions.branch_table import HEURISTIC
from txobserver.outcomes import BranchOutcome, GlobalState, XaStatus
from txobserver.ports.ledger import Done
from txobserver.xid import Global, Xid

Reply = Callable[[XaStatus], None]
"""Told the status that answers the request."""


class BranchOperations:
    """The operations on one broker's branches.

    Many methods: one for each verb of coordinators and operators, and for what each of them comes to in the end.
    """

    def __init__(self, broker: Serving) -> None:
        self._broker = broker

    # -- one branch

    def prepare(self, channel: Requester, xid: Xid, reply: Reply) -> None:
        """dtx.prepare. A branch in which nothing durable was done has nothing to prepare: it ends, READ_ONLY.

        One that cannot be prepared has been rolled back: ROLLED_BACK.
        """
        branch = self._broker.branches.find_idle(xid)
        if branch.state == ROLLBACK_ONLY:
            self._tell(branch, reply)
            return
        if branch.state != IDLE:
            raise dtx_error(409, f"branch {xid} cannot be prepared: it is {branch.state}")
        branch.move("prepare")
        branch.tell_settled(self._broker.turn, partial(self._all_told, channel, branch, reply))

    def _all_told(self, channel: Requester, branch: Branch, reply: Reply) -> None:
        """Its tx-queue holds everything: prepare."""
        branch.observer.prepare(partial(self._prepared, channel, branch, reply, branch.observer.empty))

    def _prepared(self, channel: Requester, branch: Branch, reply: Reply, empty: bool, error: str | None) -> None:
        turn, status = self._broker.turn, XaStatus.OK
        if error is not None:
            if branch.state != ENDED:  # a vote that failed late has ended it as a prepared one already
                self._broker.branches.leave(branch, "refused")
                branch.give_back(turn)
            status = XaStatus.ROLLED_BACK
        elif empty:
            self._broker.branches.leave(branch, "refused")
            branch.apply_local(turn)
            status = XaStatus.READ_ONLY
        branch.when_ended(partial(_answer, channel, reply, status))

    def commit(self, channel: Requester, xid: Xid, one_phase: bool, reply: Reply) -> None:
        """dtx.commit. What an operator decided meanwhile is told instead."""
        if (completed := self._broker.branches.completed(xid)) is not None:
            reply(completed)
            return
        branch = self._broker.branches.find_idle(xid)
        if self._joins_operator(channel, branch, reply):
            return
        if not one_phase:
            if branch.state not in (PREPARED, DECIDING):
                raise dtx_error(409, f"branch {xid} is not prepared but {branch.state}: prepare it, or use one phase")
            self._decide(channel, branch, True, reply)
        elif branch.state == ROLLBACK_ONLY:
            self._tell(branch, reply)
        elif branch.state != IDLE:
            raise dtx_error(409, f"branch {xid} cannot be committed in one phase: it is {branch.state}")
        else:
            branch.move("commit in one phase")
            committed = partial(self._committed, channel, branch, reply)
            branch.tell_settled(self._broker.turn, partial(branch.observer.commit_one_phase, committed))

    def _committed(self, channel: Requester, branch: Branch, reply: Reply, error: str | None) -> None:
        if error is None:
            self._broker.branches.leave(branch, "decided")
            branch.apply_local(self._broker.turn)
        else:
            self._broker.branches.leave(branch, "refused")
            branch.give_back(self._broker.turn)
        status = XaStatus.OK if error is None else XaStatus.ROLLED_BACK
        branch.when_ended(partial(_answer, channel, reply, status))

    def rollback(self, channel: Requester, xid: Xid, reply: Reply) -> None:
        """dtx.rollback. What an operator decided meanwhile is told instead."""
        if (completed := self._broker.branches.completed(xid)) is not None:
            reply(completed)
            return
        branch = self._broker.branches.find_idle(xid)
        if self._joins_operator(channel, branch, reply):
            return
        if branch.state == ROLLBACK_ONLY:
            self._tell(branch, reply)
        elif branch.state in (PREPARED, DECIDING):
            self._decide(channel, branch, False, reply)
        elif branch.state != IDLE:
            raise dtx_error(409, f"branch {xid} cannot be rolled back: it is {branch.state}")
        else:
            branch.move("rollback")
            branch.observer.rollback(partial(self._rolled_back, channel, branch, reply))

    def _rolled_back(self, channel: Requester, branch: Branch, reply: Reply, error: str | None) -> None:
        self._broker.branches.leave(branch, "decided")
        branch.give_back(self._broker.turn, partial(_answer, channel, reply, XaStatus.OK))

    def _tell(self, branch: Branch, reply: Reply) -> None:
        """Its coordinator hears that the branch was rolled back, and why; there is nothing more to be said of it."""
        self._broker.branches.leave(branch, "told")
        reply(branch.status)

    # -- decisions

    def _joins_operator(self, channel: Requester, branch: Branch, reply: Reply) -> bool:
        """Whether an operator's decision is on its way: the coordinator is told that one when it stands, as if it had
        come later. Answered OK it would never forget the branch, which is remembered until it does."""
        if branch.state != DECIDING or not branch.heuristic:
            return False
        status = XaStatus.HEURISTICALLY_COMMITTED if branch.committing else XaStatus.HEURISTICALLY_ROLLED_BACK
        branch.waiting.append(partial(_answer_or_fail, channel, partial(reply, status)))
        return True

    def _decide(self, channel: Requester, branch: Branch, commit: bool, reply: Reply) -> None:
        self._ask(branch, commit, False, partial(_answer_or_fail, channel, partial(reply, XaStatus.OK)))

    def decide_heuristically(self, xid: Xid, commit: bool, done: Done) -> None:
        """An operator ends a prepared branch. 404, 409."""
        branch = self._broker.branches.find(xid)
        if branch.state not in (PREPARED, DECIDING):
            raise dtx_error(409, f"branch {xid} is not prepared but {branch.state}")
        self._ask(branch, commit, True, done)

    def _ask(self, branch: Branch, commit: bool, heuristic: bool, done: Done) -> None:
        """Ask for a decision, or wait for the same one that is on its way. 409 for the other one."""
        if branch.state == DECIDING:
            if branch.committing != commit:
                direction = "committed" if branch.committing else "rolled back"
                raise dtx_error(409, f"branch {branch.xid} is being {direction}")
            branch.waiting.append(done)
            return
        branch.move("decision asked")
        branch.committing, branch.heuristic, branch.waiting = commit, heuristic, [done]
        self._broker.ledger.decide_branch(branch.xid, commit, heuristic, partial(self._decided, branch))

    def _decided(self, branch: Branch, error: str | None) -> None:
        """Refused is one that a global decision is about to end."""
        if branch.state == DECIDING:
            branch.move("refused")
        waiting, branch.waiting = branch.waiting, []
        for done in waiting:
            branch.when_ended(partial(done, error))

    def forget(self, channel: Requester, xid: Xid, reply: Callable[[], None]) -> None:
        """dtx.forget: the outcome of a branch that has ended need not be remembered. 404, 409."""
        self._check_ended(xid)
        self._broker.ledger.forget_branch(xid, partial(_answer_or_fail, channel, reply))

    def forget_completed(self, xid: Xid, done: Done) -> None:
        """The same for an operator."""
        self._check_ended(xid)
        self._broker.ledger.forget_branch(xid, done)

    def _check_ended(self, xid: Xid) -> None:
        outcome = self._broker.branches.outcome(xid)
        if outcome in (BranchOutcome.UNKNOWN, BranchOutcome.EXPIRED):
            raise self._broker.branches.unknown(xid)
        if outcome in (BranchOutcome.PENDING, BranchOutcome.PREPARED, BranchOutcome.ACTIVE):
            raise dtx_error(409, f"branch {xid} has not ended: it is {outcome.name.lower()}")

    # -- global transactions

    def decide_globally(self, channel: Requester, which: Global, commit: bool, reply: Reply) -> None:
        """dtx.decide: one durable record for all branches of a global transaction. 409 if the other one was taken."""
        done = partial(self._decided_globally, channel, which, reply)
        self._broker.ledger.decide_global(which.format_id, which.gtrid, commit, done)

    def _decided_globally(self, channel: Requester, which: Global, reply: Reply, error: str | None) -> None:
        if error is not None:
            channel.fail(dtx_error(409, error))
            return
        outcome = self._broker.content.global_outcome(which.format_id, which.gtrid)
        _answer(channel, reply, XaStatus(outcome) if outcome in HEURISTIC else XaStatus.OK)

    def look(self, which: Global) -> GlobalState:
        """dtx.global."""
        content = self._broker.content
        return GlobalState(
            content.global_decision(which.format_id, which.gtrid), content.branches_of(which.format_id, which.gtrid)
        )

    def forget_globally(self, channel: Requester, which: Global, reply: Callable[[], None]) -> None:
        """dtx.forget-global. 404 if there is no such decision."""
        if self._broker.content.global_decision(which.format_id, which.gtrid) in (
            BranchOutcome.UNKNOWN,
            BranchOutcome.EXPIRED,
        ):
            raise dtx_error(404, f"there is no decision on {which}")
        self._broker.ledger.forget_global(which.format_id, which.gtrid, partial(_answer_or_fail, channel, reply))


def _answer(channel: Requester, reply: Reply, status: XaStatus) -> None:
    if not channel.closed:
        reply(status)


def _answer_or_fail(channel: Requester, reply: Callable[[], None], error: str | None) -> None:
    if error is not None:
        channel.fail(dtx_error(409, error))
    elif not channel.closed:
        reply()
