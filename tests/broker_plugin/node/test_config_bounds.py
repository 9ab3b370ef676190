"""Each number of the configuration has a lowest value, and some a highest: what is beyond is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_plugin.node.config import SHORTEST, ConfigError, NodeConfig, parse_config
from ha.settings import Settings

TEXT = """
name = "a"
cluster = "c"
dir = "/nowhere/a"
coordination = "/nowhere/record"
peer = { port = 7001 }
peers = [{ name = "b", port = 7002 }, { name = "d", port = 7003 }]
"""
PATH = Path("node.toml")
TINY = 1e-9
SLOW = {"timing.lease_ttl": 10.0}
"""Room for every other time."""


def config(flags: dict[str, Any]) -> NodeConfig:
    return parse_config(TEXT, PATH, {**SLOW, **flags}, {})


def value(found: NodeConfig, key: str) -> Any:
    for part in key.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize(
    ("key", "lowest", "too_low"),
    [
        ("amqp.port", 1, 0),
        ("amqp.heartbeat", 0, -1),
        ("amqp.frame_max", 4096, 4095),
        ("amqp.channel_max", 1, 0),
        ("amqp.max_connections", 1, 0),
        ("peer.port", 1, 0),
        ("timing.renew_every", SHORTEST, SHORTEST - TINY),
        ("timing.prepare_timeout", SHORTEST, SHORTEST - TINY),
        ("timing.backup_timeout", SHORTEST, SHORTEST - TINY),
        ("timing.link_down_grace", 0.0, -TINY),
        ("store.retention_seconds", 0.0, -TINY),
        ("store.segment_bytes", 4096, 4095),
        ("store.checkpoint_bytes", 4096, 4095),
        ("store.checkpoint_seconds", TINY, 0),
        ("dtx.default_timeout", 0, -1),
        ("dtx.max_timeout", 1, 0),
        ("min_ready", 1, 0),
        ("outcomes_kept", 1, 0),
        ("outcome_seconds", TINY, 0),
    ],
)
def test_the_lowest_value_is_taken_and_none_below(key: str, lowest: float, too_low: float) -> None:
    assert value(config({key: lowest}), key) == lowest
    with pytest.raises(ConfigError):
        config({key: too_low})


@pytest.mark.parametrize(
    ("key", "highest"),
    [
        ("amqp.port", 65535),
        ("amqp.heartbeat", 65535),
        ("amqp.channel_max", 65535),
        ("peer.port", 65535),
        ("min_ready", 3),
    ],
)
def test_the_highest_value_is_taken_and_none_above(key: str, highest: int) -> None:
    assert value(config({key: highest}), key) == highest
    with pytest.raises(ConfigError):
        config({key: highest + 1})


@pytest.mark.parametrize("port", [0, 65536])
def test_a_peer_s_port_and_name(port: int) -> None:
    with pytest.raises(ConfigError):
        parse_config(TEXT.replace("7003", str(port)), PATH, {}, {})
    with pytest.raises(ConfigError):
        parse_config(TEXT.replace('"d"', '""'), PATH, {}, {})
    assert [peer.port for peer in parse_config(TEXT.replace("7003", "65535"), PATH, {}, {}).peers] == [7002, 65535]
    assert [peer.port for peer in parse_config(TEXT.replace("7003", "1"), PATH, {}, {}).peers] == [7002, 1]


@pytest.mark.parametrize("key", ["name", "cluster"])
def test_a_name_has_a_letter(key: str) -> None:
    assert value(config({key: "x"}), key) == "x"
    with pytest.raises(ConfigError):
        config({key: ""})


def test_a_lease_is_renewed_twice_in_its_time() -> None:
    assert config({"timing.lease_ttl": 1.0, "timing.renew_every": 0.5}).timing.renew_every == 0.5
    with pytest.raises(ConfigError, match="at most half"):
        config({"timing.lease_ttl": 1.0, "timing.renew_every": 0.5 + TINY})
    with pytest.raises(ConfigError):
        config({"timing.lease_ttl": 0})


def test_what_the_state_machines_are_told() -> None:
    flags: dict[str, Any] = {
        "timing.lease_ttl": 11.0,
        "timing.renew_every": 1.5,
        "timing.prepare_timeout": 7.0,
        "timing.backup_timeout": 8.0,
        "timing.link_down_grace": 0.7,
        "min_ready": 2,
        "store.checkpoint_bytes": 12345,
        "store.checkpoint_seconds": 3.5,
        "outcomes_kept": 17,
        "outcome_seconds": 19.0,
    }
    assert config(flags).core_settings() == Settings(
        lease_ttl=11.0,
        renew_every=1.5,
        prepare_timeout=7.0,
        backup_timeout=8.0,
        link_down_grace=0.7,
        min_ready=2,
        checkpoint_bytes=12345,
        checkpoint_every=3.5,
        outcomes_kept=17,
        outcome_seconds=19.0,
    )
