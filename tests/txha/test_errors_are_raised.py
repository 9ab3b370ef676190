"""Each exception of the public API, raised by the part that raises it for users; without servers."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import txha
from recovery.dtx import with_pika
from recovery.dtx.plain import PlainTransactions
from recovery.dtx.two_phase import TwoPhase
from recovery.store.files import Files
from tests.recovery.coordinator.fakes import MemoryDecisions, MemoryResource, World
from tests.recovery.dtx.script import COMMIT, END, FIELDS, LOST, OK, OURS, PREPARE, START, X, play, refused
from tests.support.linux_files import LinuxFiles
from tests.support.logs import frame, open_log
from tests.txha.names import exceptions
from txha import resources, spi
from txobserver import dtx_wire as dtx
from txobserver.ids import Position
from txobserver.outcomes import BranchOutcome, XaStatus

NOWHERE = "amqp://127.0.0.1:1/"
ABSTRACT = {"Error", "DatabaseError", "HeuristicOutcome"}
"""Never raised themselves."""


def begun(patience: float = 60.0) -> TwoPhase:
    found = TwoPhase(patience)
    play(found.begin(X), (START, OK))
    return found


def no_dtx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = SimpleNamespace(_impl=SimpleNamespace(server_capabilities={}), close=lambda: None)
    monkeypatch.setattr(with_pika, "connected", lambda host, kind: server)
    txha.DtxConnection(NOWHERE)


def heuristic(status: XaStatus) -> Callable[..., None]:
    def provoke(*_: object) -> None:
        branch = begun()
        play(branch.prepare(), (END, OK), (PREPARE, OK))
        play(branch.commit(), (COMMIT, status))

    return provoke


def committed(patch: Callable[[MemoryResource, resources.CoordinatedBranches], None]) -> None:
    """A coordinator's transaction at two resources, of which one is changed behind the decision."""
    world = World()
    found: Mapping[str, Any] = {
        name: MemoryResource(world, f"{name}:1", name == "broker") for name in ("database", "broker")
    }

    def reached(step: str) -> None:
        if step == "database committed":
            patch(found["broker"], work)

    work = resources.CoordinatedBranches(MemoryDecisions(world), found, patience=0.0, reached=reached)
    for name in found:
        work.begin(name)
    work.commit()


def operator(broker: MemoryResource, work: resources.CoordinatedBranches) -> None:
    broker.decide_heuristically(resources.branch_xid(work.name, "broker"), commit=False)


def refusing(*_: object) -> None:
    world = World()
    resource = MemoryResource(world, "broker:1", True)
    resource.refuses = True
    work = resources.CoordinatedBranches(MemoryDecisions(world), {"broker": resource})
    work.begin("broker")
    work.commit()


def closed_log(tmp_path: Path, _: object) -> None:
    log = txha.DecisionLog(tmp_path / "log")
    log.close()
    log.decide("a", True)


def failing_sync(tmp_path: Path, _: object) -> None:
    files = LinuxFiles()
    log = txha.DecisionLog(tmp_path / "log", files=files)
    files.failing = True
    log.decide("a", True)


def no_descriptor_left(number: int) -> Callable[..., None]:
    class Short(Files):
        def create(self, path: Path) -> int:
            raise OSError(number, "the system's own words")

    return lambda tmp_path, _: txha.DecisionLog(tmp_path / "log", files=Short())


def no_log(tmp_path: Path, _: object) -> None:
    (tmp_path / "log").write_text("something else\n")
    txha.DecisionLog(tmp_path / "log")


def dangling(tmp_path: Path, _: object) -> None:
    (tmp_path / "log").symlink_to(tmp_path / "nowhere")
    txha.DecisionLog(tmp_path / "log")


def begun_anew(sequence: int) -> Callable[..., None]:
    def provoke(tmp_path: Path, _: object) -> None:
        log, _frames = open_log(tmp_path / "log", 300)
        for first in range(1, 27, 3):
            log.append([frame(first)])
        reader = txha.LogReader(tmp_path).frames()
        assert len(list(islice(reader, 6))) == 6
        log.reset(Position(3, sequence))
        log.append([frame(sequence + 1, generation=3)])
        list(reader)

    return provoke


