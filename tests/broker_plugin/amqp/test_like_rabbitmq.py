"""What RabbitMQ 3.10 answers, we answer: recorded transcripts, played against the server."""

from __future__ import annotations

import json

import pytest

from tests.broker_plugin.amqp.conftest import Served
from tests.broker_plugin.amqp.play import RECORDED, replay
from tests.broker_plugin.amqp.scenarios import SCENARIOS

EXPECTED = json.loads(RECORDED.read_text())


@pytest.mark.parametrize("title", SCENARIOS)
def test_like_rabbitmq(served: Served, title: str) -> None:
    assert replay(served.port, SCENARIOS[title], EXPECTED[title]) == EXPECTED[title]
