"""Whom to promote, whether anything acknowledged is lost, and what is known of each event that is."""

from __future__ import annotations

import msgspec
import pytest

from ha.membership.record import Record, first_record
from recovery.planner.choice import HEADROOM, choose, record_for, told
from recovery.planner.facts import Evidence, PromotedContents, Site, SurveyedStore
from recovery.planner.plan import RecoveryPlan, WriteRecord, make_plan
from tests.recovery.planner.facts import gone, position, record, site, store
from txobserver.ids import Member

ALL = record(1, "a1", "b1", "c1")

ID = "0123456789abcdef" * 2


def forced(generation: int, *ready: str) -> Record:
    """An operator has accepted the loss of data for this generation."""
    return msgspec.structs.replace(record(generation, *ready), loss_accepted=generation)


def identified(found: Site) -> Site:
    """Its stores know the identity of their cluster."""
    stores = tuple(msgspec.structs.replace(store, cluster_id=ID) for store in found.stores)
    return msgspec.structs.replace(found, stores=stores, cluster_id=ID)


CASES: dict[str, tuple[Site, str, bool, bool]] = {
    "all is well: names break the tie": (site(store("a1"), store("b1"), store("c1"), by=ALL), "c", True, True),
    "the greatest position wins": (site(store("a1", "1.11"), store("b1"), store("c1"), by=ALL), "a", True, True),
    "one is left of the ready set": (site(store("b1"), gone("a"), gone("c"), by=ALL), "b", True, True),
    "who is not ready may have more, and was never to be promoted": (
        site(store("a1", "1.20"), store("b1"), gone("c"), by=record(1, "b1", "c1")),
        "b",
        True,
        True,
    ),
    "the best log is damaged in the middle": (
        site(store("a1", "1.20", condition="damaged", complete=False), store("b1"), store("c1", "1.9"), by=ALL),
        "b",
        True,
        True,
    ),
    "a tail of an earlier generation is no longer log": (
        site(store("a1", "1.90"), store("b1", "2.12", "1.1 2.11"), gone("c"), by=record(2, "b1", "a1")),
        "b",
        True,
        True,
    ),
    "no member of the ready set is left": (
        site(store("a1"), store("b1", "1.9"), gone("c"), by=record(1, "c1")),
        "a",
        False,
        False,
    ),
    "a wiped store is not the member": (site(store("a2"), store("b1", "1.5"), by=record(1, "a1")), "a", False, False),
    "a damaged store is the only member": (
        site(store("a1", condition="damaged"), store("b1", "1.5"), by=record(1, "a1")),
        "b",
        False,
        False,
    ),
    "a store that is being overwritten is never promoted": (
        site(store("a1", "3.40", condition="resyncing"), store("b1"), by=record(3, "b1")),
        "b",
        True,
        True,
    ),
    "no record, and every store is there": (
        site(store("a1"), store("b1", "1.12"), store("c1"), by=None),
        "b",
        True,
        False,
    ),
    "no record, and one store is missing": (
        site(store("a1"), store("b1", "1.12"), gone("c"), by=None),
        "b",
        False,
        False,
    ),
    "no record, and one store is new": (
        site(store("a1"), store("b1"), gone("c", "empty"), by=None),
        "b",
        False,
        False,
    ),
    "no record, and one store is damaged": (
        site(store("a1"), store("b1"), store("c1", condition="damaged"), by=None),
        "b",
        False,
        False,
    ),
    "no record, and one store was being overwritten, so it was in no ready set": (
        site(store("a1"), store("b1"), store("c1", condition="resyncing"), by=None),
        "b",
        True,
        False,
    ),
    "no record, and an operator has left the store of another cluster here": (
        site(store("a1"), store("b1"), store("c1"), store("x9", "9.9", condition="foreign"), by=None),
        "c",
        True,
        False,
    ),
    "no record, and the number of nodes is unknown": (site(store("a1"), by=None, nodes=None), "a", False, False),
    "a damaged record is none": (
        site(store("a1"), store("b1"), store("c1"), by=None, state="damaged"),
        "c",
        True,
        False,
    ),
    "an old copy of the record says nothing": (
        site(store("a1"), store("b1", "2.12", "1.1 2.11"), store("c1"), by=record(1, "a1")),
        "b",
        True,
        False,
    ),
    "older_record_restored: a copy of the same generation lists a member that lacks what had passed": (
        site(store("a1", "1.20", applied="1.20"), store("b1"), store("c1"), by=record(1, "a1", "b1")),
        "a",
        True,
        False,
    ),
    "older_record_restored: and the store that shows it is all that is left of its node": (
        site(store("a1", "1.20", condition="damaged", applied="1.20"), store("b1"), gone("c"), by=record(1, "b1")),
        "b",
        False,
        False,
    ),
    "a copy that no store contradicts cannot be told from the record": (
        site(gone("a"), store("b1"), by=record(1, "a1", "b1"), nodes=frozenset("ab")),
        "b",
        True,
        True,
    ),
    "who was overwritten with consent has a checkpoint that no other node has": (
        site(store("a1", "1.20", applied="1.20"), store("b1", "2.12", "1.1 2.11"), by=forced(2, "b1")),
        "b",
        True,
        True,
    ),
    "the loss that was accepted is of what came before that promotion, and of nothing in it": (
        site(
            store("a1", "2.60", "1.1 2.31", applied="2.60"),
            store("b1", "2.70", "1.1 2.41"),
            gone("c"),
            by=forced(2, "b1"),
        ),
        "b",
        False,
        False,
    ),
    "who is not ready may lack what has passed": (
        site(store("a1", "1.20", applied="1.20"), store("b1", "1.20"), store("c1", "1.5"), by=record(1, "a1", "b1")),
        "b",
        True,
        True,
    ),
    "so may a new store of a ready node": (
        site(store("a1", "1.20", applied="1.20"), store("c2", "1.5"), gone("b"), by=record(1, "a1", "c1")),
        "a",
        True,
        True,
    ),
    "and what is left of a damaged one": (
        site(
            store("a1", "1.20", applied="1.20"),
            store("c1", "1.5", condition="damaged", complete=False),
            gone("b"),
            by=record(1, "a1", "c1"),
        ),
        "a",
        True,
        True,
    ),
    "no record, and one of our nodes has the store of another cluster": (
        site(store("a1"), store("b1"), store("c9", "9.9", condition="foreign"), by=None),
        "b",
        False,
        False,
    ),
    "a store that was being overwritten says nothing against the record": (
        site(store("a1", "1.50", condition="resyncing", applied="1.50"), store("b1"), store("c1"), by=record(1, "b1")),
        "b",
        True,
        True,
    ),
    "a record of before there were identities, though the stores know theirs": (
        identified(site(store("a1", "1.20"), store("b1"), store("c1"), by=record(1, "b1"))),
        "a",
        True,
        False,
    ),
    "no record, and one store was being overwritten by the primary of a later generation": (
        site(
            store("a1"),
            store("b1", "1.12"),
            store("c1", "5.2", "1.1 5.2", condition="resyncing", applied="1.1"),
            by=None,
        ),
        "b",
        True,
        False,
    ),
    "a store of another cluster does not count": (
        site(store("a9", "8.99", condition="foreign"), store("b1"), by=record(1, "b1")),
        "b",
        True,
        True,
    ),
    "each store has a checkpoint that the other lacks": (
        site(store("a1", "1.50", applied="1.50"), store("b1", "2.60", "1.1 2.41", applied="2.60"), by=None),
        "b",
        False,
        False,
    ),
    "and the record lists one of them": (
        site(store("a1", "1.50", applied="1.50"), store("b1", "2.60", "1.1 2.41"), store("c1"), by=record(2, "b1")),
        "b",
        False,
        False,
    ),
    "two histories of one generation": (
        site(
            store("a1", "2.60", "1.1 2.31", applied="2.60"),
            store("b1", "2.70", "1.1 2.41", applied="2.70"),
            store("c1"),
            by=None,
        ),
        "b",
        False,
        False,
    ),
    "what was being overwritten had passed, and no node has it": (
        site(store("a1", "1.50", condition="resyncing", applied="1.50"), store("b1"), store("c1"), by=None),
        "c",
        False,
        False,
    ),
    "two nodes of different generations, without a record": (
        site(store("a1", "1.90"), store("b1", "3.12", "1.1 3.12"), store("c1"), by=None),
        "b",
        True,
        False,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_who_is_promoted(name: str) -> None:
    found, chosen, sure, by_itself = CASES[name]
    choice = choose(found)
    assert choice.chosen is not None and choice.chosen.node == chosen
    assert (choice.sure, choice.by_itself) == (sure, by_itself)
    assert choice.reasons and all(
        chosen in reason or "record" in reason or sure is False for reason in choice.reasons[-1:]
    )


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_written_where_nodes_would_do_the_same_by_themselves(name: str) -> None:
    found, chosen, _, by_itself = CASES[name]
    written = [each.record for each in plan(found).actions if isinstance(each, WriteRecord)]
    assert len(written) == (not by_itself)
    for each in written:
        generations = [store.tail.generation for store in found.stores if store.condition != "foreign"]
        assert [member.node for member in each.ready] == [chosen] and each.primary == each.ready[0]
        assert each.generation > max(generations) and each.released and each.preferred == chosen


def excluding(*more: SurveyedStore, by: Record | None = None) -> Site:
    """b was promoted from an old copy, without what a had acknowledged."""
    a, b = store("a1", "1.50", applied="1.50"), store("b1", "2.60", "1.1 2.41", applied="2.60")
    return site(a, b, *more, by=by)


def test_stores_that_exclude_each_other_are_for_an_operator_to_choose_from() -> None:
    for more in ((store("c1", "1.45", applied="1.45"),), (store("c1", "1.40", applied="1.40"),)):
        choice = choose(excluding(*more))
        assert choice.between == ("b", "a"), "what a contains need not be chosen"
        assert not choice.missing and not choice.picked
    for node in "ab":
        picked = choose(msgspec.structs.replace(excluding(*more), picked=node))
        assert picked.chosen is not None and picked.chosen.node == node
        assert picked.picked and not picked.sure and picked.between == choice.between
    assert not choose(msgspec.structs.replace(excluding(*more), picked="c")).picked


def test_a_rival_that_another_one_does_not_contain_can_be_chosen() -> None:
    """It holds events that the longer one lacks, whether they had passed the commit point or not."""
    chosen = store("c1", "3.70", "1.1 3.21", applied="3.70")
    longer = store("b1", "2.60", "1.1 2.41", applied="2.60")
    for rival in (store("a1", "2.50", "1.1 2.31", applied="2.50"), store("a1", "1.50", applied="1.25")):
        assert choose(site(rival, longer, chosen, by=None)).between == ("c", "b", "a")


def test_a_rival_that_cannot_be_chosen_has_to_be_accepted_by_name() -> None:
    """Also where the record is trusted: none of its members has a store."""
    overwritten = store("a1", "1.50", condition="resyncing", applied="1.50")
    assert choose(site(overwritten, store("b1"), store("c1"), by=None)).missing == ("a",)
    damaged = store("a1", "1.50", condition="damaged", applied="1.50")
    assert choose(site(damaged, store("b1"), gone("c"), by=record(1, "c1"))).missing == ("a", "c")


def test_what_was_accepted_before_is_not_asked_for_again() -> None:
    """If the chosen store goes on from that promotion; one that does not may lose something else."""
    later = store("b1", "7.60", "1.1 7.41", applied="7.60")
    rival = store("a1", "1.50", applied="1.50")
    old = msgspec.structs.replace(forced(7, "x1"), generation=6)
    found = site(rival, later, store("c1"), by=old)
    assert choose(found).sure and told(position("1.45"), choose(found), found).value == "accepted"
    assert choose(excluding(store("c1"), by=forced(7, "x1"))).between == ("b", "a"), "b knows nothing of that promotion"
    same = store("a1", "7.50", "1.1 7.31", applied="7.50")
    assert choose(site(same, later, store("c1"), by=forced(7, "x1"))).between == ("b", "a"), "lost by another one"


def plan(found: Site) -> RecoveryPlan:
    return make_plan(found, PromotedContents(), (), (), Evidence())


def test_who_may_have_acknowledged_alone_is_named() -> None:
    """Each of them has to be accepted by name (``older_record_restored``)."""
    for found, missing, unknown in (
        (site(store("a1"), gone("b"), store("c1", condition="damaged"), by=None), ("b", "c"), False),
        (site(store("a1"), gone("b"), gone("c"), by=record(1, "c1", "b1")), ("b", "c"), False),
        (site(store("a1"), store("b1"), store("c1"), by=None), (), False),
        (site(store("a1"), gone("b"), by=None, nodes=None), ("b",), True),
        (site(store("a1"), store("b1", rebuilt=True), store("c1"), by=None), ("b",), False),
    ):
        choice = choose(found)
        assert (choice.missing, choice.unknown) == (missing, unknown)
        assert choice.sure == (not missing and not unknown)


def test_the_record_keeps_the_identity_and_says_whether_a_loss_was_accepted() -> None:
    sure = identified(site(store("a1"), store("b1"), store("c1"), by=None))
    lossy = identified(site(store("a1"), gone("b"), store("c1"), by=None))
    for found in (sure, lossy):
        choice = choose(found)
        assert choice.chosen is not None
        made = record_for(choice.chosen, choice, found)
        assert made.cluster_id == ID and made.loss_accepted == (0 if found is sure else made.generation)
    old = site(store("a1", "9.20", "1.1 9.3"), store("b1"), store("c1"), by=forced(7, "b1"))
    choice = choose(old)
    assert choice.chosen is not None and record_for(choice.chosen, choice, old).loss_accepted == 7, "as it was before"


def test_an_accepted_loss_is_forgotten_with_the_record() -> None:
    """The new record says up to which generation one may have been accepted, and gives no store's events up for it."""
    stores = store("a1", "7.60", "1.1 7.41"), store("b1"), store("c1")
    old_copy = msgspec.structs.replace(forced(6, "b1"), loss_unknown=4)
    for by, unknown in ((None, 7), (old_copy, 7), (msgspec.structs.replace(old_copy, generation=8), 4)):
        found = site(*stores, by=by)
        choice = choose(found)
        assert choice.chosen is not None and choice.sure
        made = record_for(choice.chosen, choice, found)
        assert (made.loss_accepted, made.loss_unknown) == (6 if by else 0, unknown)
    rival = store("b1", "1.50", applied="1.50")
    known = msgspec.structs.replace(record(8, "x1"), loss_unknown=7)
    assert choose(site(stores[0], rival, stores[2], by=known)).between == ("a", "b"), "no operator has accepted that"


def test_a_cluster_that_was_founded_and_never_started_needs_nothing() -> None:
    first = first_record("c", ID, Member("a", "1"))
    found = plan(site(gone("a", "empty"), gone("b", "missing"), by=first))
    assert not found.for_people and not found.actions and not found.doubts


def test_a_generation_that_a_lost_node_may_have_known_is_passed() -> None:
    lossy = site(store("a1", "4.12", "1.1 4.11"), gone("b"), gone("c"), by=None)
    choice = choose(lossy)
    assert choice.chosen is not None
    assert record_for(choice.chosen, choice, lossy).generation == 5 + HEADROOM
    known = site(store("a1", "4.12", "1.1 4.11"), store("b1"), gone("c"), by=record(8, "c1"))
    choice = choose(known)
    assert choice.chosen is not None and choice.trusted and not choice.sure
    assert record_for(choice.chosen, choice, known).generation == 9, "a trusted record says what can be known"
    whole = site(store("a1", "4.12", "1.1 4.11"), store("b1"), store("c1"), by=None)
    choice = choose(whole)
    assert choice.chosen is not None
    assert record_for(choice.chosen, choice, whole).generation == 5


@pytest.mark.parametrize("stores", [(gone("a"), gone("b", "empty")), (store("a1", condition="damaged"), gone("b"))])
def test_nobody_can_be_promoted(stores: tuple[object, ...]) -> None:
    found = plan(site(*stores, by=ALL))  # type: ignore[arg-type]
    assert found.choice.chosen is None and not found.actions and found.for_people
    assert "txha rebuild" in found.doubts[0]


def test_members_are_compared_with_their_incarnations() -> None:
    assert choose(site(store("a2"), by=record(1, "a1"))).sure is False
    assert store("a2").member == Member("a", "2")
