"""What a program that is not typed hands over: ProgrammingError, before anything was begun, sent or decided."""

from __future__ import annotations

from typing import Any

import pytest

from recovery.dtx.arguments import make_xid
from recovery.dtx.conversation import Plain
from recovery.dtx.errors import ProgrammingError
from recovery.dtx.plain import PlainTransactions
from recovery.dtx.two_phase import TwoPhase
from tests.recovery.dtx.script import START, X, XaStatus, play
from txobserver import dtx_wire as dtx


@pytest.mark.parametrize("parts", [("1", "x"), (True, "x"), (1.0, "x"), (1, 17), (1, None), (1, "x", 2)])
def test_parts_of_an_xid(parts: tuple[Any, ...]) -> None:
    with pytest.raises(ProgrammingError, match="an xid is a number and two parts"):
        make_xid(*parts)


@pytest.mark.parametrize("timeout", ["5", -1, 1.5, 1 << 40, True])
def test_a_wrong_timeout_leaves_no_branch_at_hand(timeout: Any) -> None:
    """It was looked at behind the start, and what was published next belonged to a branch that had not been begun."""
    client = TwoPhase(60)
    with pytest.raises(ProgrammingError, match="a timeout is a whole number of seconds"):
        play(client.begin(X, timeout))
    assert client.xid is None
    play(client.begin(X), (START, XaStatus.OK))


@pytest.mark.parametrize("xid", [None, "1:x:b", (1, b"x", b"b"), 17])
def test_no_xid(xid: Any) -> None:
    client = TwoPhase(60)
    others = client.others
    for steps in (client.begin(xid), others.commit(xid), others.rollback(xid), others.outcome(xid)):
        with pytest.raises(ProgrammingError, match="what the method xid returns"):
            play(steps)
    with pytest.raises(ProgrammingError, match="what the method xid returns"):
        play(others.forget(xid))


def test_no_is_not_yes() -> None:
    """Text is true, whatever it says, and a decision cannot be taken back."""
    wrong: Any = "no"
    with pytest.raises(ProgrammingError, match="commit is True or False, and not 'no'"):
        play(TwoPhase(60).others.decide(X.globally, wrong))


@pytest.mark.parametrize("which", [X, "1:x", None])
def test_no_global_transaction(which: Any) -> None:
    """An xid is one branch: a caller that gives it to decide may not know that all branches follow."""
    for steps in (TwoPhase(60).others.decide(which, True), TwoPhase(60).others.look(which)):
        with pytest.raises(ProgrammingError, match=r"named by xid\.globally"):
            play(steps)


@pytest.mark.parametrize("token", ["text", 17, b"", b"x" * 65])
def test_a_token_that_cannot_be_rolls_back(token: Any) -> None:
    """What was published stayed in the channel, and the next commit took it along."""
    with pytest.raises(ProgrammingError, match="a token is 1 to 64 bytes"):
        play(PlainTransactions(60).commit(token), (Plain.ROLLBACK, None))
    with pytest.raises(ProgrammingError, match="a token is 1 to 64 bytes"):
        play(PlainTransactions(60).outcome(token))


def test_the_longest_token() -> None:
    script = (dtx.Token(b"x" * 64), dtx.TokenOk(7)), (Plain.COMMIT, None)
    play(PlainTransactions(60).commit(b"x" * 64), *script)
