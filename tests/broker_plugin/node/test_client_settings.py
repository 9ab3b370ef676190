"""What becomes of what RabbitMQ acts on and the broker does not, as the configuration says."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker_plugin.embedded.errors import AmqpError
from broker_plugin.node.client_settings import features_for_clients, meets_unsupported
from broker_plugin.node.config import ConfigError, load_config
from tests.broker_plugin.node.test_config import write


def test_unless_it_says_otherwise_it_is_refused(tmp_path: Path) -> None:
    met = meets_unsupported(load_config(write(tmp_path)))
    assert met.refuses
    with pytest.raises(AmqpError, match="unsupported x for queue 'q'"):
        met.meet("queue", "q", "x")


def test_with_warn_it_is_logged_once_of_each_queue(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    met = meets_unsupported(load_config(write(tmp_path), {"unsupported": "warn"}))
    with caplog.at_level(logging.INFO):
        for name in ("q", "r", "q"):
            met.meet("queue", name, "arg 'x-message-ttl'")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", f"arg 'x-message-ttl' for queue '{name}' is accepted and has no effect") for name in "qr"
    ]


def test_a_node_whose_clients_a_host_broker_serves_knows_nothing_of_them(tmp_path: Path) -> None:
    """It has no alarms to tell, and is told none."""
    assert features_for_clients(load_config(write(tmp_path))) == ["alarms", "introductions"]
    assert features_for_clients(load_config(write(tmp_path), {"host": {"socket": "s"}})) == []


def test_there_is_nothing_else_to_say(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unsupported"):
        load_config(write(tmp_path), {"unsupported": "ignore"})
