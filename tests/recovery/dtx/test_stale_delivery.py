"""A branch is not begun with messages in hand that a lost connection delivered."""

from __future__ import annotations

import pytest

from recovery.dtx.errors import StaleDelivery
from recovery.dtx.two_phase import ACTIVE, IDLE, TwoPhase
from tests.recovery.dtx.script import LOST, OK, START, X, play


def test_stale_deliveries_are_told_before_a_branch_begins() -> None:
    """And nothing is begun: the next one may."""
    branch = TwoPhase(60)
    with pytest.raises(StaleDelivery):
        play(branch.begin(X), (START, LOST), stale=True)
    assert branch.state == IDLE and branch.xid is None
    play(branch.begin(X), (START, OK))
    assert branch.state == ACTIVE
