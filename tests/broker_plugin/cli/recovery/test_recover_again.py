"""``txha recover --apply`` that was cut short, and is run again when the stores have changed in between."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker_plugin.cli.recovery import recovering
from broker_plugin.cli.recovery.crashed import Given
from broker_plugin.cli.recovery.recovering import Accepted, run
from broker_plugin.coordination.address import in_file
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import Record
from recovery.planner import apply, discarding
from recovery.planner.plan import RecoveryPlan
from recovery.planner.site import plan_for
from recovery.planner.verdicts import BROKER, By, Verdict
from recovery.store.segment import segment_firsts, segment_path
from tests.recovery.planner.stores import beginning, make_store
from txobserver.ids import Member
from txobserver.ports.store import StoreError

A, B = (Member(node, "incarnation") for node in "ab")
NOTHING = Accepted()
MISSING_A = Accepted(nodes=frozenset("a"))
PLANNED, WRITTEN = "recover.plan-written", "recover.action-done"
JOURNAL, DONE, GIVEN_UP = "unfinished-recovery.json", "recovery-1.json", "overtaken-recovery-1.json"


class Killed(BaseException):
    """Nothing more is done."""


def damaged_segment(directory: Path) -> Path:
    """In the middle of the log."""
    log = directory / "a" / "log"
    return segment_path(log, segment_firsts(log)[-2])


def damage(directory: Path) -> bytes:
    """Of a; returns what was in the file."""
    path = damaged_segment(directory)
    good = path.read_bytes()
    bad = bytearray(good)
    bad[bad.index(b"TXHA") + 60] ^= 1
    path.write_bytes(bad)
    return good


def has_stores(directory: Path, **publishes: int) -> None:
    nodes = []
    for name, count in publishes.items():
        make_store(directory / name, [(1, beginning(count))], 3)
        nodes.append({"name": name, "pid": None, "amqp_port": 5701, "dir": str(directory / name)})
    (directory / "cluster.json").write_text(json.dumps({"cluster": "cluster", "nodes": nodes}))


@contextmanager
def coordination(directory: Path) -> Iterator[SqliteCoordination]:
    store = SqliteCoordination(directory / "coordination.sqlite", "cluster", create=True)
    try:
        yield store
    finally:
        store.close()


def becomes(directory: Path, **changes: Any) -> Record:
    """What a primary changes in the record."""
    with coordination(directory) as store:
        record = store.read()
        assert record is not None
        return store.compare_and_set(record.version, msgspec.structs.replace(record, **changes))


def record_in(directory: Path) -> Record | None:
    with coordination(directory) as store:
        return store.read()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """a alone is ready, and damaged; b and c have as much of it as they were sent."""
    has_stores(tmp_path, a=8, b=8, c=6)
    with coordination(tmp_path) as store:
        store.compare_and_set(0, Record("cluster", 1, 1, A, (A,)))
    return tmp_path


def killed_at(point: str, directory: Path, monkeypatch: pytest.MonkeyPatch, accepted: Accepted = MISSING_A) -> None:
    """``--apply`` is, at this point, the first time."""

    def reached(name: str) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(apply, "crash_point", reached)
        with pytest.raises(Killed):
            run(Given([directory]), True, accepted, as_json=True)
    assert (directory / JOURNAL).exists()


def recover(
    directory: Path, capsys: pytest.CaptureFixture[str], accepted: Accepted = NOTHING, apply: bool = True
) -> dict[str, Any]:
    capsys.readouterr()
    run(Given([directory]), apply, accepted, as_json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def cut_short_and_restored(
    point: str, directory: Path, monkeypatch: pytest.MonkeyPatch, accepted: Accepted = MISSING_A
) -> None:
    """A plan for the damaged log of a is killed at this point; then its file is restored."""
    good = damage(directory)
    killed_at(point, directory, monkeypatch, accepted)
    damaged_segment(directory).write_bytes(good)


def parts(directory: Path, node: str) -> set[str]:
    return {path.name for path in (directory / node).iterdir()} - {"lock"}


STORE = {"identity.json", "log", "state"}


def test_a_plan_cut_short_is_finished_on_other_stores(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its record was written. Then a's file is restored, the nodes run, and in the end a alone acknowledges."""
    cut_short_and_restored(WRITTEN, directory, monkeypatch)
    becomes(directory, generation=1002, primary=B, ready=(B, A), released=False, preferred="")
    last = becomes(directory, generation=1003, primary=A, ready=(A,))
    found = recover(directory, capsys, apply=False)
    assert not found["unfinished"] and found["promote"] == "a" and (directory / JOURNAL).exists()
    assert "the coordination record is neither the one that it was made for nor the one" in found["overtaken"]
    found = recover(directory, capsys)
    assert (found["promote"], found["nothing_acknowledged_is_lost"], found["actions"]) == ("a", True, [])
    assert parts(directory, "a") == STORE and record_in(directory) == last
    assert found["given_up"] == str(directory / DONE) and not (directory / JOURNAL).exists()
    assert "neither" in json.loads((directory / DONE).read_bytes())["report"]["overtaken"]


