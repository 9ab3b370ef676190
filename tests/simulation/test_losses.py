"""What an operator has accepted is excused, and nothing else."""

from __future__ import annotations

from unittest.mock import patch

from ha.coordination import Record
from tests.simulation.losses import Losses
from tests.simulation.run import Run
from txobserver.events import Publish
from txobserver.ids import Member, Position

A, B = Member("a", "a1"), Member("b", "b1")


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
    losing = [seed for seed in range(40) if any("with_loss" in kind for kind in Run(seed).run().struck)]
    assert losing
    with patch.object(Losses, "accepted", lambda self, record: False):
        broken = [Run(seed).run().promise for seed in losing]
    assert set(broken) <= {"P2", "P6", "P7", "P9"}, broken
