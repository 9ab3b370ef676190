"""TLS in a configuration: each key has an effect, or is refused in a sentence; names of files are beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_plugin.node.config import ConfigError, NodeConfig, parse_config
from broker_plugin.node.peer_tls import stands_in_for_the_secret
from broker_plugin.node.tls_config import contexts_of
from tests.support.certificates import Authority

BEGIN = """
name = "node-1"
cluster = "c"
dir = "d"
coordination = "./c.sqlite"
[peer]
port = 7001
"""
TLS = '\n[tls]\ncertificate = "a.pem"\nkey = "a.key"\nauthority = "ca.pem"\n'


def parsed(text: str, directory: Path = Path("/etc/txha"), **environment: str) -> NodeConfig:
    return parse_config(BEGIN + text, directory / "node.toml", {}, environment)


def test_files_are_looked_for_beside_the_one_that_names_them() -> None:
    config = parsed("[amqp]\ntls_port = 5671\n" + TLS, TXHA_TLS__KEY="/run/a.key")
    assert config.tls is not None
    assert config.tls.files == (Path("/etc/txha/a.pem"), Path("/run/a.key"), Path("/etc/txha/ca.pem"))
    assert config.amqp.addresses == [("127.0.0.1", 5672), ("127.0.0.1", 5671)]


def test_tls_alone() -> None:
    config = parsed('[amqp]\nplain = false\nhost = "127.0.0.2"\ntls_port = 5671\n' + TLS)
    assert config.amqp.addresses == [("127.0.0.2", 5671)] and config.amqp.reached == ("127.0.0.2", 5671)
    there = parsed("[amqp]\nplain = false\ntls_port = 5671\n" + TLS, TXHA_AMQP__PLAIN="true").amqp.addresses
    assert there == [("127.0.0.1", 5672), ("127.0.0.1", 5671)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[amqp]\ntls_port = 5671\n", "amqp.tls_port needs the table tls"),
        ("[listeners.x]\nport = 1\ntls = true\n", "listeners.x.tls needs the table tls"),
        ("[http]\ntls = true\n", "http.tls needs the table tls"),
        (TLS, "the table tls has no effect"),
        (TLS.replace('key = "a.key"\n', "") + "[amqp]\ntls_port = 5671\n", "key 'tls.key' is missing"),
        (TLS.replace('"a.key"', '""') + "[amqp]\ntls_port = 5671\n", "must not be empty"),
        ("[amqp]\nplain = false\n", "plain is false and there is no tls_port"),
        ("[amqp]\nplain = false\nport = 1\ntls_port = 5671\n" + TLS, "port has no effect where plain is false"),
        ('[amqp]\ntls_host = "127.0.0.1"\n', "tls_host has no effect without tls_port"),
        ('[amqp]\nclient_certificates = "ask"\n', "amqp.client_certificates has no effect"),
        ('[amqp]\nclient_certificates = "ask"\n[http]\ntls = true\n' + TLS, "amqp.client_certificates has no effect"),
        ('[amqp]\ntls_port = 1\ncertificate_login_from = "dns"\n' + TLS, "certificate_login_from has no effect"),
        ("[http]\nmetrics_tls = true\n" + TLS, "metrics_tls has no effect without metrics_port"),
        ("[amqp]\ntls_port = 5672\n" + TLS, "is given twice"),
        ("[amqp]\nport = true\n", "amqp.port cannot be true"),
        ("[amqp]\nplein = false\n", "amqp.plein cannot be false"),
    ],
)
def test_what_has_no_effect_or_cannot_be_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "[listeners.x]\nport = 1\ntls = true\n[amqp]\nclient_certificates = 'require'\n",
        "[http]\nmetrics_port = 2\nmetrics_tls = true\n",
        "[amqp]\ntls_port = 5671\nclient_certificates = 'ask'\ncertificate_login_from = 'distinguished_name'\n",
    ],
)
def test_what_can_be(text: str) -> None:
    assert parsed(text + TLS).tls is not None


def test_files_that_cannot_be_used_are_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    config = parsed("[amqp]\ntls_port = 5671\n" + TLS, tmp_path)
    with pytest.raises(ConfigError, match=r"tls: .*a\.pem cannot be read"):
        contexts_of(config.tls)
    Authority(tmp_path).issue("node-1", file="a")
    (tmp_path / "authority.pem").rename(tmp_path / "ca.pem")
    assert contexts_of(config.tls) is not None and contexts_of(None) is None


IN_FILE, NAME = {"peer": {"tls": True}}, "TXHA_PEER__TLS"


@pytest.mark.parametrize(
    ("file", "environment", "options", "all_links"),
    [
        ({}, {}, {}, False),
        (IN_FILE, {}, {}, True),
        ({"peer": {"tls": "accept"}}, {}, {}, False),
        ({"peer": {"tls": "True"}}, {}, {}, True),
        ({"peer": 5}, {}, {}, False),
        ({}, {"TXHA_PEER": '{"tls": true}'}, {}, True),
        (IN_FILE, {"TXHA_PEER": '{"tls": false}'}, {}, False),
        (IN_FILE, {"TXHA_PEER": "no table"}, {}, True),
        (IN_FILE, {"TXHA_PEER": "[]"}, {}, True),
        (IN_FILE, {"TXHA_PEER": '{"port": 5}'}, {}, True),
        ({}, {NAME: "true"}, {}, True),
        ({}, {NAME.lower(): "TRUE"}, {}, True),
        (IN_FILE, {"TXHA_PEER": '{"tls": true}', NAME: "accept"}, {}, False),
        (IN_FILE, {NAME: "true"}, {"peer.tls": "false"}, False),
        ({}, {}, {"peer.tls": "true"}, True),
    ],
)
def test_whether_all_links_are_over_tls_is_said_by_the_source_that_counts(
    file: dict[str, Any], environment: dict[str, str], options: dict[str, str], all_links: bool
) -> None:
    """Options before the environment, and that before the file; then there is no default secret."""
    assert stands_in_for_the_secret(file, environment, options) is all_links