def no_java(_: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    txha.spark.spark_session()


def name_in_use(*_: object) -> None:
    sink: Any = SimpleNamespace(in_use=lambda name: True)
    spi.TransactionObserverFactory(1, sink, lambda: 1).begin(b"token")


RAISED: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "ProgrammingError": lambda *_: txha.DtxConnection("http://127.0.0.1/"),
    "UnknownXid": lambda *_: play(TwoPhase(60).others.forget(X), (dtx.Forget(FIELDS), refused(404))),
    "NotSupportedError": no_dtx,
    "OperationalError": lambda *_: txha.DtxConnection(NOWHERE, patience=0),
    "StaleDelivery": lambda *_: play(TwoPhase(60).begin(X), (START, LOST), stale=True),
    "Conflict": lambda *_: play(TwoPhase(60).others.forget(X), (dtx.Forget(FIELDS), refused(409))),
    "RolledBack": lambda *_: play(PlainTransactions(0).commit(b"token"), (dtx.Token(b"token"), LOST)),
    "TimedOut": lambda *_: play(begun().prepare(), (END, OK), (PREPARE, XaStatus.TIMED_OUT)),
    "OutcomeUnknown": lambda *_: play(begun(0).prepare(), (END, OK), (PREPARE, LOST), (OURS, BranchOutcome.PENDING)),
    "HeuristicCommit": heuristic(XaStatus.HEURISTICALLY_COMMITTED),
    "HeuristicRollback": heuristic(XaStatus.HEURISTICALLY_ROLLED_BACK),
    "HeuristicMixed": heuristic(XaStatus.MIXED),
    "HeuristicTransaction": lambda *_: committed(operator),
    "TransactionRolledBack": refusing,
    "BranchRolledBack": lambda *_: txha.Broker(NOWHERE).prepare(X),
    "ResourceLost": lambda *_: txha.Broker(NOWHERE, patience=0).in_doubt(),
    "ResourceRefused": lambda *_: txha.Broker(f"{NOWHERE}?misspelt=1").in_doubt(),
    "DecisionRefused": closed_log,
    "DecisionUnknown": failing_sync,
    "StoreError": dangling,
    "StoreFull": no_descriptor_left(errno.ENOSPC),
    "StoreBusy": no_descriptor_left(errno.EMFILE),
    "StoreDamaged": no_log,
    "LogReclaimed": begun_anew(500),
    "LogCut": begun_anew(3),
    "PipelineError": no_java,
    "NameInUse": name_in_use,
}


def test_each_is_raised_here() -> None:
    assert sorted({*RAISED, *ABSTRACT}) == sorted(exceptions())


@pytest.mark.parametrize("name", RAISED)
def test_it_is_raised(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(txha.Error) as raised:
        RAISED[name](tmp_path, monkeypatch)
    assert raised.type is exceptions()[name], raised.value
    assert str(raised.value), "with a sentence"


def test_an_unknown_outcome_of_a_coordinator_is_the_clients_class() -> None:
    """It was another class of the same name, which ``except txha.OutcomeUnknown`` let pass."""
    world = World()
    resource = MemoryResource(world, "broker:1", True)
    work = resources.CoordinatedBranches(MemoryDecisions(world), {"broker": resource})
    work.begin("broker")

    def lost(xid: txha.Xid) -> None:
        raise txha.ResourceLost("the answer was lost")

    resource.commit_in_one_phase = lost  # type: ignore[method-assign]
    with pytest.raises(txha.OutcomeUnknown, match="the answer was lost") as raised:
        work.commit()
    assert raised.value.outcome is None and isinstance(raised.value, txha.OperationalError)


def test_which_branches_of_a_transaction_are_otherwise_is_told() -> None:
    with pytest.raises(txha.HeuristicTransaction) as raised:
        committed(operator)
    assert raised.value.fates["broker:1"] is txha.BranchOutcome.HEURISTICALLY_ROLLED_BACK
    assert raised.value.outcome is BranchOutcome.MIXED
    with pytest.raises(txha.HeuristicTransaction) as raised:
        committed(
            lambda broker, work: (operator(broker, work), broker.forget(resources.branch_xid(work.name, "broker")))[0]
        )
    assert raised.value.fates["broker:1"] is txha.BranchOutcome.UNKNOWN
    assert raised.value.outcome is BranchOutcome.UNKNOWN
