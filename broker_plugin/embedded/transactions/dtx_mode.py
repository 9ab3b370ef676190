"""A channel in dtx mode: which branch it works on, and which it has suspended (AMQP 0-10, dtx.start and dtx.end)."""

from __future__ import annotations

from broker_plugin.embedded.errors import dtx_error
from broker_plugin.embedded.queues.consumer import Receiver
from broker_plugin.embedded.transactions.branch import ACTIVE, IDLE, ROLLBACK_ONLY, Association
from broker_plugin.embedded.transactions.branch_table import BranchTable
from txobserver.outcomes import XaStatus
from txobserver.xid import Xid


class DtxMode:
    """``current`` is what publishes and acknowledgements of the channel belong to; None: they act at once."""

    def __init__(self, channel: Receiver, branches: BranchTable) -> None:
        self.current: Association | None = None
        self._channel = channel
        self._branches = branches
        self._suspended: dict[Xid, Association] = {}

    @property
    def works(self) -> bool:
        """Whether the channel works on a branch, or has suspended one."""
        return self.current is not None or bool(self._suspended)

    def start(self, xid: Xid, join: bool, resume: bool) -> XaStatus:
        """dtx.start. 503, 530, 404, 409; a branch that is rollback-only is not worked on, the status says why."""
        if join and resume:
            raise dtx_error(503, "join and resume exclude each other")
        if resume:
            return self._resume(xid)
        if join:
            return self._join(xid)
        self._branches.check_new(xid)
        self._check_free()
        self.current = Association(self._channel, self._branches.begin(xid, self._channel.owner.holder))
        return XaStatus.OK

    def end(self, xid: Xid, fail: bool, suspend: bool) -> XaStatus:
        """dtx.end. 503, 404, 409; a branch that is rollback-only is left, whatever was asked."""
        if suspend and fail:
            raise dtx_error(503, "suspend and fail exclude each other")
        association = self._association(xid)
        branch = association.branch
        if suspend and association.suspended:
            raise dtx_error(409, f"branch {xid} is suspended already")
        if suspend and branch.state != ROLLBACK_ONLY:
            branch.move("suspend")
            association.suspended = True
            self.current, self._suspended[xid] = None, association
            return XaStatus.OK
        if fail and branch.state != ROLLBACK_ONLY:
            branch.fail("failed", XaStatus.ROLLED_BACK)
        self._leave(association)
        return branch.status

    def close(self) -> None:
        """The channel ends: what it was working on, suspended or not, can only be rolled back."""
        for association in [*self._suspended.values(), *([self.current] if self.current else [])]:
            if association.branch.state != ROLLBACK_ONLY:
                association.branch.fail("failed", XaStatus.ROLLED_BACK)
            self._leave(association)

    def _resume(self, xid: Xid) -> XaStatus:
        association = self._suspended.get(xid)
        if association is None:
            raise dtx_error(503, f"branch {xid} is not suspended on this channel")
        self._check_free()
        if association.branch.state == ROLLBACK_ONLY:
            self._leave(association)
            return association.branch.status
        association.branch.move("resume")
        association.suspended = False
        self.current = self._suspended.pop(xid)
        return XaStatus.OK

    def _join(self, xid: Xid) -> XaStatus:
        branch = self._branches.find(xid)
        if any(association.channel is self._channel for association in branch.associations):
            raise dtx_error(503, f"this channel works on branch {xid} already, or has suspended it")
        self._check_free()
        if branch.state == ROLLBACK_ONLY:
            return branch.status
        if branch.state not in (ACTIVE, IDLE):
            raise dtx_error(409, f"branch {xid} takes no more work: it is {branch.state}")
        branch.move("join")
        self.current = Association(self._channel, branch)
        return XaStatus.OK

    def _check_free(self) -> None:
        """503 if the channel is at work: it can suspend one branch to work on another."""
        if self.current is not None:
            raise dtx_error(503, f"this channel works on branch {self.current.branch.xid}: end or suspend that first")

    def _association(self, xid: Xid) -> Association:
        if self.current is not None and self.current.branch.xid == xid:
            return self.current
        association = self._suspended.get(xid)
        if association is None:
            self._branches.find(xid)
            raise dtx_error(409, f"this channel does not work on branch {xid}")
        return association

    def _leave(self, association: Association) -> None:
        association.end()
        self._suspended.pop(association.branch.xid, None)
        if self.current is association:
            self.current = None
