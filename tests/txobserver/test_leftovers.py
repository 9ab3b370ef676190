"""What nothing needs any more is let go of piece by piece (``txobserver.leftovers``)."""

from __future__ import annotations

from collections import deque

import pytest

from txobserver.leftovers import RELEASED, Container, Leftovers


def of(kind: type, count: int) -> Container:
    numbers = range(count)
    return dict.fromkeys(numbers) if kind is dict else kind(numbers)


@pytest.mark.parametrize("kind", [list, dict, deque])
def test_a_turn_lets_go_of_so_many_and_no_more(kind: type) -> None:
    """``a_great_transaction_is_let_go_of_in_one_go``"""
    leftovers, great = Leftovers(), of(kind, 2 * RELEASED + 7)
    leftovers.add(great)
    left = []
    while leftovers.waiting:
        assert leftovers.go_on() <= RELEASED and leftovers.waiting == len(great)
        left.append(len(great))
    assert left == [RELEASED + 7, 7, 0] and leftovers.go_on() == 0


def test_the_containers_go_in_order_and_several_in_one_turn() -> None:
    leftovers = Leftovers()
    parts = [of(list, 3), of(dict, 4), of(list, 0), of(deque, 5)]
    for each in parts:
        leftovers.add(each)
    assert leftovers.waiting == 12 and leftovers.go_on(5) == 5
    assert [len(each) for each in parts] == [0, 2, 0, 5]
    assert leftovers.go_on(100) == 7 and not any(parts) and not leftovers.waiting


@pytest.mark.parametrize(("weight", "turns"), [(1, 1), (10, 4), (100, 40)])
def test_what_belongs_to_each_counts(weight: int, turns: int) -> None:
    """An event that settles a thousand messages is a thousand objects; one heavier than a turn goes by itself."""
    leftovers, events = Leftovers(), of(list, 40)
    leftovers.add(events, weight)
    taken = 0
    while leftovers.waiting:
        leftovers.go_on(100)
        taken += 1
    assert taken == turns and not events
