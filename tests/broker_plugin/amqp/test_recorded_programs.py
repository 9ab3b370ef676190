"""Programs of AMQP methods of which RabbitMQ 3.10's answers are recorded: the broker answers the same, in process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from broker_plugin.amqp.protocol.settings import AmqpSettings
from broker_plugin.compiled import available, running
from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.compare import explain, first_difference
from python_tests.suites.amqp_programs.player import Player
from python_tests.suites.amqp_programs.recorded import recorded
from tests.broker_plugin.amqp.conftest import ServedByCore, unheard


@pytest.fixture
def player() -> Iterator[Player]:
    core = ServedByCore(AmqpSettings(port=0), unheard)
    core.start()
    player = Player(Address(core.port))
    yield player
    player.close()
    core.stop()


@pytest.mark.timeout(600)
def test_recorded_programs_are_answered_as_by_rabbitmq(player: Player) -> None:
    """All of them by the compiled core where there is one; then the plain one answers each third."""
    faults = []
    programs = recorded()[:: 1 if running() == "compiled" or not available() else 3]
    assert programs
    for seed, program, answers in programs:
        if mismatch := first_difference(answers, player.play(program), "RabbitMQ 3.10"):
            faults.append(f"seed {seed}\n{explain(program, mismatch)}")
    assert not faults, "\n\n".join(faults[:5])
