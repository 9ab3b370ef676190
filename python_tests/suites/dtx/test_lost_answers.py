"""A request that is lost on its way, and one whose answer is: the client comes back by another door, and knows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.suites.dtx.clients import Client
from python_tests.suites.dtx.conftest import Desk, Open
from python_tests.suites.dtx.cut import CuttingDoor
from recovery.dtx.errors import OperationalError, RolledBack
from txobserver import dtx_wire as dtx
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

Names = tuple[str, str, str]
TX_COMMIT, TX_COMMIT_OK = 90 << 16 | 20, 90 << 16 | 21


@pytest.fixture
def door(cluster: LocalCluster) -> Iterator[CuttingDoor]:
    with CuttingDoor(cluster.ports[0]) as door:
        yield door


def lost(*methods: type[dtx.DtxMethod]) -> pytest.MarkDecorator:
    """Each of these in turn."""
    return pytest.mark.parametrize("index", [pytest.param(each.index, id=each.name) for each in methods])


@lost(dtx.Prepare, dtx.PrepareOk, dtx.Commit, dtx.CommitOk)
def test_two_phases_go_on(
    cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid, door: CuttingDoor, index: int
) -> None:
    worker = client(door.url, *cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    door.cut(index)
    worker.do.tpc_prepare()
    worker.do.tpc_commit()
    assert door.has_cut and desk.counts(*names) == [1, 1, 1]
    another_one(worker, names, xid)


@lost(dtx.Commit, dtx.CommitOk)
def test_one_phase_goes_on(
    cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid, door: CuttingDoor, index: int
) -> None:
    worker = client(door.url, *cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    door.cut(index)
    worker.do.tpc_commit()
    assert door.has_cut and desk.counts(*names) == [1, 1, 1]
    assert worker.do.outcome(xid) is BranchOutcome.COMMITTED


@lost(dtx.End, dtx.EndOk)
def test_a_branch_ends_whole(
    cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid, door: CuttingDoor, index: int
) -> None:
    """The channel went while it worked on the branch: that is rolled back. If end had arrived, nothing is lacking."""
    worker = client(door.url, *cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    door.cut(index)
    if index == dtx.End.index:
        with pytest.raises(RolledBack):
            worker.do.tpc_prepare()
        worker.do.tpc_rollback()
    else:
        worker.do.tpc_prepare()
        worker.do.tpc_commit()
    assert door.has_cut and desk.counts(*names) == ([2, 0, 0] if index == dtx.End.index else [1, 1, 1])
    another_one(worker, names, xid)


@lost(dtx.Rollback, dtx.RollbackOk)
@pytest.mark.parametrize("prepared", [True, False])
def test_a_rollback_goes_on(
    cluster: LocalCluster,
    desk: Desk,
    client: Open,
    names: Names,
    xid: Xid,
    door: CuttingDoor,
    index: int,
    prepared: bool,
) -> None:
    worker = client(door.url, *cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    if prepared:
        worker.do.tpc_prepare()
    door.cut(index)
    worker.do.tpc_rollback()
    assert door.has_cut and desk.counts(*names) == [2, 0, 0]
    another_one(worker, names, xid)


@lost(dtx.Start, dtx.StartOk)
def test_a_begin_begins_or_does_not(
    cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid, door: CuttingDoor, index: int
) -> None:
    worker = client(door.url, *cluster.urls)
    door.cut(index)
    if index == dtx.StartOk.index:
        with pytest.raises(OperationalError, match="cannot go on"):
            worker.do.tpc_begin(xid)
    else:
        worker.begun(xid, names[0], names[1:], "a")
        worker.do.tpc_rollback()
    assert door.has_cut
    another_one(worker, names, xid)


@lost(dtx.Decide, dtx.DecideOk, dtx.RecoverOk, dtx.GlobalOk, dtx.OutcomeOk, dtx.Forget, dtx.ForgetOk)
def test_coordinators_ask_again(
    cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid, door: CuttingDoor, index: int
) -> None:
    worker, coordinator = client(*cluster.urls), client(door.url, *cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    worker.do.tpc_prepare()
    door.cut(index)
    assert coordinator.do.tpc_recover() == [xid]
    coordinator.do.decide(xid.globally, True)
    assert coordinator.do.branches(xid.globally) == (BranchOutcome.COMMITTED, {xid: BranchOutcome.COMMITTED})
    assert coordinator.do.outcome(xid) is BranchOutcome.COMMITTED
    coordinator.do.forget(xid)
    coordinator.do.forget(xid.globally)
    assert door.has_cut and desk.counts(*names) == [1, 1, 1]


@pytest.mark.parametrize("index", [TX_COMMIT, TX_COMMIT_OK, dtx.Token.index, dtx.TokenOk.index])
def test_a_plain_transaction(
    cluster: LocalCluster, desk: Desk, client: Open, names: Names, door: CuttingDoor, index: int
) -> None:
    worker, token = client(door.url, *cluster.urls, two_phase=False), uuid.uuid4().bytes
    worker.work(names[0], names[1:], "a")
    door.cut(index)
    if index == TX_COMMIT_OK:
        worker.do.commit(token)
    else:
        with pytest.raises(RolledBack):
            worker.do.commit(token)
    done = index == TX_COMMIT_OK
    assert door.has_cut and desk.counts(*names) == ([1, 1, 1] if done else [2, 0, 0])
    assert (worker.do.outcome(token) is BranchOutcome.COMMITTED) == done
    worker.work(names[0], names[1:], "b")
    worker.do.commit()


def another_one(worker: Client, names: Names, xid: Xid) -> None:
    """The connection is as good as new."""
    worker.do.tpc_begin(xid._replace(bqual=b"another"))
    worker.publish(names[2], "another")
    worker.do.tpc_commit()
