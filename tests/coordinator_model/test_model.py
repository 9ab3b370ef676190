"""A slice of the seeds, the same seed twice, and the faults that the tester must find."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.coordinator_model.pg_client import FakeConnection
from tests.coordinator_model.run import Run
from tests.coordinator_model.schedule import Process, Schedule
from tests.coordinator_model.seeded import SEEDED, Seeded, find
from tests.coordinator_model.taken_back import TakenBack
from tests.support.cases import some_of

SLICE = 120
WITHIN = 400
"""Seeds within which a seeded fault is found, also when what is drawn has changed since its own seed was noted."""
DOCUMENT = Path(__file__).parents[2] / "docs" / "coordinator_tester.md"


def test_ctrl_c_tells_what_was_done() -> None:
    """A terminal gives it to all processes: nothing was told but their tracebacks."""
    command = [sys.executable, "-m", "tests.coordinator_model", "run", "--seeds", "100000", "--jobs", "2", "--json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, start_new_session=True, **pipes) as run:  # type: ignore[call-overload]
        told = run.stderr.readline()
        os.killpg(run.pid, signal.SIGINT)
        out, errors = run.communicate()
    assert "seeds, " in told and "Traceback" not in errors and "stopped behind" in errors
    assert (run.returncode, json.loads(out)["seeds"] % 20, json.loads(out)["broken"]) == (130, 0, [])


@pytest.mark.parametrize("first", some_of(range(0, SLICE, 30), suite=[0], slices=[30]))
def test_every_promise_holds(first: int) -> None:
    broken = [result.broken for result in (Run(seed).run() for seed in range(first, first + 30)) if result.promise]
    assert broken == []


def test_what_is_in_doubt_is_not_rolled_back_by_the_next_transaction() -> None:
    """The answer of a COMMIT is lost, and it arrives later; the failed transaction is aborted when the next begins."""
    assert Run(422).run().broken == ""


def test_a_lost_commit_of_a_database_alone_is_unknown() -> None:
    """The broker had nothing to commit, so no row tells: the caller is told neither."""
    assert Run(478).run().broken == ""


def test_a_lost_connection_that_the_server_has_not_noticed_stops_nobody() -> None:
    """It was removing the row of an older decision, which the next transaction would have had to wait for."""
    assert [Run(seed).run().broken for seed in (3738, 3769, 12599)] == [""] * 3


def test_the_power_fails_where_the_log_is_and_where_it_is_recovered() -> None:
    """No process works on with a log on a disk whose machine has lost its power."""
    assert Run(8573).run().broken == ""


def test_a_branch_that_came_back_behind_its_end_is_the_administrator_s() -> None:
    """A standby goes on with the prepare of a commit that has ended, and he rolls it back before any run sees it."""
    assert Run(14661).run().broken == ""


def test_a_log_is_not_made_smaller_by_another_machine_s_clock() -> None:
    """One that is ten days ahead would forget what has ended, and a branch comes back with a standby."""
    assert Run(1391).run().broken == ""


def test_an_abort_is_not_forgotten_by_another_machine_s_clock() -> None:
    """A coordinator that was slow would find no record of it, and commit what a recovery run has rolled back."""
    assert [Run(seed).run().broken for seed in (30675, 81772)] == ["", ""]


def test_an_answer_that_a_standby_took_back_ends_a_commit() -> None:
    """An administrator rolls the branch back before the coordinator, which has the answer, has noted the end."""
    assert Run(35662).run().broken == ""


def test_only_who_was_answered_ends_a_commit_that_was_taken_back() -> None:
    """Another process has to notice what the administrator did; and so has one that was answered behind that."""
    for answer_is_first, same, excused in ((True, True, {"t"}), (True, False, set()), (False, True, set())):
        schedule = Schedule(random.Random(0))
        found = TakenBack(schedule)
        schedule.current = one = Process("one")
        if answer_is_first:
            found.answered("COMMIT PREPARED 'gid'")
        found.rolled_back("gid", "t")
        schedule.current = one if same else Process("other")
        if not same:
            found.answered("COMMIT PREPARED 'gid'")
        assert found.end_line("t", 1.0) == {"end": "t", "at": 1.0}
        assert found.ended == excused


def test_a_late_constraint_fails_by_what_is_committed_before_anybody_is_waited_for() -> None:
    """A client that is gone, and that the server has not noticed, has inserted the same value."""
    assert Run(54648).run().broken == ""


def test_lines_behind_a_failed_sync_do_not_damage_the_log() -> None:
    """Two others append before they are told, and the power fails."""
    assert Run(2314).run().broken == ""


def test_a_seed_does_the_same_again() -> None:
    for seed in (3, 4):
        told: list[list[str]] = [[], []]
        results = [Run(seed, lines.append).run() for lines in told]
        assert results[0] == results[1]
        assert told[0] == told[1]


@pytest.mark.parametrize("fault", SEEDED, ids=lambda fault: fault.name)
def test_a_seeded_fault_is_found(fault: Seeded) -> None:
    assert find(fault, 1, fault.seed) is not None or find(fault, WITHIN) is not None


def test_a_seeded_fault_is_gone_behind_it() -> None:
    """Its patches must not come and go while processes take turns, or the last one to go leaves one behind."""
    [fault] = [each for each in SEEDED if each.name == "an_engine_in_autocommit_is_joined"]
    before = vars(FakeConnection)["autocommit"]
    find(fault, 6)
    assert vars(FakeConnection)["autocommit"] is before


def test_the_document_says_by_which_seed_each_fault_is_found() -> None:
    rows = [line.split(" | ") for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    told = {row[0].strip("| `"): int(row[-1].strip("| ")) for row in rows if row[-1].strip("| ").isdigit()}
    assert told == {fault.name: fault.seed for fault in SEEDED}


def test_the_command_says_what_it_did() -> None:
    command = [sys.executable, "-m", "tests.coordinator_model", "run", "--seeds", "3", "--jobs", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["seeds"] == 3 and told["broken"] == []
    assert "3 of 3 seeds" in done.stderr
