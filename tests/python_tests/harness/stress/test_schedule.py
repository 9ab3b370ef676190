"""Schedules: by lot, the same for the same seed; from a file, with a sentence for what is wrong in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from python_tests.harness.stress.schedule import RandomSchedule, ScheduleError, Step, read_schedule

KINDS = ("kill", "stop", "all", "clock")
NAMES = ("node-1", "node-2")


def rounds(seed: int, count: int = 60) -> list[list[Step]]:
    schedule = RandomSchedule(seed, KINDS, frozenset({"all"}), 20)
    return [schedule.round() for _ in range(count)]


def test_the_same_seed_gives_the_same_rounds() -> None:
    assert rounds(5) == rounds(5)
    assert rounds(5) != rounds(6)


def test_every_kind_comes_before_any_comes_again() -> None:
    first = [steps[0].kind for steps in rounds(1)]
    for at in range(0, len(first), len(KINDS)):
        assert sorted(first[at : at + len(KINDS)]) == sorted(KINDS)


def test_a_second_fault_begins_while_the_first_lasts_and_never_beside_one_that_hits_all() -> None:
    pairs = [steps for steps in rounds(2, 300) if len(steps) == 2]
    assert pairs
    for first, second in pairs:
        assert first.at <= second.at <= first.at + first.seconds
        assert first.kind != second.kind and "all" not in (first.kind, second.kind)


def test_all_times_are_within_the_round() -> None:
    assert all(0 < step.at < 20 and step.seconds > 0 for steps in rounds(3) for step in steps)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "schedule.toml"
    path.write_text(
        '[[step]]\nat = 5\nfault = "stop"\n[[step]]\nat = 1\nfault = "kill"\ntarget = "node-2"\nfor = 2.5\n'
    )
    schedule = read_schedule(path, KINDS, NAMES)
    assert schedule.round() == [Step(1, "kill", "node-2", 2.5), Step(5, "stop", "any", 5.0)] == schedule.round()
    assert schedule.kinds == ["kill", "stop"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "step: Field required"),
        ("step = []", "at least 1 item"),
        ("[[step]]\nat = 1", "step.0.fault: Field required"),
        ('[[step]]\nat = -1\nfault = "kill"', "greater than or equal to 0"),
        ('[[step]]\nat = 1\nfault = "flood"', "there is no fault 'flood'; there are kill, stop, all, clock"),
        ('[[step]]\nat = 1\nfault = "kill"\ntarget = "node-9"', "there is no target 'node-9'"),
        ('[[step]]\nat = 1\nfault = "kill"\nwhen = 1', "Extra inputs are not permitted"),
        ("[[step", "is not valid TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "schedule.toml"
    path.write_text(text)
    with pytest.raises(ScheduleError, match=sentence.replace("[", r"\[")):
        read_schedule(path, KINDS, NAMES)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScheduleError, match="cannot read"):
        read_schedule(tmp_path / "none.toml", KINDS, NAMES)
