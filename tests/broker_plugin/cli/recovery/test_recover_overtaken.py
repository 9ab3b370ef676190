"""Whether a plan that was cut short took effect, and whether the store that it counts on is there still."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery import recovering
from broker_plugin.cli.recovery.crashed import Given, crashed_cluster
from broker_plugin.cli.recovery.recovering import places_of, run
from broker_plugin.cli.recovery.settling import _applied
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import Record
from recovery.planner.apply import Journal, PlanProgress
from recovery.planner.plan import RecoveryPlan
from recovery.planner.site import plan_for
from recovery.planner.verdicts import BROKER, By, Verdict
from recovery.store.segment import segment_firsts, segment_path
from tests.broker_plugin.cli.recovery.test_recover_again import (
    DONE,
    GIVEN_UP,
    JOURNAL,
    MISSING_A,
    NOTHING,
    PLANNED,
    STORE,
    WRITTEN,
    A,
    B,
    Killed,
    becomes,
    cut_short_and_restored,
    damage,
    damaged_segment,
    directory,
    killed_at,
    parts,
    record_in,
    recover,
)
from tests.recovery.planner.stores import beginning, make_store
from txobserver.ports.store import StoreError

__all__ = ["directory"]

HELD = {"resource": BROKER, "outcome": "roll back", "by": By.HAND.value, "reason": "c held the decision"}


def says_by_hand(directory: Path) -> None:
    """The unfinished plan, of a branch."""
    left = json.loads((directory / JOURNAL).read_bytes())
    left["report"]["branches"] = [{"xid": "1:g:b", **HELD, "source": ""}]
    (directory / JOURNAL).write_text(json.dumps(left))


def applied(directory: Path) -> tuple[Path, Journal]:
    """The plan that ``--settle`` goes by."""
    return _applied(places_of(crashed_cluster(Given([directory]))))


def killed_at_the_record(directory: Path, monkeypatch: pytest.MonkeyPatch, written: bool) -> None:
    """Where no crash point is: behind the compare-and-set, before that is noted; or just before it."""
    real = SqliteCoordination.compare_and_set

    def change(store: SqliteCoordination, expected: int, record: Record) -> Record:
        if written:
            real(store, expected, record)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(SqliteCoordination, "compare_and_set", change)
        with pytest.raises(Killed):
            run(Given([directory]), True, MISSING_A, as_json=True)


def remembered(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """The branches of which each plan that is made from now on is told that an earlier one spoke of them."""
    found: list[set[str]] = []

    def noted(site: Any, surveyed: Any, ask: Any, said: Mapping[str, Verdict]) -> RecoveryPlan:
        found.append(set(said))
        return plan_for(site, surveyed, ask, said)

    monkeypatch.setattr(recovering, "plan_for", noted)
    return found


@pytest.mark.parametrize("loss_accepted", [0, 2])
def test_begun_though_never_written(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], loss_accepted: int
) -> None:
    """Killed before its record. a's file comes back, and a promotion has the generation that the plan's was to have:
    nothing is lost, and nothing is settled as if it were. Also one with ``--accept-data-loss``, which is no plan's."""
    good = damage(directory)
    killed_at(PLANNED, directory, monkeypatch)
    says_by_hand(directory)
    damaged_segment(directory).write_bytes(good)
    becomes(directory, generation=2, primary=A, loss_accepted=loss_accepted)
    becomes(directory, ready=(A, B), released=True)
    earlier = remembered(monkeypatch)
    found = recover(directory, capsys)
    assert found["given_up"] == str(directory / GIVEN_UP) and earlier == [set()]
    with pytest.raises(BadArgument, match="holds no plan that was applied"):
        applied(directory)


