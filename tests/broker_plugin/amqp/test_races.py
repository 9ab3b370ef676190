"""Requests of several connections at once, drawn by seed: what they lead to, some order of them leads to as well.

While they are sent nothing passes the commit point, so that each is judged with all others under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker_plugin.amqp.protocol.settings import AmqpSettings
from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.player import Player
from python_tests.suites.amqp_programs.program import DROP, Op, Step
from python_tests.suites.amqp_programs.race_judge import RaceJudge
from python_tests.suites.amqp_programs.races import Race, draw, orders
from tests.broker_plugin.amqp.conftest import ServedByCore, unheard

RACES = 20
"""``make amqp-programs OPTIONS=--races`` plays as many as are wanted."""
TURNS = 5
"""Of the loop, in which it reads what has arrived."""


@pytest.fixture
def judge() -> Iterator[RaceJudge]:
    core = ServedByCore(AmqpSettings(port=0), unheard)
    core.start()

    @contextmanager
    def held() -> Iterator[None]:
        core.call(core.hold)
        yield
        for _ in range(TURNS):
            core.call(lambda: None)
        core.release()

    player = Player(Address(core.port), held)
    yield RaceJudge(player, player)
    player.close()
    core.stop()


@pytest.mark.timeout(600)
def test_races_are_explained_by_an_order(judge: RaceJudge) -> None:
    faults = [fault for seed in range(RACES) for fault in judge.judge(seed).faults]
    assert not faults, "\n\n".join(f"seed {fault.seed}\n{fault.text}" for fault in faults[:5])


def test_a_race_is_its_seed() -> None:
    assert str(draw(4)) == str(draw(4)) != str(draw(5))


def test_every_order_keeps_that_of_each_connection() -> None:
    a, b = (tuple(Op(1, f"{name}{number}", {}) for number in range(2)) for name in "ab")
    found = list(orders(Race((), (Step("a", a), Step("b", b)))))
    assert len(found) == len(set(map(str, found))) == 6
    assert all([op for number, op in order if number == 0] == list(a) for order in found)


def test_what_is_sent_before_a_dropped_socket_may_be_lost_from_any_operation_on() -> None:
    ops = (Op(1, "one", {}), Op(1, "two", {}), Op(0, DROP, {}))
    found = [[op.name for _, op in order] for order in orders(Race((), (Step("a", ops),)))]
    assert sorted(found, key=len) == [[DROP], ["one", DROP], ["one", "two", DROP]]
