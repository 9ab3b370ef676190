"""What an operator has accepted is excused, and nothing else."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from ha.membership.record import Record
from recovery.planner.facts import StoreCondition, SurveyedStore
from recovery.store import segment
from tests.simulation import operators
from tests.simulation.losses import Loss, Losses
from tests.simulation.run import Run
from tests.simulation.truth import Broken, Truth
from txobserver.events import GenerationStart, Publish
from txobserver.ids import Member, Position

A, B = Member("a", "a1"), Member("b", "b1")
LOSING = (9, 32, 34, 36)
"""Seeds in which something is lost with an operator's consent: by force, and with a recovery"""


def forced(generation: int, version: int = 1, primary: Member = A) -> Record:
    return Record("c", version, generation, primary, (primary,), loss_accepted=generation)


def test_what_is_lost_is_what_the_new_primary_did_not_hold() -> None:
    losses = Losses()
    losses.granted.add(A)
    assert losses.accepted(forced(3)) and not losses.accepted(forced(3, 2)), "a renewal is no other loss"
    assert losses.take_effect_at(A, 3) and not losses.take_effect_at(B, 3) and not losses.take_effect_at(A, 2)
    losses.settle(3, 11)
    stream = {**dict.fromkeys(range(1, 11), 1), 11: 3, 12: 3}
    asked = [Position(1, 10), Position(1, 11), Position(2, 9), Position(2, 40), Position(3, 11)]
    covered = [each for each in asked if losses.covers(each, stream.__getitem__)]
    assert covered == [(1, 11), (2, 9), (2, 40)]
    assert not losses.take_effect_at(A, 3), "once"


def test_a_loss_that_nobody_has_accepted_is_none() -> None:
    losses = Losses()
    losses.granted.add(B)
    assert not losses.accepted(forced(3)) and losses.struck() == ["force"]
    assert not losses.take_effect_at(A, 3) and losses.generation == 0


def test_another_event_at_a_lost_position_is_noticed() -> None:
    losses = Losses()
    losses.granted.add(A)
    losses.accepted(forced(3))
    events = [Publish(number, (1,), None) for number in (1, 2)]  # type: ignore[arg-type]
    losses.cut([(1, events[0]), (2, events[1])], 1)
    assert not losses.other_than(2, 2, events[1]) and losses.other_than(2, 2, events[0])
    assert losses.struck() == ["force_with_loss"]


def test_a_forced_node_that_loses_something_unaccepted_breaks_a_promise() -> None:
    """The runs in which something is lost, without the acceptance: each is found."""
    losing = [seed for seed in LOSING if any("with_loss" in kind for kind in Run(seed).run().struck)]
    assert losing, "other seeds lose something now: python -m tests.simulation run --each tells which"
    with patch.object(Losses, "accepted", lambda self, record: False):
        broken = [Run(seed).run().promise for seed in losing]
    assert set(broken) <= {"P2", "P6", "P7", "P9"}, broken


def told_up_to(told: int, by_force: bool) -> Truth:
    """Five events have happened, an operator accepts a loss, and the node that goes on has so much of what was told."""
    run = Run(0)
    run.world.run(0.1)
    truth = run.cluster.truth
    truth.canonical = [(1, GenerationStart(1, "a", []))] * 5
    truth.told = told
    truth.losses.all.append(Loss(3, A, by_force))
    return truth


def test_the_node_that_goes_on_keeps_what_it_held() -> None:
    told_up_to(3, by_force=True)._cut(3)
    with pytest.raises(Broken, match="P2: nothing behind 2 goes on"):
        told_up_to(3, by_force=True)._cut(2)


def test_what_is_left_is_not_known_between_the_cut_and_the_new_generation() -> None:
    """A node that starts just then holds more than is known of the one stream (seed 57481)."""
    truth = told_up_to(3, by_force=True)
    held, lost = Position(1, 3), Position(1, 5)
    assert not truth._may_be_lost(lost)
    truth._cut(3)
    assert truth._may_be_lost(lost) and truth._may_be_lost(Position(2, 2)) and not truth._may_be_lost(held)
    truth.losses.settle(3, 4)
    assert not truth._may_be_lost(lost) and truth.is_lost(lost)


def test_the_store_that_counts_holds_what_any_store_does() -> None:
    few, many = (
        SurveyedStore(node=node, condition=StoreCondition.WHOLE, tail=Position(1, last), history=(Position(1, 1),))
        for node, last in (("a", 2), ("b", 4))
    )
    cluster = told_up_to(3, by_force=False).cluster
    operators._check_chosen(cluster, many, [few, many])
    with pytest.raises(Broken, match="P2: a counts, with 2 of what was told; b has 3"):
        operators._check_chosen(cluster, few, [few, many])


def test_a_node_that_gives_up_an_intact_store_breaks_a_promise() -> None:
    """An operator would give it a new disk, which hides that the old one was good, while another node has it all."""
    with patch.object(segment, "_is_torn", lambda *of_a_tail: False):
        broken = next(result for seed in range(6, 40) if (result := Run(seed).run()).broken)
    assert broken.promise == "P2" and "nothing has damaged it" in broken.broken
