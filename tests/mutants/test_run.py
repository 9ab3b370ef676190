"""From the draw to the verdict, on a small project of the test's own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants import trial as trials
from tests.mutants.copy import scratch_copy
from tests.mutants.draw import all_mutations, draw
from tests.mutants.evidence import Evidence, evidence
from tests.mutants.instrument import numbering
from tests.mutants.mutation import Mutation
from tests.mutants.run import Results, run, share
from tests.mutants.scope import ROOT, mutated_files
from tests.mutants.trial import Verdict, trial

PRODUCT = """
def larger(a, b):
    if a > b:
        return a
    return b


def count(end):
    at = 0
    while at < end:
        at += 1
    return at


def untested(a):
    return a + 1
"""
TESTS = """
from ha.clock import count, larger

def test_larger():
    assert larger(1, 2) == 2
    assert larger(2, 1) == 2

def test_count():
    assert count(3) == 3
"""
SIMULATOR = """
from ha.clock import larger

class Run:
    def __init__(self, seed):
        self.broken = ""

    def run(self):
        self.broken = "" if larger(7, 3) is not None else "P1: nothing is larger"
        return self
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    pieces = {"ha/clock.py": PRODUCT, "tests/ha/test_clock.py": TESTS, "tests/simulation/run.py": SIMULATOR}
    for path, text in pieces.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for package in ("ha", "tests", "tests/ha", "tests/simulation"):
        (root / package / "__init__.py").touch()
    shutil.copytree(ROOT / "tests" / "mutants", root / "tests" / "mutants", ignore=shutil.ignore_patterns("test_*"))
    return root


@pytest.fixture(scope="module")
def collected(project: Path) -> Evidence:
    return evidence(project, project / "build", print)


@pytest.fixture
def copy(project: Path) -> Iterator[Path]:
    with scratch_copy(project) as found:
        yield found


def the(project: Path, operator: str, old: str, new: str) -> Mutation:
    (found,) = (e for e in all_mutations(project) if (e.operator, e.old, e.new) == (operator, old, new))
    return found


def judged(project: Path, copy: Path, collected: Evidence, mutation: Mutation) -> Verdict:
    steps = collected.steps(mutation, numbering(project, mutated_files(project)))
    return trial(copy, mutation, steps, collected.seconds)


def test_a_test_s_own_block_is_what_it_runs(project: Path, collected: Evidence) -> None:
    numbers = numbering(project, mutated_files(project))
    steps = collected.steps(the(project, "comparison", "a > b", "a >= b"), numbers)
    assert steps[0] == "tests/ha/test_clock.py::test_larger" and steps[1].startswith("seed ")
    assert "tests/ha/test_clock.py::test_count" not in steps
    assert len(steps) == 41
    assert evidence(project, project / "build", pytest.fail).runs == collected.runs, "the second time it is read"


def test_a_fault_that_a_test_sees_dies(project: Path, copy: Path, collected: Evidence) -> None:
    found = judged(project, copy, collected, the(project, "condition", "a > b", "not (a > b)"))
    assert (found.how, found.killer) == ("test", "tests/ha/test_clock.py::test_larger")
    assert (copy / "ha/clock.py").read_text() == (project / "ha/clock.py").read_text() == PRODUCT


def test_a_fault_that_only_a_seed_sees_dies(project: Path, copy: Path, collected: Evidence) -> None:
    mutation = the(project, "return", "a", "None")
    assert trial(copy, mutation, ["seed 0"], {}).how == "seed"


def test_an_equivalent_one_survives(project: Path, copy: Path, collected: Evidence) -> None:
    """The larger of two equal numbers is either."""
    assert judged(project, copy, collected, the(project, "comparison", "a > b", "a >= b")).how == "survived"


def test_what_nothing_runs_survives(project: Path, copy: Path, collected: Evidence) -> None:
    found = judged(project, copy, collected, the(project, "arithmetic", "a + 1", "(a - 1)"))
    assert found.how == "survived" and "no judging test" in found.text


def test_one_that_hangs_dies(project: Path, copy: Path, collected: Evidence, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "PATIENCE", 5.0)
    assert judged(project, copy, collected, the(project, "statement", "at += 1", "pass")).how == "hang"


def test_a_failure_that_does_not_come_twice_is_none(project: Path, copy: Path) -> None:
    """A machine that is busy makes tests fail, too."""
    once = "import os\n\ndef test_once():\n    assert os.path.exists('seen') or not open('seen', 'w')\n"
    (copy / "tests/ha/test_once.py").write_text(once)
    mutation = the(project, "arithmetic", "a + 1", "(a - 1)")
    assert trial(copy, mutation, ["tests/ha/test_once.py::test_once"], {}).how == "survived"
    (copy / "seen").unlink()
    assert not trial(copy, mutation, ["tests/ha/test_once.py::test_once", "seed 0"], {}).dead


def test_one_that_cannot_be_imported_dies(project: Path, copy: Path, collected: Evidence) -> None:
    mutation = the(project, "arithmetic", "a + 1", "(a - 1)")
    broken = Mutation(mutation.path, 1, "x", "x", 0, 0, "", "import nothing_of_this_name\n")
    assert trial(copy, broken, ["tests/ha/test_clock.py::test_larger"], {}).how == "import"


def test_a_draw_belongs_to_its_seed(project: Path) -> None:
    large = draw(project, 12, 5)
    assert draw(project, 12, 5) == large and draw(project, 6, 5) == large[:6]
    assert draw(project, 12, 6) != large
    texts = {each.apply(PRODUCT) for each in draw(project, 1000, 5)}
    assert len(texts) == len(draw(project, 1000, 5)) and PRODUCT not in texts


def test_a_run_that_was_stopped_goes_on(project: Path, collected: Evidence, tmp_path: Path) -> None:
    sample = [the(project, "condition", "a > b", "not (a > b)"), the(project, "comparison", "a > b", "a >= b")]
    numbers = numbering(project, mutated_files(project))
    file = tmp_path / "verdicts"
    done: list[Mutation] = []
    run(project, sample[:1], collected, numbers, Results(file), 1, lambda each, _: done.append(each))
    with file.open("a") as open_file:
        open_file.write('{"key": "cut sh')
    results = Results(file)
    results.read()
    run(project, sample, collected, numbers, results, 1, lambda each, _: done.append(each))
    assert done == sample and share(sample, results) == 0.5


def test_what_is_mutated() -> None:
    files = mutated_files()
    some = {"ha/primary/primary.py", "txobserver/ids.py", "broker_plugin/node/shell.py", "recovery/store/segment.py"}
    assert some <= set(files)
    assert not [path for path in files if path.startswith(("recovery/pipeline", "recovery/planner", "tests"))]
