"""Each number of the configuration has a lowest value, and some a highest: what is beyond is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.coordination.renewer import LATE
from broker_plugin.node.config import ConfigError, NodeConfig, parse_config
from broker_plugin.node.timing import SHORTEST
from ha.membership.members import wrong_name
from ha.membership.watchdog import Renewals
from ha.settings import Settings
from txobserver.work_limits import WorkLimits

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
TABLE = "must be a table, whose keys stand below it or behind its name with a dot"
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
        ("timing.beat_every", SHORTEST, SHORTEST - TINY),
        ("timing.link_deadline", 0.6, 0.6 - TINY),
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
        ("amqp.frame_max", 4294967295),
        ("dtx.default_timeout", 4294967295),
        ("dtx.max_timeout", 4294967295),
        ("outcome_seconds", 1_000_000_000),
        ("peer.port", 65535),
        ("timing.lease_ttl", 3600),
        ("timing.prepare_timeout", 3600),
        ("timing.backup_timeout", 3600),
        ("timing.link_down_grace", 3600),
        ("timing.link_deadline", 3600),
        ("amqp.login_seconds", 3600),
        ("store.retention_seconds", 1_000_000_000),
        ("store.checkpoint_seconds", 1_000_000_000),
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


def test_a_loop_is_taken_for_hung_within_a_lease_and_behind_the_first_renewal_that_is_not_asked_for() -> None:
    """P10: also where the lease is changed alone, and for the shortest lease."""
    for ttl, every in ((1.0, 0.2), (4.0, 0.2), (2 * SHORTEST, SHORTEST), (0.6, 0.3), (1.1, 0.55)):
        hung_after = config({"timing.lease_ttl": ttl, "timing.renew_every": every}).timing.hung_after
        assert hung_after == 0.75 * ttl and LATE * every < hung_after < ttl
    lease: dict[str, Any] = {"timing.lease_ttl": 1.0, "timing.renew_every": 0.2}
    for held in (0.99, 1.5 * 0.2):
        assert config({**lease, "timing.hung_after": held}).timing.hung_after == held
    with pytest.raises(ConfigError, match="timing: hung_after must be less than lease_ttl"):
        config({**lease, "timing.hung_after": 1.0})
    with pytest.raises(ConfigError, match="hung_after must be at least one and a half times renew_every"):
        config({**lease, "timing.hung_after": 1.5 * 0.2 - TINY})
    with pytest.raises(ConfigError):
        config({"timing.hung_after": 0})


def test_three_beats_fit_into_the_deadline_of_a_link() -> None:
    """At the default interval 0.6 s, and where that is changed alone."""
    assert config({"timing.beat_every": 0.25}).timing.link_deadline == 0.75
    with pytest.raises(ConfigError, match="link_deadline must be at least 3 times beat_every"):
        config({"timing.beat_every": 0.26})
    assert config({"timing.link_deadline": 2.0}).core_settings().link_deadline == 2.0
    assert config({"timing.beat_every": 0.1}).core_settings().beat_every == 0.1


def test_no_lease_is_given_up_for_a_node_whose_broker_may_still_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10: ``stopped_host_broker_of_a_dead_node``: a host broker has the end of the lease, and its own clients."""
    asked: list[Renewals] = []
    made = config({"host.socket": "host.sock"})
    monkeypatch.setattr(type(made.coordination), "serve", lambda store, name, seconds, given: asked.append(given))
    made.serve_coordination()
    assert [given.released_for for given in asked] == [False]


def test_the_coordination_process_is_told_when_to_renew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []
    made = config({"timing.lease_ttl": 8.0, "timing.renew_every": 0.5, "timing.hung_after": 3.0})
    monkeypatch.setattr(type(made.coordination), "serve", lambda store, *words: asked.append(words))
    made.serve_coordination()
    assert asked == [("c", 8.0, Renewals(0.5, 3.0, released_for=True))]

    def refused(*words: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(type(made.coordination), "serve", refused)
    with pytest.raises(ConfigError, match="no memory can be shared with the coordination process: Too many open files"):
        made.serve_coordination()


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
        "transactions.max_events": 21,
        "transactions.max_bytes": 22,
        "transactions.connection_bytes": 23,
        "transactions.open_bytes": 24,
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
        work=WorkLimits(events=21, bytes=22, client_bytes=23, open_bytes=24),
    )


@pytest.mark.parametrize("key", ["dir", "host.socket", "amqp.users_file"])
def test_an_empty_path_does_not_stand_for_the_current_directory(key: str) -> None:
    """``--set dir=$UNSET`` made a store of the directory in which the command was given."""
    with pytest.raises(ConfigError, match=f"{key}: must not be empty"):
        config({key: ""})


@pytest.mark.parametrize("first", ["timing", "timing.lease_ttl"])
def test_a_table_and_a_key_of_it_are_not_both_given_with_set(first: str) -> None:
    given = {first: "2", "timing": "2", "timing.lease_ttl": "2"}
    with pytest.raises(ConfigError, match="a table and a key of it are both given"):
        parse_config(TEXT, PATH, given, {})


def test_a_text_with_a_nul_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"amqp\.host: a text must not hold a NUL"):
        parse_config(TEXT + '[amqp]\nhost = "a\\u0000b"\n', PATH, {}, {})


def test_a_file_that_is_nested_deep() -> None:
    with pytest.raises(ConfigError, match="is nested too deep"):
        parse_config("x = " + "[" * 5000, PATH, {}, {})


@pytest.mark.parametrize(
    ("given", "environment"),
    [
        ("amqp = { port = true }", {}),
        ("min_ready = false", {}),
        ("store = { retention_seconds = true }", {}),
        ("", {"TXHA_AMQP": '{"port": true}'}),
    ],
)
def test_true_is_no_number(given: str, environment: dict[str, str]) -> None:
    """It counted as 1: `port = true` was port 1."""
    with pytest.raises(ConfigError, match=r"cannot be (true|false): give it a number or a text$"):
        parse_config(given + TEXT, PATH, {}, environment)


@pytest.mark.parametrize(
    ("given", "flags", "said"),
    [
        ("amqp = 5", {}, f"node.toml: amqp: {TABLE}"),
        ("", {"host": "5"}, f"the options: host: {TABLE}"),
        ("amqp = { users = 5 }", {}, "node.toml: amqp.users: must be a table, with a value for each name"),
        ("outcomes_kept = []", {}, "node.toml: outcomes_kept: Input should be a valid integer"),
    ],
)
def test_what_is_no_table_is_said_without_words_of_python(given: str, flags: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_config(given + TEXT, PATH, flags, {})
    assert str(error.value) == said



@pytest.mark.parametrize("key", ["peer.host", "amqp.host"])
@pytest.mark.parametrize("value", ["10..0.0.4", ".a", "a b", "h" * 64])
def test_a_host_that_no_resolver_takes(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match="no host can be called"):
        parse_config(TEXT, PATH, {key: value}, {})


@pytest.mark.parametrize("name", [" ", "b ", "\tb", "b\u202e", "x" * 101])
def test_a_name_that_no_member_can_have(name: str) -> None:
    """By the rule of ``txha member add``, also of the nodes with which a cluster begins."""
    wrong = re.escape(str(wrong_name(name)))
    with pytest.raises(ConfigError, match=f"name: {wrong}"):
        config({"name": name})
    with pytest.raises(ConfigError, match=rf"peers\.0\.name: {wrong}"):
        parse_config(TEXT.replace('"b"', json.dumps(name)), PATH, SLOW, {})
    assert config({"name": "x" * 100}).name == "x" * 100
