"""The history in Parquet: nothing that the judge looks at is lost, so a file is judged as the run was."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from python_tests.harness.history import OK, UNKNOWN, History
from python_tests.harness.judge import PROMISES, judge
from python_tests.harness.stress.record import COLUMNS, Recorder, read_history
from python_tests.harness.stress.results import Injection
from tests.python_tests.model_broker import FLAWS, OUTPUTS, Run

DOCUMENT = Path(__file__).parents[4] / "docs" / "stress.md"


def written(path: Path, *histories: History) -> Path:
    with Recorder(path) as recorder:
        for history in histories:
            recorder.write(history)
    return path


@pytest.mark.parametrize("flaw", ["", *FLAWS])
def test_a_file_is_judged_as_the_history_was(tmp_path: Path, flaw: str) -> None:
    for seed in range(3):
        history = Run(random.Random(seed), flaw, steps=600, kills=3).history
        read = read_history(written(tmp_path / f"{seed}.parquet", history))
        assert judge(read, OUTPUTS).as_dict() == judge(history, OUTPUTS).as_dict()


def test_every_flaw_of_a_broker_is_found_in_the_file(tmp_path: Path) -> None:
    found = set()
    for flaw, promise in FLAWS.items():
        for seed in range(8):
            path = written(tmp_path / "history.parquet", Run(random.Random(seed), flaw).history)
            if getattr(judge(read_history(path), OUTPUTS), promise):
                found.add(promise)
                break
    assert found == set(PROMISES)


def test_two_parts_of_a_run_in_one_file(tmp_path: Path) -> None:
    """Clients of the second part bear the same names as those of the first."""
    parts = []
    for number in range(2):
        run = Run(random.Random(number), steps=600, kills=2, prefix=f"{number}:", began=1e6 * number)
        for attempt in run.history.attempts:
            assert attempt.id.startswith(f"{number}:") and attempt.channel.startswith(f"{number}:")
        parts.append(run.history)
    verdict = judge(read_history(written(tmp_path / "history.parquet", *parts)), OUTPUTS)
    assert not verdict.broken
    assert verdict.committed == sum(judge(part, OUTPUTS).committed for part in parts) > 20


def test_rows_say_who_did_what_where_and_when(tmp_path: Path) -> None:
    moments = iter(range(100))
    history = History(clock=lambda: float(next(moments)))
    history.connected("pika0#1", "amqp://one")
    attempt = history.begin("pika0#1", ["input"])
    first, second = history.publishing(attempt, "a"), history.publishing(attempt, "b")
    history.committing(attempt)
    history.answer(attempt, OK)
    lost = history.begin("pika0#1", plain=True)
    history.publishing(lost, "in")
    history.committing(lost)
    history.interrupted(lost)
    with Recorder(tmp_path / "history.parquet") as recorder:
        recorder.write(history, [Injection(1, "kill", "node-1", "primary", "SIGKILL of node-1", 2.5, 1, 1, 3.5)])
    rows = pq.read_table(tmp_path / "history.parquet").to_pylist()
    told = [(row["type"], row["operation"], row["transaction"], row["queue"], row["message"]) for row in rows]
    assert told == [
        ("invoke", "send", attempt.id, "a", first),
        ("invoke", "send", attempt.id, "b", second),
        ("invoke", "acknowledge", attempt.id, None, "input"),
        ("invoke", "commit", attempt.id, None, None),
        ("ok", "transaction", attempt.id, None, None),
        ("info", "fault", None, None, None),
        ("invoke", "send", lost.id, "in", lost.id + "/0"),
        ("info", "heal", None, None, None),
        ("invoke", "commit", lost.id, None, None),
        ("unknown", "publish", lost.id, None, None),
    ]
    assert {(row["client"], row["node"]) for row in rows if row["transaction"]} == {("pika0#1", "amqp://one")}
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    assert lost.outcome == UNKNOWN


def test_what_is_no_history_is_refused_with_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="is no history"):
        read_history(path)


def test_the_document_describes_every_column() -> None:
    table = DOCUMENT.read_text().split("| column | meaning |")[1].split("\n\n")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == COLUMNS