def test_a_plan_whose_record_was_written_counts_though_it_was_overtaken(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cut_short_and_restored(WRITTEN, directory, monkeypatch)
    says_by_hand(directory)
    becomes(directory, generation=3, released=False, preferred="")
    earlier = remembered(monkeypatch)
    assert recover(directory, capsys)["given_up"] == str(directory / DONE) and earlier == [{"1:g:b"}]
    path, journal = applied(directory)
    assert path == directory / DONE and journal.progress is PlanProgress.WRITTEN and "overtaken" in journal.report


def test_killed_between_the_record_and_the_note_of_it(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record says it itself, as long as it is there."""
    damage(directory)
    killed_at_the_record(directory, monkeypatch, written=True)
    assert json.loads((directory / JOURNAL).read_bytes())["progress"] == "writing"
    assert recover(directory, capsys)["applied"] == str(directory / DONE)
    assert applied(directory)[1].progress is PlanProgress.WRITTEN and "set-aside-1" in parts(directory, "a")


def test_killed_between_the_record_and_the_note_and_the_nodes_go_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record may have come behind the plan's: its losses are remembered, and nothing is settled by it."""
    good = damage(directory)
    killed_at_the_record(directory, monkeypatch, written=True)
    damaged_segment(directory).write_bytes(good)
    says_by_hand(directory)
    becomes(directory, generation=3, released=False, preferred="")
    earlier = remembered(monkeypatch)
    assert recover(directory, capsys)["given_up"] == str(directory / DONE) and earlier == [{"1:g:b"}]
    with pytest.raises(BadArgument, match="was overtaken, and whether its record was ever written is not known"):
        applied(directory)


def test_killed_before_the_record_that_it_was_about_to_write(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record that has accepted no loss has not come behind one that did."""
    good = damage(directory)
    killed_at_the_record(directory, monkeypatch, written=False)
    says_by_hand(directory)
    damaged_segment(directory).write_bytes(good)
    becomes(directory, generation=2, primary=A)
    becomes(directory, ready=(A, B))
    earlier = remembered(monkeypatch)
    assert recover(directory, capsys)["given_up"] == str(directory / GIVEN_UP) and earlier == [set()]


def test_a_plan_like_an_overtaken_one_that_may_not_have_counted_is_written_down(directory: Path) -> None:
    """Else ``--settle`` would ask for it for ever."""
    places = places_of(crashed_cluster(Given([directory])))
    report: dict[str, Any] = {"branches": [{"xid": "1:g:b", **HELD}], "nothing_acknowledged_is_lost": False}
    plan = Journal((), report)
    for progress, needed in ((PlanProgress.WRITTEN, False), (PlanProgress.WRITING, True)):
        kept = Journal((), {**report, "overtaken": "so"}, progress)
        (directory / DONE).write_bytes(msgspec.json.encode(kept))
        assert recovering._settles(plan, places) is needed


def lost(directory: Path) -> None:
    shutil.rmtree(directory / "b")


def damaged(directory: Path) -> None:
    log = directory / "b" / "log"
    path = segment_path(log, segment_firsts(log)[-2])
    bad = bytearray(path.read_bytes())
    bad[bad.index(b"TXHA") + 60] ^= 1
    path.write_bytes(bad)


def another(directory: Path) -> None:
    lost(directory)
    make_store(directory / "b", [(1, beginning(8))], 3, incarnation="another")


def shorter(directory: Path) -> None:
    """A copy of before."""
    lost(directory)
    make_store(directory / "b", [(1, beginning(5))], 3)


@pytest.mark.parametrize("happens", [lost, damaged, another, shorter])
def test_chosen_lost_since(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], happens: Any
) -> None:
    """The record is written, for b alone. Then b's disk dies: what a and c hold is looked at before a is set aside."""
    damage(directory)
    killed_at(WRITTEN, directory, monkeypatch)
    happens(directory)
    found = recover(directory, capsys, apply=False)
    assert "the store of b, which is to be promoted, is not there any more" in found["overtaken"]
    if happens in (lost, damaged):
        found = recover(directory, capsys)
        assert found["promote"] == "c" and found["missing"] == ["b"] and "refused" in found
        assert parts(directory, "a") == STORE
        assert {row["position"] for row in found["lost"]} == {"1.9", "1.10"}, "a has it, behind its damage"


def test_the_chosen_one_is_there_and_the_plan_is_finished(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(directory)
    killed_at(WRITTEN, directory, monkeypatch)
    assert recover(directory, capsys)["applied"] == str(directory / DONE) and "set-aside-1" in parts(directory, "a")


def test_other_incarnation(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed before its record; then another store stands in b's place, at the same position."""
    damage(directory)
    killed_at(PLANNED, directory, monkeypatch)
    before = record_in(directory)
    another(directory)
    found = recover(directory, capsys)
    told = "the store of b is not as it was found: it is whole, at 1.10, and another one (b/another)"
    assert found["overtaken"] == told and "refused" in found and record_in(directory) == before
    recover(directory, capsys, MISSING_A)
    made = record_in(directory)
    assert made is not None and [str(member) for member in made.ready] == ["b/another"]


def test_a_damaged_store_of_another_member_is_not_the_one_that_was_found(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No operator has accepted the loss of what only this one held."""
    damage(directory)
    killed_at(PLANNED, directory, monkeypatch)
    shutil.rmtree(directory / "a")
    make_store(directory / "a", [(1, beginning(8))], 3, incarnation="another")
    damage(directory)
    assert "another one (a/another)" in recover(directory, capsys, apply=False)["overtaken"]


def test_a_record_is_not_written_for_a_store_that_is_another_one(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where nothing that was compared says so: a plan that an earlier version has left does not know whose."""
    damage(directory)
    killed_at(PLANNED, directory, monkeypatch)
    left = json.loads((directory / JOURNAL).read_bytes())
    for row in left["report"]["stores"]:
        del row["member"], row["rebuilt"]
    (directory / JOURNAL).write_text(json.dumps(left))
    before = record_in(directory)
    another(directory)
    with pytest.raises(StoreError, match=r"count as that of b/incarnation, and there is that of b/another now"):
        run(Given([directory]), True, NOTHING, as_json=True)
    assert record_in(directory) == before and parts(directory, "a") == STORE
    assert json.loads((directory / JOURNAL).read_bytes())["progress"] == "planned", "and no run was about to"
