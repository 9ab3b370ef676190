"""What a plan says of an event that the promoted node lacks: whether a client can have been told of it."""

from __future__ import annotations

import msgspec

from recovery.planner.choice import choose, told
from tests.recovery.planner.facts import gone, position, record, site, store

FORCED = msgspec.structs.replace(record(3, "b1"), loss_accepted=3)
"""The record of a promotion for which an operator has accepted the loss of data"""


def test_what_was_given_up_is_not_said_to_have_been_told_to_nobody() -> None:
    """It lies behind its store's checkpoint, so nothing says whether it had passed the commit point (seed 513)."""
    primary, before = store("b1", "3.60", "1.1 3.41"), store("a1", "2.50", "1.1 2.41")
    begun = store("b1", "1.40")
    lost_record = msgspec.structs.replace(record(4, "b1"), loss_unknown=3)
    for chosen, by in ((primary, FORCED), (begun, FORCED), (primary, lost_record)):
        found = site(chosen, before, store("c1", "1.40"), by=by)
        assert choose(found).sure and told(position("2.45"), choose(found), found).value == "accepted"
    unsure = site(gone("b"), before, store("c1", "3.55", "1.1 3.41"), by=FORCED)
    assert told(position("2.45"), choose(unsure), unsure).value == "accepted"
    behind = site(gone("b"), before, store("c1", "1.40"), by=FORCED)
    behind = msgspec.structs.replace(behind, picked="c")
    assert told(position("3.41"), choose(behind), behind).value == "unknown"
    never = site(primary, before, store("c1", "1.40"), by=record(3, "b1"))
    assert told(position("2.45"), choose(never), never).value == "never", "nobody has accepted anything"
