"""A decision of which a recovery run cannot tell whether it was recorded ends nothing but its own branch's turn."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.coordinator.decisions import DecisionUnknown
from recovery.coordinator.resources import Fate, Participant
from tests.recovery.coordinator.test_two_phases import Site, prepared


def test_an_unknown_decision_does_not_end_the_run() -> None:
    site = Site()
    first, _ = prepared(site)
    second, _ = prepared(site)
    decide = site.decisions.decide
    unknown = first.gtrid.decode()

    def lost(name: str, commit: bool, participants: Sequence[Participant] = ()) -> bool:
        if name == unknown:
            raise DecisionUnknown("the connection was lost")
        return decide(name, commit, participants)

    site.decisions.decide = lost  # type: ignore[method-assign]
    report = site.recover()
    assert {row.why for row in report.rows if row.transaction == unknown} == {"the connection was lost"}
    assert site.database.branches == {first: Fate.PREPARED}
    assert site.database.ended[second] is Fate.ROLLED_BACK
    assert not report.settled
    site.decisions.decide = decide  # type: ignore[method-assign]
    assert site.recover().settled
