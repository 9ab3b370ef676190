"""What is measured beside an attack, from what the well-behaved client and the nodes write down."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from python_tests.suites.attacks.measures import (
    MIB,
    MOST_KEPT,
    Commit,
    LogEnd,
    Memory,
    MemorySampler,
    Starvation,
    Waits,
    judged_memory,
    judged_waits,
    logged,
    quantile,
    read_commits,
    waits,
)


def test_a_line_that_is_being_written_is_left_out() -> None:
    text = "1.5 0.25 committed\n2.5 0.5 failed: StreamLostError gone\n3.5 0.1 comm"
    assert read_commits(text) == [Commit(1.5, 0.25, ""), Commit(2.5, 0.5, "failed: StreamLostError gone")]


def test_the_longest_pause_lies_between_answers_and_reaches_from_the_begin_to_the_end() -> None:
    steady = [Commit(at / 10, 0.05, "") for at in range(100)]
    assert waits(steady, 0, 10).longest == pytest.approx(0.1)
    assert waits([*steady[:20], *steady[50:]], 0, 10).longest == pytest.approx(3.1)
    assert waits(steady[:50], 0, 10).longest == pytest.approx(10 - 4.95)
    assert waits(steady[40:], 0, 10).longest == pytest.approx(4.05)
    assert waits([], 0, 10) == Waits(longest=10)


def test_one_that_is_answered_behind_the_end_counts_with_all_of_its_time() -> None:
    found = waits([Commit(0.5, 0.1, ""), Commit(0.9, 4.0, "")], 0, 1)
    assert found.longest == pytest.approx(4.3) and found.commits == 2


def test_a_failed_commit_ends_no_pause() -> None:
    found = waits([Commit(0.1, 0.1, ""), Commit(0.5, 0.1, "failed: x"), Commit(0.9, 0.1, "")], 0, 1)
    assert found.longest == pytest.approx(0.8) and found.failed == ["failed: x"]


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.0, 1), (0.001, 1)])
def test_quantiles(share: float, value: int) -> None:
    assert quantile(range(1, 101), share) == value


def test_turns_and_traces_are_found_in_a_log() -> None:
    turn = {"event": "long_turn", "fields": {"seconds": 0.06, "call": "Reading._go_on"}, "text": "a turn"}
    error = {"event": "unexpected_error", "fields": {}, "text": "an error", "trace": "Traceback ..."}
    lines = [json.dumps(turn), json.dumps({"event": "all_ready", "text": "x"}), json.dumps(error), "no JSON"]
    lines += ["Traceback (most recent call last):", "  File ..."]
    found = logged("\n".join(lines))
    assert found.turns == [(0.06, "Reading._go_on")]
    assert found.traces == ["an error", "Traceback (most recent call last):"]


def test_only_what_a_log_has_got_since_is_read(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("before\n")
    end = LogEnd(log)
    with log.open("a") as file:
        file.write("since\n")
    assert end.since() == "since\n"


@pytest.mark.parametrize(
    ("found", "starved", "harm"),
    [
        (Waits(commits=10, longest=0.9), 0.0, ""),
        (Waits(commits=10, longest=1.1), 0.0, "no commit was answered for 1.10 s"),
        (Waits(commits=10, longest=3.0), 0.7, ""),
        (Waits(commits=10, longest=3.0), 0.5, "no commit was answered for 3.00 s, 50% of it"),
        (Waits(commits=10, failed=["failed: x"], longest=0.1), 0.9, "1 commits failed, first: failed: x"),
        (Waits(longest=0.5), 0.0, "began no transaction"),
    ],
)
def test_what_harms_a_client(found: Waits, starved: float, harm: str) -> None:
    said = list(judged_waits(found, starved))
    assert (harm in said[0] and len(said) == 1) if harm else not said


def test_memory_that_stays_is_harm() -> None:
    kept, given_back = Memory(MIB, 9 * MOST_KEPT, MOST_KEPT + 3 * MIB), Memory(MIB, 9 * MOST_KEPT, MOST_KEPT)
    assert list(judged_memory({"a": kept, "b": given_back})) == ["a keeps 102 MiB more than before"]


def test_memory_of_a_process_is_watched_and_one_that_has_ended_has_none() -> None:
    sampler = MemorySampler({"this": os.getpid(), "gone": 2**22 + 1})
    held = bytearray(os.urandom(1)) * (64 * MIB)
    sampler.look()
    assert sampler.found["this"].peak - sampler.found["this"].before > 50 * MIB and len(held) == 64 * MIB
    assert sampler.found["gone"] == Memory()


def test_starvation_is_a_share() -> None:
    assert 0.0 <= Starvation({"this": os.getpid(), "gone": 2**22 + 1}).share() <= 1.0
