"""PEP 249's two-phase methods through pika and aio-pika on real nodes."""

from __future__ import annotations

import subprocess
import sys
import uuid
from typing import Any

import pytest

from python_tests.harness.cluster import LocalCluster
from python_tests.harness.waiting import wait_until
from python_tests.suites.dtx.conftest import Desk, Open
from recovery.dtx.errors import (
    Conflict,
    HeuristicCommit,
    OperationalError,
    ProgrammingError,
    RolledBack,
    TimedOut,
    UnknownXid,
)
from recovery.dtx.with_pika import DtxConnection
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid

Names = tuple[str, str, str]


def test_prepare_then_commit(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid) -> None:
    source, *targets = names
    worker = client(*cluster.urls)
    worker.begun(xid, source, targets, "a")
    assert worker.do.tpc_prepare() is True
    assert desk.counts(*names) == [1, 0, 0]
    worker.do.tpc_commit()
    assert desk.counts(*names) == [1, 1, 1]
    assert worker.do.outcome(xid) is BranchOutcome.COMMITTED


def test_commit_in_one_phase(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid) -> None:
    worker = client(*cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    worker.do.tpc_commit()
    assert desk.counts(*names) == [1, 1, 1] and worker.do.outcome(xid) is BranchOutcome.COMMITTED


@pytest.mark.parametrize("prepared", [True, False])
def test_rollback(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid, prepared: bool) -> None:
    worker = client(*cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    if prepared:
        worker.do.tpc_prepare()
    worker.do.tpc_rollback()
    assert desk.counts(*names) == [2, 0, 0]
    assert worker.take(names[0]) == "1"  # on the same channel, and outside a branch: at once
    assert desk.counts(*names) == [1, 0, 0]


def test_another_one_after_the_end(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid) -> None:
    worker = client(*cluster.urls)
    for name in ("a", "b"):
        worker.begun(worker.do.xid(1, xid.gtrid, name), names[0], names[1:], name)
        worker.do.tpc_prepare()
        worker.do.tpc_commit()
    assert desk.drained(names[1]) == ["a", "b"]


def test_nothing_to_prepare(cluster: LocalCluster, client: Open, xid: Xid) -> None:
    worker = client(*cluster.urls)
    worker.do.tpc_begin(xid)
    assert worker.do.tpc_prepare() is False
    worker.do.tpc_commit()
    assert worker.do.tpc_recover() == []


def test_recovery_by_another_client(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid) -> None:
    """The one that prepared is gone. Settled twice: the second time nothing is left to do, or the broker says so."""
    other = xid._replace(bqual=b"other")
    for which in (xid, other):
        worker = client(*cluster.urls)
        worker.begun(which, names[0], names[1:], str(which.bqual))
        worker.do.tpc_prepare()
        worker.do.close()
    coordinator = client(*cluster.urls)
    assert sorted(coordinator.do.tpc_recover()) == sorted([xid, other])
    coordinator.do.tpc_commit(xid)
    coordinator.do.tpc_rollback(other)
    coordinator.do.tpc_commit(xid)
    with pytest.raises(Conflict):
        coordinator.do.tpc_rollback(xid)
    with pytest.raises(RolledBack):
        coordinator.do.tpc_commit(other)
    with pytest.raises(UnknownXid):
        coordinator.do.tpc_commit(xid._replace(bqual=b"never begun"))
    assert coordinator.do.tpc_recover() == [] and desk.counts(*names) == [1, 1, 1]


def test_work_that_is_refused(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid) -> None:
    """It closes the channel. The next channel is there already, and the name is free."""
    worker = client(*cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    worker.publish("", "never", exchange="nowhere")
    with pytest.raises(RolledBack, match="404"):
        worker.do.tpc_prepare()
    worker.do.tpc_rollback()
    worker.begun(xid, names[0], names[1:], "a")
    worker.do.tpc_commit()
    assert desk.drained(names[1]) == ["a"]


def test_too_late(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid) -> None:
    worker = client(*cluster.urls)
    worker.do.tpc_begin(xid, 1)
    worker.work(names[0], names[1:], "a")
    wait_until(lambda: desk.counts(names[0]) == [2], 20, "the end of its time", every=0.2)
    with pytest.raises(TimedOut):
        worker.do.tpc_prepare()
    worker.do.tpc_rollback()
    assert desk.counts(*names) == [2, 0, 0]


def test_names_in_use_and_out_of_range(cluster: LocalCluster, client: Open, xid: Xid) -> None:
    worker, other = client(*cluster.urls), client(*cluster.urls)
    worker.do.tpc_begin(xid)
    with pytest.raises(ProgrammingError, match="530"):
        other.do.tpc_begin(xid)
    with pytest.raises(ProgrammingError, match="542"):
        other.do.tpc_begin(xid._replace(bqual=b"b"), 1_000_000)
    with pytest.raises(ProgrammingError):
        other.do.xid(1, "")
    worker.do.tpc_rollback()
    other.do.tpc_begin(xid)
    other.do.tpc_rollback()


def test_one_decision_for_all_branches(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid) -> None:
    first, second, late = (xid._replace(bqual=name) for name in (b"1", b"2", b"late"))
    coordinator = client(*cluster.urls)
    for which in (first, second):
        worker = client(*cluster.urls)
        worker.begun(which, names[0], names[1:], which.bqual.decode())
        worker.do.tpc_prepare()
    assert coordinator.do.branches(xid.globally) == (
        BranchOutcome.UNKNOWN,
        {first: BranchOutcome.PREPARED, second: BranchOutcome.PREPARED},
    )
    coordinator.do.decide(xid.globally, True)
    coordinator.do.decide(xid.globally, True)
    with pytest.raises(Conflict):
        coordinator.do.decide(xid.globally, False)
    assert desk.drained(names[1]) == ["1", "2"]
    coordinator.do.tpc_begin(late)
    coordinator.publish(names[1], "late")
    with pytest.raises(RolledBack):
        coordinator.do.tpc_prepare()
    coordinator.do.tpc_rollback()
    coordinator.do.forget(xid.globally)
    assert coordinator.do.branches(xid.globally).decision is not BranchOutcome.COMMITTED


def test_an_operator_decides(cluster: LocalCluster, desk: Desk, client: Open, names: Names, xid: Xid) -> None:
    worker = client(*cluster.urls)
    worker.begun(xid, names[0], names[1:], "a")
    worker.do.tpc_prepare()
    command = [sys.executable, "-m", "broker_plugin.cli.main", "dtx", "commit", "--dir", str(cluster.directory)]
    subprocess.run([*command, str(xid)], check=True, capture_output=True)
    with pytest.raises(HeuristicCommit) as error:
        worker.do.tpc_rollback()
    assert error.value.outcome is BranchOutcome.HEURISTICALLY_COMMITTED
    assert worker.do.tpc_recover() == [xid]
    worker.do.forget(xid)
    assert worker.do.tpc_recover() == [] and desk.counts(*names) == [1, 1, 1]


def test_each_new_channel_is_shown(cluster: LocalCluster, desk: Desk, names: Names, xid: Xid) -> None:
    """A consumer lives on, and what it was given can be acknowledged in a branch."""
    bodies: list[bytes] = []

    def consume(channel: Any) -> None:
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(names[0], lambda *delivery: (bodies.append(delivery[3]), tags.append(delivery[1])))

    tags: list[Any] = []
    with DtxConnection(*cluster.urls, on_channel=consume) as worker:
        for number in range(1, 3):
            while len(bodies) < number:
                worker.connection.process_data_events(1)
            worker.tpc_begin(xid._replace(bqual=b"%d" % number))
            worker.channel.basic_ack(tags[-1].delivery_tag)
            worker.tpc_prepare()
            worker.tpc_commit()
            worker.channel.close()
            worker.reconnect()
    assert bodies == [b"1", b"2"] and desk.counts(names[0]) == [0]


def test_no_host_answers(client: Open) -> None:
    with pytest.raises(OperationalError, match="no host answers"):
        client("amqp://guest:guest@127.0.0.1:1/", patience=0)


def test_no_host_at_all(client: Open) -> None:
    with pytest.raises(TypeError):
        client()


def test_the_outcome_by_a_token(cluster: LocalCluster, desk: Desk, client: Open, names: Names) -> None:
    worker, token = client(*cluster.urls, two_phase=False), uuid.uuid4().bytes
    worker.work(names[0], names[1:], "a")
    worker.do.commit(token)
    worker.work(names[0], names[1:], "b")
    with pytest.raises(ProgrammingError, match="530"):
        worker.do.commit(token)
    worker.work(names[0], names[1:], "c")
    worker.do.rollback()
    assert desk.drained(names[1]) == ["a"]
    other = client(*cluster.urls, two_phase=False)
    assert other.do.outcome(token) is BranchOutcome.COMMITTED
    assert other.do.outcome(uuid.uuid4().bytes) is BranchOutcome.UNKNOWN


def test_a_closed_connection_is_not_opened_again(cluster: LocalCluster, client: Open) -> None:
    """By a call that comes too late: no code would close it any more."""
    for two_phase in (True, False):
        worker = client(*cluster.urls, two_phase=two_phase)
        late = ("tpc_recover", "reconnect") if two_phase else ("rollback", "reconnect")
        getattr(worker.do, late[0])()
        worker.do.close()
        worker.do.close()
        for name in late:
            with pytest.raises(ProgrammingError, match="make another one"):
                getattr(worker.do, name)()
