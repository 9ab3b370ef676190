"""A decision that a recovery run cannot record, or cannot forget, ends nothing but its own turn."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.coordinator.decisions import DecisionRefused, DecisionUnknown
from recovery.coordinator.resources import Participant
from tests.recovery.coordinator.test_two_phases import Site, prepared
from txobserver.outcomes import BranchOutcome


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
    assert site.database.branches == {first: BranchOutcome.PREPARED}
    assert site.database.ended[second] is BranchOutcome.ROLLED_BACK
    assert not report.settled
    site.decisions.decide = decide  # type: ignore[method-assign]
    assert site.recover().settled


def test_a_record_that_cannot_be_removed_does_not_end_the_run() -> None:
    """As where a dead client holds its row: the others are settled, and forgotten, and the run says what it left."""
    site = Site()
    both = []
    for database, broker in (prepared(site), prepared(site)):
        both.append(database.gtrid.decode())
        site.decisions.decide(both[-1], True, [site.database.ticket(database), site.broker.ticket(broker)])
    finish = site.decisions.finish

    def refused(name: str) -> None:
        if name == both[0]:
            raise DecisionRefused("another session holds it")
        finish(name)

    site.decisions.finish = refused  # type: ignore[method-assign]
    report = site.recover()
    assert report.waiting == [(both[0], "its record to be removed: another session holds it")]
    assert not report.settled and list(site.decisions.unfinished()) == [both[0]]
    assert site.fates() == {BranchOutcome.COMMITTED}
    site.decisions.finish = finish  # type: ignore[method-assign]
    assert site.recover().settled and not site.decisions.unfinished()
