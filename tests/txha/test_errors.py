"""docs/errors.md and the hierarchy: the page has what ``txha`` exports, with its bases and when it is raised."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path

import pytest

import txha
from tests.txha.names import exceptions

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "errors.md"
EACH = pytest.mark.parametrize("name", sorted(exceptions()))


def rows() -> dict[str, list[str]]:
    """The cells behind the name of each exception on the page."""
    found: dict[str, list[str]] = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line[1:-1].split("|")]
        if re.fullmatch(r"`\w+`", cells[0]) and line.startswith("|"):
            name = cells[0].strip("`")
            assert name not in found, f"{name} stands twice on the page"
            found[name] = cells[1:]
    return found


def test_the_page_has_every_exception_and_no_other() -> None:
    assert sorted(rows()) == sorted(exceptions())


@EACH
def test_the_page_says_when_and_what_to_do(name: str) -> None:
    bases, raised, transaction, to_do = rows()[name]
    assert [base.__name__ for base in exceptions()[name].__bases__] == re.findall(r"`(\w+)`", bases)
    assert raised
    if raised.startswith("never itself"):
        return
    assert to_do, "what to do is said"
    assert transaction or issubclass(exceptions()[name], txha.StoreError), "and what became of the transaction"


@EACH
def test_each_says_when_it_is_raised(name: str) -> None:
    kind = exceptions()[name]
    said = " ".join((vars(kind)["__doc__"] or "").split())
    assert re.match(r"Raised,? .{20,}", said) or (name == "Error" and said.startswith("Never raised itself"))


@EACH
def test_one_root(name: str) -> None:
    assert issubclass(exceptions()[name], txha.Error)


def test_each_name_once() -> None:
    """No other class of ours is called so: an ``except`` clause for one would let the other pass."""
    made = [
        found
        for floor in ("txobserver", "ha", "recovery", "broker_plugin")
        for path in (ROOT / floor).rglob("*.py")
        for found in re.findall(r"^ *class (\w+)\b", path.read_text(), re.MULTILINE)
    ]
    assert {name: made.count(name) for name in exceptions()} == dict.fromkeys(exceptions(), 1)


@EACH
def test_they_pass_from_process_to_process(name: str) -> None:
    """A pool of processes hangs or breaks with an exception that cannot be pickled."""
    kind = exceptions()[name]
    there = (
        txha.HeuristicTransaction("a", {"broker": txha.BranchOutcome.ROLLED_BACK})
        if kind is txha.HeuristicTransaction
        else kind("a sentence")
    )
    for back in (pickle.loads(pickle.dumps(there)), copy.copy(there)):
        assert type(back) is kind and str(back) == str(there) and vars(back) == vars(there)


def test_what_a_failed_transaction_means_is_a_class() -> None:
    """``except txha.RolledBack``: nothing of it has happened, whichever component says so; the unknown is none of
    those."""
    assert issubclass(txha.TransactionRolledBack, txha.RolledBack) and issubclass(
        txha.BranchRolledBack, txha.RolledBack
    )
    apart = (txha.RolledBack, txha.OutcomeUnknown, txha.HeuristicOutcome, txha.ResourceLost, txha.Conflict)
    assert not [(one, other) for one in apart for other in apart if one is not other and issubclass(one, other)]
