"""Answers that wait for steps on their way: for all that began before them, and for nothing that began behind."""

from __future__ import annotations

from itertools import pairwise

import pytest

from broker_plugin.embedded.operations.pending import Pending
from tests.broker_plugin.embedded.harness import Harness
from tests.broker_plugin.embedded.operations.test_declarations import bind, declare_exchange
from tests.broker_plugin.embedded.operations.test_judged_where_applied import delete
from tests.broker_plugin.embedded.operations.test_lapsing_exchanges import bind_exchange, exchanges


def test_an_answer_waits_for_every_step_that_began_before_it() -> None:
    """In whatever order they end: a step whose name is held ends behind one that turns out not to be needed."""
    for order in ((0, 1), (1, 0)):
        pending, told = Pending(), list[str]()
        steps = [pending.begin(), pending.begin()]
        pending.then(lambda told=told: told.append("both"))  # type: ignore[misc]
        later = pending.begin()
        pending.then(lambda told=told: told.append("all"))  # type: ignore[misc]
        pending.end(steps[order[0]])
        assert told == []
        pending.end(steps[order[1]])
        assert told == ["both"]
        pending.end(later)
        assert told == ["both", "all"]


def test_what_ends_behind_an_answer_lets_no_earlier_one_go() -> None:
    pending, told = Pending(), list[str]()
    first, second = pending.begin(), pending.begin()
    pending.then(lambda: told.append("second"))
    pending.end(pending.begin())
    assert told == []
    pending.end(second)
    pending.end(first)
    assert told == ["second"]


def test_an_answer_may_begin_a_step_and_end_it() -> None:
    """A client's next request is carried out within the answer to the one before."""
    pending, told = Pending(), list[str]()
    step = pending.begin()

    def answer() -> None:
        told.append("first")
        pending.end(pending.begin())

    pending.then(answer)
    pending.then(lambda: told.append("second"))
    pending.end(step)
    pending.then(lambda: told.append("third"))
    assert told == ["first", "second", "third"]


def test_an_answer_waits_for_what_its_steps_led_to() -> None:
    """``a_second_generation_of_exchanges_goes``: in whatever order they end, and however many generations there are."""
    pending, told = Pending(), list[str]()
    step = pending.begin()
    pending.then(lambda: told.append("first"))
    later = pending.begin()
    pending.then(lambda: told.append("second"))
    assert pending.begin(step) == step
    pending.end(step)
    pending.end(later)
    pending.begin(step)
    pending.end(step)
    assert told == []
    pending.end(step)
    assert told == ["first", "second"]


@pytest.mark.parametrize("generations", [2, 4])
def test_a_second_generation_of_exchanges_goes_before_the_answer(generations: int) -> None:
    """Each is bound to the one below by way of an exchange of this node's memory, so each has its own step."""
    harness = Harness()
    client, other = harness.client(), harness.client()
    client.declare("local", durable=False)
    client.declare("elsewhere", durable=False)
    names = [f"x{number}" for number in range(generations)]
    for name in (*names, "later"):
        declare_exchange(harness, client, name, auto_delete=True)
        declare_exchange(harness, client, f"below {name}", durable=False, auto_delete=True)
    for source, queue in ((names[0], "local"), ("later", "elsewhere")):
        bind(harness, client, source, queue)
        harness.settle()
    for lower, upper in pairwise(names):
        bind_exchange(harness, client, f"below {upper}", lower)
        bind_exchange(harness, client, upper, f"below {upper}")
    there: list[set[str]] = []
    harness.broker.operations.deletions.delete(
        client.channel, "local", False, False, lambda count: there.append(exchanges(harness))
    )
    harness.turn()
    later = delete(other, "elsewhere")
    while not there:
        harness.turn()
        harness.ledger.commit(1)
    assert there == [there[0] - {*names}] and not {*names} & set(harness.broker.topology.exchanges)
    harness.settle()
    assert later == [0] and exchanges(harness) == set() and client.errors == []
    assert not harness.broker.operations.exchanges._leaving, "no more than leaves now is kept"
