"""What clients can have been told of an event, as far as the stores that are left say."""

from __future__ import annotations

import msgspec
import pytest

from recovery.planner.choice import choose, told
from recovery.planner.facts import Site
from tests.recovery.planner.facts import gone, position, record, site, store
from tests.recovery.planner.test_choice import excluding, forced

TOLD: dict[str, tuple[Site, str, str]] = {
    "every member of the ready set lacks nothing that was told": (
        site(store("a1", "1.20"), store("b1"), by=record(1, "b1")),
        "1.11",
        "never",
    ),
    "a later primary was chosen without it": (
        site(store("a1", "1.20"), store("b1", "2.12", "1.1 2.11"), by=record(2, "c1")),
        "1.11",
        "never",
    ),
    "and what stands in its place there is in a checkpoint": (
        site(store("a1", "1.20"), store("b1", "2.12", "1.1 2.11", applied="2.12"), by=record(2, "c1")),
        "1.11",
        "never",
    ),
    "its loss was accepted, and now the chosen store is one of two": (
        site(
            store("a1", "1.50", applied="1.50"),
            store("b1", "7.60", "1.1 7.41", applied="7.60"),
            store("c1", "7.50", "1.1 7.31", applied="7.50"),
            by=forced(7, "x1"),
        ),
        "1.45",
        "acknowledged",
    ),
    "it is in a checkpoint, so it had passed the commit point": (
        site(store("a1", "1.20", condition="damaged", applied="1.12"), store("b1"), by=record(1, "a1")),
        "1.12",
        "acknowledged",
    ),
    "it is behind every checkpoint": (
        site(store("a1", "1.20", condition="damaged", applied="1.12"), store("b1"), by=record(1, "a1")),
        "1.13",
        "unknown",
    ),
    "another member whose log is whole lacks it": (
        site(
            store("a1", "1.20", condition="damaged", applied="1.10"),
            store("c1", "1.12", condition="damaged", applied="1.10"),
            store("b1"),
            by=record(1, "a1", "c1"),
        ),
        "1.13",
        "never",
    ),
    "another member lacks it because its own log is damaged": (
        site(
            store("a1", "1.20", condition="damaged", applied="1.10"),
            store("c1", "1.12", condition="damaged", applied="1.10", complete=False),
            store("b1"),
            by=record(1, "a1", "c1"),
        ),
        "1.13",
        "unknown",
    ),
    "it is in a checkpoint, and another node was promoted without it": (
        excluding(store("c1")),
        "1.45",
        "acknowledged",
    ),
    "what follows the checkpoint of a store that the promoted one excludes": (
        site(store("a1", "1.50", applied="1.45"), store("b1", "2.60", "1.1 2.41"), store("c1"), by=None),
        "1.48",
        "unknown",
    ),
    "its loss was accepted": (
        site(store("a1", "1.20", applied="1.20"), store("b1", "2.12", "1.1 2.11"), by=forced(2, "b1")),
        "1.15",
        "accepted",
    ),
    "without a record it is not known": (
        site(store("a1", "1.20", condition="damaged", applied="1.10"), store("b1"), by=None),
        "1.13",
        "unknown",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_what_clients_can_have_been_told(name: str) -> None:
    found, event, answer = TOLD[name]
    assert told(position(event), choose(found), found).value == answer


def test_what_was_given_up_is_not_said_to_have_been_told_to_nobody() -> None:
    """It lies behind its store's checkpoint, so nothing says whether it had passed the commit point (seed 513)."""
    primary, before = store("b1", "3.60", "1.1 3.41"), store("a1", "2.50", "1.1 2.41")
    begun = store("b1", "1.40")
    lost_record = msgspec.structs.replace(record(4, "b1"), loss_unknown=3)
    for chosen, by in ((primary, forced(3, "b1")), (begun, forced(3, "b1")), (primary, lost_record)):
        found = site(chosen, before, store("c1", "1.40"), by=by)
        assert choose(found).sure and told(position("2.45"), choose(found), found).value == "accepted"
    unsure = site(gone("b"), before, store("c1", "3.55", "1.1 3.41"), by=forced(3, "b1"))
    assert told(position("2.45"), choose(unsure), unsure).value == "accepted"
    behind = site(gone("b"), before, store("c1", "1.40"), by=forced(3, "b1"))
    behind = msgspec.structs.replace(behind, picked="c")
    assert told(position("3.41"), choose(behind), behind).value == "unknown"
    never = site(primary, before, store("c1", "1.40"), by=record(3, "b1"))
    assert told(position("2.45"), choose(never), never).value == "never", "nobody has accepted anything"
