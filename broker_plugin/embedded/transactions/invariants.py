"""What must be so of units of work: transactions, and branches in each of their states (``txobserver.invariants``)."""

from __future__ import annotations

from broker_plugin.embedded.memory_budget import MESSAGE_BYTES
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.transactions.branch import (
    ACTIVE,
    BRANCH_TABLE,
    DECIDING,
    ENDED,
    IDLE,
    PREPARED,
    PREPARING,
    ROLLBACK_ONLY,
    UNPREPARED,
    Branch,
)
from broker_plugin.embedded.transactions.branch_table import BranchTable
from broker_plugin.embedded.transactions.dtx_mode import DtxMode
from broker_plugin.embedded.transactions.transaction import LocalTransaction
from broker_plugin.embedded.transactions.unit_of_work import UnitOfWork
from txobserver.invariants import differ
from txobserver.message_size import size_of
from txobserver.outcomes import XaStatus

STATES = frozenset(BRANCH_TABLE.moves.values())


def check_branches(branches: BranchTable, whole: bool = True) -> None:
    """Every branch that is known. Not ``whole``: what one of them dequeues is leaving its queues, in several turns."""
    assert branches._unprepared.keys() <= branches._known.keys(), "P6: a branch is worked on that is not known"
    for xid, branch in branches._known.items():
        assert branch.xid == xid, f"P6: the branch {branch.xid} goes by {xid}"
        unprepared = branches._unprepared.get(xid)
        assert unprepared is None or unprepared is branch, f"P6: there are two branches {xid}"
        assert branch.state != ENDED, f"P6: the branch {xid} has ended, and is known"
        kept = unprepared is None or branch.state not in (PREPARED, DECIDING)
        assert kept, f"P2: the branch {xid} is {branch.state}, and would time out"
        assert unprepared is not None or branch.state not in UNPREPARED, f"P12: the branch {xid} never times out"
        check_branch(branch, whole)


def check_branch(branch: Branch, whole: bool = True) -> None:
    """One of them."""
    xid, state = branch.xid, branch.state
    assert state in STATES, f"P6: the branch {xid} is {state}"
    assert state != ACTIVE or branch.associations, f"P12: the branch {xid} is {state}, and no channel works on it"
    assert state not in (IDLE, PREPARING) or not branch.associations, f"P1: the branch {xid} is {state}, and grows"
    assert branch.timeout >= 0, f"P12: the branch {xid} has {branch.timeout} s"
    assert branch._begun is not None or state not in UNPREPARED, f"P2: the stream is not told of the branch {xid}"
    assert (state == ROLLBACK_ONLY) == (branch.status is not XaStatus.OK) or state not in UNPREPARED, (
        f"P6: the branch {xid} is {state}, and its status {branch.status!r}"
    )
    assert state != ROLLBACK_ONLY or not branch.settled, f"P4: the branch {xid} rolls back, and keeps what it settled"
    assert state != ROLLBACK_ONLY or not branch._local, f"P4: the branch {xid} rolls back, and keeps what it published"
    assert not branch.waiting or state not in UNPREPARED, f"P6: the decision of {xid} is awaited, which is {state}"
    if state in (PREPARED, DECIDING):
        free = not branch.freed or all(held[2] is None for _, held, _ in branch.settled)
        assert free, f"P12: what the prepared branch {xid} dequeues counts for a prefetch"
        for _, (queue, offset, _), reason in branch.settled:
            locked = reason is None or queue.deleted or not isinstance(queue, DurableQueue) or offset in queue._out
            assert locked or not whole, f"P3: {offset} of {queue.name!r} is dequeued by {xid}, and would be handed out"
    for association in branch.associations:
        assert association.branch is branch, f"P1: the work for {xid} goes to another branch"
    check_work(branch)


def check_work(work: UnitOfWork) -> None:
    """What a unit of work has gathered."""
    held = [(id(queue), offset) for _, (queue, offset, _), _ in work.settled]
    assert differ(held), "P3: a message is settled twice in one unit of work"
    returns = work.returns if isinstance(work, LocalTransaction) else []
    waiting = sum(size_of(each) + MESSAGE_BYTES for each in (*(message for _, message in work._local), *returns))
    assert work.waiting_bytes == waiting, f"P12: {waiting} bytes wait in a unit of work, {work.waiting_bytes} count"
    assert all(tag >= 0 for tag, _, _ in work.settled), "P3: a delivery without a tag is settled"
    assert all(route.local for route, _ in work._local), "P5: a message waits for the end of its work, and for no queue"


def check_mode(mode: DtxMode) -> None:
    """The branches of one channel."""
    current = mode.current
    assert current is None or not current.suspended, "P1: the work of a channel goes to a suspended branch"
    assert current is None or current.channel is mode._channel, "P1: a channel works for another one"
    for xid, association in mode._suspended.items():
        assert association.branch.xid == xid, f"P1: the branch {association.branch.xid} is suspended as {xid}"
        assert association is not current, f"P1: the branch {xid} is suspended, and worked on"
