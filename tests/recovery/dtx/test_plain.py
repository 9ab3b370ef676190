"""A plain transaction's commit: every answer, and every outcome behind a lost one."""

from __future__ import annotations

import pytest

from recovery.dtx.conversation import Plain
from recovery.dtx.errors import OutcomeUnknown, ProgrammingError, RolledBack
from recovery.dtx.plain import PlainTransactions
from tests.recovery.dtx.script import LOST, Answer, play, refused
from txobserver import dtx_wire as dtx
from txobserver.outcomes import BranchOutcome

TOKEN = (dtx.Token(b"t"), dtx.TokenOk(7))
NAME = dtx.XidFields(0, b"t", b"")
ASKED = dtx.Outcome(dtx.BY_TOKEN, NAME, since=7)


def commit(*script: tuple[dtx.DtxMethod | Plain, Answer], patience: float = 60) -> None:
    play(PlainTransactions(patience).commit(b"t"), *script)


def test_committed() -> None:
    commit(TOKEN, (Plain.COMMIT, None))


def test_refused() -> None:
    with pytest.raises(RolledBack, match="406 a backup cannot"):
        commit(TOKEN, (Plain.COMMIT, refused(406, "a backup cannot")))


@pytest.mark.parametrize("code", [530, 542])
def test_a_token_that_cannot_be(code: int) -> None:
    with pytest.raises(ProgrammingError):
        commit((dtx.Token(b"t"), refused(code)))


def test_work_that_was_refused() -> None:
    with pytest.raises(RolledBack, match="404 no exchange"):
        commit((dtx.Token(b"t"), refused(404, "no exchange")))


def test_lost_before_the_commit() -> None:
    with pytest.raises(RolledBack, match="before the commit was sent"):
        commit((dtx.Token(b"t"), LOST))


def test_lost_and_committed() -> None:
    """What is pending or active may still become anything: asked again."""
    open_yet = [(ASKED, BranchOutcome.ACTIVE), (ASKED, LOST), (ASKED, BranchOutcome.PENDING)]
    commit(TOKEN, (Plain.COMMIT, LOST), *open_yet, (ASKED, BranchOutcome.COMMITTED))


@pytest.mark.parametrize("outcome", [BranchOutcome.UNKNOWN, BranchOutcome.ROLLED_BACK])
def test_lost_and_rolled_back(outcome: BranchOutcome) -> None:
    with pytest.raises(RolledBack, match="has not been committed"):
        commit(TOKEN, (Plain.COMMIT, LOST), (ASKED, outcome))


def test_expired_is_not_rolled_back() -> None:
    with pytest.raises(OutcomeUnknown, match="not remembered"):
        commit(TOKEN, (Plain.COMMIT, LOST), (ASKED, BranchOutcome.EXPIRED))


@pytest.mark.parametrize("outcome", [BranchOutcome.ACTIVE, BranchOutcome.PENDING])
def test_nobody_knows(outcome: BranchOutcome) -> None:
    with pytest.raises(OutcomeUnknown) as error:
        commit(TOKEN, (Plain.COMMIT, LOST), (ASKED, outcome), patience=0)
    assert error.value.outcome is outcome


@pytest.mark.parametrize("answer", [None, LOST, refused(404)])
def test_rollback(answer: Answer) -> None:
    play(PlainTransactions(60).rollback(), (Plain.ROLLBACK, answer))


def test_outcome() -> None:
    asked = dtx.Outcome(dtx.BY_TOKEN, NAME)
    assert (
        play(PlainTransactions(60).outcome(b"t"), (asked, LOST), (asked, BranchOutcome.COMMITTED))
        is BranchOutcome.COMMITTED
    )
