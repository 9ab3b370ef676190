"""``txha recover --settle``: whom it asks, and how it says what it has found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.asking import BadArgument
from broker_plugin.cli.recovery.recovery_report import show_settled
from broker_plugin.cli.recovery.settling import _as_dict, _ours
from recovery.coordinator.recover import NOT_KNOWN, Report, Row
from recovery.coordinator.resources import ResourceLost
from recovery.planner.settle import OTHERWISE, BranchEnd
from recovery.planner.verdicts import BROKER, By, Verdict
from txobserver.outcomes import BranchOutcome
from txobserver.xid import Xid


class Node:
    """A broker that says which one it is, or nothing."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        if not self._name:
            raise ResourceLost("no process listens")
        return self._name


def test_only_a_node_of_the_cluster_that_the_plan_is_for_is_asked() -> None:
    ours: Any = Node("amqp:c/" + "1" * 32)
    others: dict[str, Any] = {"a": Node(""), "b": Node("amqp:c/" + "2" * 32)}
    assert _ours({**others, "c": ours}, "amqp:c/" + "1" * 32) is ours
    with pytest.raises(BadArgument) as found:
        _ours(others, "amqp:c/" + "3" * 32)
    said = "no node of amqp:c/33333333333333333333333333333333 is at hand: a does not answer: no process listens; "
    assert str(found.value) == said + "b is amqp:c/22222222222222222222222222222222"


def test_a_cluster_that_had_no_identity_or_tells_none_is_known_by_its_name() -> None:
    ours: Any = Node("amqp:c/" + "1" * 32)
    assert _ours({"c": ours}, "amqp:c") is ours
    earlier: Any = Node("amqp:c")
    assert _ours({"c": earlier}, "amqp:c/" + "1" * 32) is earlier


def end(which: str, fate: BranchOutcome, at: str = BROKER, why: str = "") -> BranchEnd:
    xid = Xid(1, which.encode(), b"b")
    return BranchEnd(
        Verdict(xid=xid, resource=at, outcome=BranchOutcome.COMMITTED, by=By.RECOVERY, reason=""), fate, why
    )


def test_everything_has_ended_as_was_planned(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(rows=[Row("new", "amqp:c", "1:new:b", "none", BranchOutcome.PREPARED, "young")])
    found = _as_dict(
        Path("/p/recovery-1.json"), [end("x", BranchOutcome.COMMITTED), end("x", BranchOutcome.UNKNOWN, "bank")], report
    )
    assert found["settled"] and [row["state"] for row in found["branches"]] == ["committed", "ended"]
    assert [row["xid"] for row in found["others"]] == ["1:new:b"], "what is not of the plan is only told of"
    show_settled(found)
    assert "Every branch has ended as /p/recovery-1.json says." in capsys.readouterr().out


@pytest.mark.parametrize(
    "report",
    [
        Report(waiting=[("t", "bank")]),
        Report(unreachable={"bank": "gone"}),
        Report(rows=[Row("t", "bank", "1:t:b", "commit", BranchOutcome.ROLLED_BACK, "otherwise")]),
        Report(rows=[Row("t", "bank", "1:t:b", "commit", BranchOutcome.UNKNOWN, NOT_KNOWN)]),
    ],
)
def test_what_a_recovery_run_could_not_do_counts(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    found = _as_dict(Path("/p"), [end("x", BranchOutcome.COMMITTED)], report)
    show_settled(found)
    said = capsys.readouterr()
    assert not found["settled"] and "Every branch" not in said.out and "bank" in said.out + said.err


def test_a_branch_that_has_ended_otherwise_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    ends = [end("x", BranchOutcome.COMMITTED), end("y", BranchOutcome.ROLLED_BACK, why=OTHERWISE)]
    found = _as_dict(Path("/p"), ends, Report())
    assert not found["settled"] and [row["contrary"] for row in found["branches"]] == [False, True]
    show_settled(found)
    said = " ".join(capsys.readouterr().out.split())
    assert "1 of 2 have not ended as /p says." in said and OTHERWISE.split()[-1] in said
