"""Operations on names, one after the other: who needs several waits for all of them."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.queues.turn import STEPS, Turn
from broker_plugin.embedded.topology.name_locks import STEPS_EACH, NameLocks


@pytest.mark.parametrize(("first", "second"), [("q", "x"), ("x", "q")])
def test_who_needs_two_names_waits_for_both(first: str, second: str) -> None:
    """Whichever is free first."""
    locks, ran = NameLocks(Turn(lambda: None)), list[str]()
    locks.hold("q", "x")
    locks.run_all(("q", "x"), lambda: ran.append("both"))
    locks.release(first)
    assert ran == []
    locks.release(second)
    assert ran == ["both"]


def test_a_name_that_is_taken_while_another_one_is_waited_for() -> None:
    locks, ran = NameLocks(Turn(lambda: None)), list[str]()
    locks.hold("q")
    locks.run_all(("q", "x"), lambda: ran.append("both"))
    locks.hold("x")
    locks.release("q")
    locks.run("q", lambda: ran.append("q"))
    assert ran == ["q"], "who waits holds nothing"
    locks.release("x")
    assert ran == ["q", "both"]


MANY = 3 * STEPS // STEPS_EACH


class Story:
    """Many wait for one name, which is released: each writes its number down when its turn comes."""

    def __init__(self) -> None:
        self.turn = Turn(lambda: None)
        self.locks = NameLocks(self.turn)
        self.ran: list[int] = []
        self.locks.hold("q")
        for number in range(MANY):
            self.locks.run("q", lambda n=number: self.ran.append(n))  # type: ignore[misc]
        self.locks.release("q")

    def end(self) -> list[int]:
        """How many more ran in each turn until all had."""
        counts = []
        while self.turn._work:
            before = len(self.ran)
            self.turn.run()
            counts.append(len(self.ran) - before)
        return counts


def test_many_who_wait_go_on_in_parts_and_in_their_order() -> None:
    """``two_thousand_declare_one_queue``: all of them went on in the turn in which the first one was answered."""
    story = Story()
    assert len(story.ran) == STEPS // STEPS_EACH
    assert max(story.end()) <= STEPS // STEPS_EACH
    assert story.ran == list(range(MANY))


def test_who_comes_meanwhile_waits_behind_them() -> None:
    story = Story()
    story.locks.run("q", lambda: story.ran.append(MANY))
    story.locks.run_all(("x", "q"), lambda: story.ran.append(MANY + 1))
    story.locks.run("x", lambda: story.ran.append(-1))
    assert story.ran[-1] == -1, "who waits holds nothing"
    story.ran.pop()
    story.end()
    assert story.ran == list(range(MANY + 2))


def test_one_of_them_holds_the_name_again() -> None:
    story = Story()
    story.locks.run("q", lambda: story.locks.hold("q"))
    story.locks.run("q", lambda: story.ran.append(MANY))
    story.end()
    assert story.ran == list(range(MANY))
    story.locks.release("q")
    assert story.ran == list(range(MANY + 1))


def test_each_of_them_may_hold_and_release_at_once() -> None:
    """Without one call within the other: a thousand of them fit into no stack."""
    turn, ran = Turn(lambda: None), list[int]()
    locks = NameLocks(turn)

    def each() -> None:
        locks.hold("q")
        ran.append(1)
        locks.release("q")

    locks.hold("q")
    for _ in range(5 * MANY):
        locks.run("q", each)
    locks.release("q")
    while turn._work:
        turn.run()
    assert len(ran) == 5 * MANY


def test_a_broker_that_serves_no_more_goes_on_with_none() -> None:
    story = Story()
    story.locks.forget()
    assert story.end() == [0] and len(story.ran) == STEPS // STEPS_EACH
