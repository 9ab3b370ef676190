"""What RabbitMQ 3.10 answers, we answer: recorded transcripts, played against the server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from broker_plugin.amqp.protocol.settings import AmqpSettings
from tests.broker_plugin.amqp.conftest import Served, unheard
from tests.broker_plugin.amqp.play import RECORDED, replay
from tests.broker_plugin.amqp.scenarios import SCENARIOS

EXPECTED = json.loads(RECORDED.read_text())


@pytest.fixture
def warning() -> Iterator[Served]:
    served = Served(AmqpSettings(port=0), unheard)
    served.start()
    yield served
    served.stop()


@pytest.mark.parametrize("title", SCENARIOS)
def test_like_rabbitmq(warning: Served, title: str) -> None:
    assert replay(warning.port, SCENARIOS[title], EXPECTED[title]) == EXPECTED[title]
