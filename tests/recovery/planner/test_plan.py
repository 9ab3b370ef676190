"""What a plan does with stores that no node goes on with."""

from __future__ import annotations

from recovery.planner.plan import SetAside, SetRecordAside, WriteRecord
from tests.recovery.planner.facts import gone, record, site, store
from tests.recovery.planner.test_choice import plan


def test_nothing_is_recovered_from_empty_stores_without_a_record() -> None:
    """They may have been lost with it, and then it is no success."""
    found = plan(site(gone("a", "empty"), gone("b", "empty"), by=None))
    assert found.for_people and not found.actions and len(found.doubts) == 1
    assert "nothing is recovered: found the cluster with `txha init`" in found.doubts[0]
    found = plan(site(gone("a"), gone("b", "empty"), by=None))
    assert found.for_people and not any("txha init" in doubt for doubt in found.doubts), "a's may not be empty"


def test_damaged_stores_are_set_aside_behind_the_record() -> None:
    found = plan(site(store("a1", condition="damaged", why="a bit"), store("b1"), gone("c"), by=None, state="damaged"))
    assert [type(each) for each in found.actions] == [SetRecordAside, WriteRecord, SetAside]
    assert found.actions[-1] == SetAside("a", "a bit", "1")


def test_a_foreign_store_is_for_people_and_is_left_alone() -> None:
    found = plan(site(store("a9", condition="foreign", why="of x"), store("b1"), by=record(1, "b1")))
    assert found.for_people and "of x" in found.doubts[0] and not found.actions
    has_data = store("a9", condition="foreign", why="of x", has_data=True)
    found = plan(site(has_data, store("b1"), by=record(1, "b1")))
    assert "of x" in found.doubts[0] and not any("founded over" in doubt for doubt in found.doubts)


def test_a_store_that_was_being_overwritten_is_left_where_it_is() -> None:
    """Its node starts with it, and is copied again."""
    found = plan(site(store("a1", condition="resyncing"), store("b1"), store("c1"), by=None))
    assert [type(each) for each in found.actions] == [WriteRecord]