def test_it_is_said_that_a_plan_is_not_gone_on_with(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(directory)
    killed_at(WRITTEN, directory, monkeypatch)
    becomes(directory, generation=1002, primary=B, released=False, preferred="")
    said = "A plan was cut short, and is not gone on with: the coordination record is neither the one"
    kept = f"it is kept in {directory / DONE}."
    for apply_it, tells in ((False, False), (True, True)):
        assert run(Given([directory]), apply_it, NOTHING, as_json=False) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert said in shown and (kept in shown) is tells and "in the middle" not in shown
    assert run(Given([directory]), False, NOTHING, as_json=False) == 0
    assert "cut short" not in capsys.readouterr().out


def test_a_store_damaged_again_is_not_set_aside_by_an_earlier_consent(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As above, and a's log is damaged once more: it may alone hold what was acknowledged since."""
    cut_short_and_restored(WRITTEN, directory, monkeypatch)
    last = becomes(directory, generation=1003, primary=A, ready=(A,), released=False, preferred="")
    damage(directory)
    found = recover(directory, capsys)
    assert found["missing"] == ["a"] and "--accept-missing a" in found["refused"]
    assert parts(directory, "a") == STORE and record_in(directory) == last and (directory / JOURNAL).exists()
    found = recover(directory, capsys, MISSING_A)
    assert found["applied"] == str(directory / "recovery-2.json") and "set-aside-1" in parts(directory, "a")


def test_a_plan_that_writes_no_record_is_overtaken_by_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan only sets a aside, since b is ready as well; then a is restored, and b leaves the ready set."""
    becomes(directory, ready=(A, B))
    cut_short_and_restored(PLANNED, directory, monkeypatch, NOTHING)
    becomes(directory, ready=(A,))
    damage(directory)
    found = recover(directory, capsys)
    assert found["missing"] == ["a"] and "refused" in found and parts(directory, "a") == STORE


def test_a_store_comes_back_before_the_record_is_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing was done yet, and what the plan would give up need not be given up any more."""
    good = damage(directory)
    killed_at(PLANNED, directory, monkeypatch)
    found = recover(directory, capsys, apply=False)
    assert found["unfinished"] and "overtaken" not in found, "until then it is the plan"
    damaged_segment(directory).write_bytes(good)
    before = record_in(directory)
    found = recover(directory, capsys)
    assert found["overtaken"] == "the store of a is not as it was found: it is whole, at 1.10"
    assert (found["promote"], found["by_itself"], found["applied"]) == ("a", True, "")
    assert record_in(directory) == before and parts(directory, "a") == STORE
    assert found["given_up"] == str(directory / GIVEN_UP) and not (directory / DONE).exists()


def test_a_store_is_given_up_between_two_attempts(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``txha discard`` raises the version of the record, so the planned one can never be written."""
    damage(directory)
    killed_at(PLANNED, directory, monkeypatch)
    with coordination(directory) as store:
        discarding.discard(directory / "c", "cluster", discarding.look(directory / "c", "cluster", "c", store), store)
    found = recover(directory, capsys)
    assert "neither the one that it was made for" in found["overtaken"] and "--accept-missing a" in found["refused"]
    found = recover(directory, capsys, MISSING_A)
    made = record_in(directory)
    assert found["applied"] == str(directory / DONE) and made is not None and made.ready == (B,)
    assert (directory / GIVEN_UP).exists() and not (directory / JOURNAL).exists()
    assert recover(directory, capsys)["actions"] == []


@pytest.mark.parametrize("point", [PLANNED, WRITTEN])
def test_what_was_said_of_branches_is_remembered_if_the_record_counted(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], point: str
) -> None:
    """A plan that was overtaken behind its record has lost what it said; one before it has lost nothing."""
    damage(directory)
    killed_at(point, directory, monkeypatch)
    left = json.loads((directory / JOURNAL).read_bytes())
    said = {"resource": BROKER, "outcome": "operator", "by": By.NONE.value, "reason": "lost"}
    left["report"]["branches"] = [{"xid": "1:g:b", **said, "source": ""}]
    (directory / JOURNAL).write_text(json.dumps(left))
    for _ in range(2):
        becomes(directory)
    earlier: list[Mapping[str, Verdict]] = []

    def noted(site: Any, surveyed: Any, ask: Any, said: Mapping[str, Verdict]) -> RecoveryPlan:
        earlier.append(said)
        return plan_for(site, surveyed, ask, said)

    monkeypatch.setattr(recovering, "plan_for", noted)
    for _ in range(2):  # also when it has been given up, with the new plan
        recover(directory, capsys, MISSING_A if point == PLANNED and not earlier else NOTHING)
    assert [set(each) for each in earlier] == [set() if point == PLANNED else {"1:g:b"}] * 2


def test_a_plan_in_the_middle_names_the_directories_that_it_needs(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was begun with the cluster's directory, and is run again with that of one node."""
    damage(directory)
    killed_at(WRITTEN, directory, monkeypatch)
    record = directory / "coordination.sqlite"
    before = record.read_bytes(), (directory / JOURNAL).read_bytes()
    with pytest.raises(StoreError) as refused:
        run(Given([directory / "b"], in_file(record)), True, NOTHING, as_json=True)
    assert f"it needs the directory of a (it was {directory / 'a'}): name that, too" in str(refused.value)
    assert (record.read_bytes(), (directory / JOURNAL).read_bytes()) == before
    run(Given([directory / "a", directory / "b"], in_file(record)), True, NOTHING, as_json=True)
    assert "set-aside-1" in parts(directory, "a") and (directory / DONE).exists()
