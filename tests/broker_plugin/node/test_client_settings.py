"""What becomes of what RabbitMQ acts on and the broker does not, as the configuration says."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker_plugin.amqp.certified import introduced_user
from broker_plugin.amqp.protocol.introductions import ClientWay, Introduced
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.node.client_settings import amqp_settings, features_for_clients, meets_unsupported, with_tls
from broker_plugin.node.config import ConfigError, load_config
from ha.messages.greeting import INTRODUCTIONS_TLS, greeting
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


def test_a_node_says_where_clients_are_passed_on_by_tls(tmp_path: Path) -> None:
    files = {f"tls.{key}": str(tmp_path / key) for key in ("certificate", "key", "authority")}
    config = load_config(write(tmp_path), {"amqp.tls_port": "5671", **files})
    assert INTRODUCTIONS_TLS in features_for_clients(config)
    hello = with_tls(greeting("c", "a", "h", 1), config.amqp)
    assert (hello.amqp_port, hello.amqps_host, hello.amqps_port) == (1, "127.0.0.1", 5671)
    plain = load_config(write(tmp_path)).amqp
    assert with_tls(greeting("c", "a", "h", 1), plain).amqps_port == 0


@pytest.mark.parametrize("key", ["amqp.tls_port", "listeners.l.tls"])
def test_clients_of_a_host_broker_cannot_come_by_tls(tmp_path: Path, key: str) -> None:
    """They would be passed on to it in clear."""
    given = {f"tls.{name}": str(tmp_path / name) for name in ("certificate", "key", "authority")}
    given |= {"amqp.tls_port": "5671"} if key == "amqp.tls_port" else {"listeners.l.port": "5673", key: "true"}
    assert load_config(write(tmp_path), given)
    with pytest.raises(ConfigError, match=f"{key} cannot be with a host broker"):
        load_config(write(tmp_path), {**given, "host": {"socket": "s"}})


@pytest.mark.parametrize(("asking", "read"), [("ignore", None), ("ask", "dns"), ("require", "dns")])
def test_no_certificate_logs_in_where_none_is_asked_for(tmp_path: Path, asking: str, read: str | None) -> None:
    files = {f"tls.{key}": str(tmp_path / key) for key in ("certificate", "key", "authority")}
    source = {} if read is None else {"amqp.certificate_login_from": read}
    given = {"amqp.tls_port": "5671", "amqp.client_certificates": asking, **files, **source}
    settings = amqp_settings(load_config(write(tmp_path), given), "id", {}, 100)
    assert settings.certificate_login_from == read
    introduced = Introduced("n", "192.0.2.1", 1, ClientWay(True, "bob"))
    assert introduced_user(introduced, settings) == (None if read is None else "bob")


def test_there_is_nothing_else_to_say(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unsupported"):
        load_config(write(tmp_path), {"unsupported": "ignore"})
