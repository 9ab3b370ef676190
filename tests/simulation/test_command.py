"""``python -m tests.simulation``: what it is given wrongly is refused, and is no success."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests.simulation import __main__ as command
from tests.simulation.seeded import SEEDED


@pytest.mark.parametrize("words", [("seeded", "no such fault"), ("run", "--jobs", "0")])
def test_nothing_that_was_run_is_no_success(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(command.app, list(words))
    assert done.exit_code == 2, "0 would say that every fault was found, or every promise held"


def test_a_seeded_fault_is_named_as_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(command, "find", lambda fault, seeds: tried.append(fault.name))
    name = SEEDED[3].name
    done = CliRunner().invoke(command.app, ["seeded", name.replace("_", " ")])
    assert (tried, done.exit_code) == ([name], 1)
