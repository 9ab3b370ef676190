"""What a run comes to: the exit status, and the page."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest
from rich.console import Console

from python_tests.harness.history import OK, Attempt, History
from python_tests.harness.judge import judge
from python_tests.harness.stress.report import write_page
from python_tests.harness.stress.results import BROKEN, HELD, NOT_PROVEN, Injection, Result
from python_tests.harness.stress.summary import some_of_each
from python_tests.harness.stress.terminal import show
from python_tests.harness.stress.timeline import Answers, Timeline
from tests.python_tests.model_broker import OUTPUTS, Run


def a_result(flaw: str = "") -> Result:
    history = Run(random.Random(4), flaw, steps=900, kills=2).history
    result = Result(judge(history, OUTPUTS), seconds=1.0, rounds=1, min_rate=1.0, seed=7)
    times = [attempt.answered for attempt in history.attempts if attempt.answered is not None]
    result.timeline.add(history, min(times), max(times))
    middle = (min(times) + max(times)) / 2
    result.injections = [
        Injection(1, "kill", "node-1", "primary", "SIGKILL of <node-1>", middle, 20, 3, middle + 5, True, 0.9, 1.2),
        Injection(1, "stop", "node-2", "backup", "SIGSTOP of node-2", middle + 9, 20, 3, middle + 12, True, None, None),
    ]
    return result


def test_an_honest_run_holds() -> None:
    assert a_result().status == HELD and not a_result().not_proven


@pytest.mark.parametrize(
    "spoil",
    [
        lambda result: setattr(result, "min_rate", 1e6),
        lambda result: setattr(result.injections[1], "hit", False),
        lambda result: setattr(result.injections[0], "in_flight", 0),
        lambda result: result.injections.clear(),
    ],
)
def test_too_little_load_and_a_fault_that_hit_nothing_prove_nothing(spoil) -> None:  # type: ignore[no-untyped-def]
    result = a_result()
    spoil(result)
    assert result.status == NOT_PROVEN and len(result.not_proven) == 1 and not result.broken


@pytest.mark.parametrize("part", ["stalled", "disagreements"])
def test_what_did_not_go_on_and_nodes_that_disagree_break_promises(part: str) -> None:
    result = a_result()
    getattr(result, part).append("something")
    result.min_rate = 1e6
    assert result.status == BROKEN, "also if little was proven"


def test_the_page_needs_nothing_beside_it(tmp_path: Path) -> None:
    page = tmp_path / "new" / "report.html"
    write_page(page, a_result("message of nobody"))
    text = page.read_text()
    assert text.count("<svg") == 2 and "<script" not in text and "<link" not in text
    assert not re.findall(r"(?:src|href)=\"(?!#)", text.replace('xlink:href="#', "")), "nothing is fetched"
    assert "Broken promises" in text and "from nowhere: who knows" in text
    assert "SIGKILL of &lt;node-1&gt;" in text
    hostile = a_result()
    hostile.stalled.append("<script>")
    write_page(page, hostile)
    assert "<script" not in page.read_text() and "&lt;script&gt;" in page.read_text()
    write_page(page, a_result())
    assert "Every promise held" in page.read_text() and "Broken promises" not in page.read_text()
    write_page(page, Result())
    assert page.read_text().count("<svg") == 2, "also of a run without any load"


def test_the_tables_in_the_terminal() -> None:
    for flaw, last in (("", "every promise held"), ("message of nobody", "a promise was broken")):
        console = Console(record=True, width=120, file=io.StringIO())
        show(console, a_result(flaw))
        text = console.export_text()
        assert text.strip().endswith(last) and "from nowhere (P5)" in text and "1.20 s" in text


def test_of_many_findings_some_of_each_kind_are_shown() -> None:
    lines = [*(f"lost: {n}" for n in range(9)), "partial: one"]
    assert list(some_of_each(lines, 2)) == ["lost: 0", "lost: 1", "lost: and 7 more", "partial: one"]


def answered(*pairs: tuple[float, float]) -> History:
    history = History()
    for number, (sent, at) in enumerate(pairs):
        attempt = Attempt(f"w.{number}", "w", number, messages={f"w.{number}/0": "a"}, outcome=OK)
        attempt.commit_sent, attempt.answered = sent, at
        history.attempts.append(attempt)
    return history


def test_times_around_a_fault_are_read_off_the_record() -> None:
    answers = Answers(answered((1.0, 1.1), (2.0, 5.5), (5.2, 5.6), (6.0, 6.1), (9.0, 9.5)))
    assert answers.next_ok(3.0) == pytest.approx(2.6), "the commit that was sent before does not count"
    assert answers.next_ok(9.2) is None
    assert answers.pause(3.0, 5.0) == pytest.approx(2.5)
    assert answers.pause(5.6, 7.0) == pytest.approx(3.4), "the pause may end after the fault"
    assert answers.pause(9.0, 9.9) is None


def test_the_timeline_counts_each_second_and_shows_those_without_anything() -> None:
    timeline = Timeline()
    timeline.add(answered((1.0, 1.5), (1.1, 1.2), (3.0, 3.9)), 1.0, 3.5)
    assert [(second.at, second.committed) for second in timeline.seconds] == [(1, 2), (2, 0), (3, 1)]
    assert timeline.seconds[0].longest == pytest.approx(0.5) and timeline.seconds[1].p99 == 0
