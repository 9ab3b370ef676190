"""Programs of AMQP methods of which RabbitMQ 3.10's answers are recorded: the broker answers the same, in process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_plugin.amqp.protocol.settings import AmqpSettings
from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.compare import explain, first_difference
from python_tests.suites.amqp_programs.player import Player
from python_tests.suites.amqp_programs.recorded import recorded
from tests.broker_plugin.amqp.conftest import ServedByCore, unheard
from tests.support.cases import some_of


@pytest.fixture
def player() -> Iterator[Player]:
    core = ServedByCore(AmqpSettings(port=0), unheard)
    core.start()
    player = Player(Address(core.port))
    yield player
    player.close()
    core.stop()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("third", some_of(range(3), suite=[0], slices=[1, 2]))
def test_recorded_programs_are_answered_as_by_rabbitmq(player: Player, third: int) -> None:
    faults = []
    programs = recorded()[third::3]
    assert programs
    for seed, program, answers in programs:
        if mismatch := first_difference(answers, player.play(program), "RabbitMQ 3.10"):
            faults.append(f"seed {seed}\n{explain(program, mismatch)}")
    assert not faults, "\n\n".join(faults[:5])
