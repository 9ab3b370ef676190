"""Configuration: every mistake is one clear sentence, and the later source wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_plugin.node.config import (
    INVARIANTS,
    SHORTEST,
    Address,
    ConfigError,
    NodeConfig,
    Timing,
    load_config,
    switch_invariants,
)
from broker_plugin.node.main import amqp_settings
from broker_plugin.node.shell import TICK
from broker_plugin.node.users import read_users
from ha.effects import CompareAndSet, Effect
from ha.membership.candidate import Candidate
from ha.membership.record import Record
from ha.settings import Settings
from txobserver.ids import Member, Position
from txobserver.invariants import CHECKS

GOOD = """
name = "node-1"
cluster = "c"
dir = "{dir}"
coordination = "{dir}/c.sqlite"
[peer]
port = 7001
[[peers]]
name = "node-2"
port = 7002
"""


AMQP = {"heartbeat": 7, "frame_max": 8192, "channel_max": 9, "max_connections": 11}


def test_what_is_said_of_amqp_reaches_the_listener(tmp_path: Path) -> None:
    lines = "\n".join(f"{key} = {value}" for key, value in AMQP.items())
    config = load_config(write(tmp_path, f'[amqp]\n{lines}\n[amqp.users]\nalice = "secret"\n'))
    settings = amqp_settings(config, "", read_users(config.amqp))
    assert {key: getattr(settings, key) for key in AMQP} == AMQP
    assert settings.cluster == "c" and settings.users == {"alice": "secret"}


def write(tmp_path: Path, extra: str = "", text: str = GOOD) -> Path:
    path = tmp_path / "node.toml"
    path.write_text(text.replace("{dir}", str(tmp_path / "node")) + extra)
    return path


def test_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path), environment={})
    assert config.amqp.port == 5672 and config.amqp.host == "127.0.0.1"
    assert config.peer.host == "127.0.0.1" and config.min_ready == 1
    settings = config.core_settings()
    assert (settings.lease_ttl, settings.prepare_timeout) == (config.timing.lease_ttl, config.timing.prepare_timeout)


@pytest.mark.parametrize(("nodes", "wanted"), [(1, 1), (2, 1), (3, 2), (4, 3), (5, 3), (7, 4), (9, 5)])
def test_a_majority_must_be_ready_from_three_nodes_on(tmp_path: Path, nodes: int, wanted: int) -> None:
    """A blip of a link must not turn commits on several disks into commits on one; the key says otherwise."""
    text = GOOD.split("[[peers]]")[0]
    peers = "".join(f'[[peers]]\nname = "p{n}"\nport = {6000 + n}\n' for n in range(nodes - 1))
    path = write(tmp_path, peers, text)
    assert load_config(path, environment={}).min_ready == wanted
    assert load_config(path, environment={}).core_settings().min_ready == wanted
    assert load_config(path, {"min_ready": "1"}, {}).min_ready == 1


def test_flags_over_environment_over_file(tmp_path: Path) -> None:
    path = write(tmp_path, "[timing]\nlease_ttl = 3\nrenew_every = 0.1\n")
    environment = {"TXHA_TIMING__LEASE_TTL": "4", "TXHA_MIN_READY": "2", "PATH": "x"}
    assert load_config(path, environment={}).timing.lease_ttl == 3
    assert load_config(path, environment=environment).timing.lease_ttl == 4
    config = load_config(path, {"timing.lease_ttl": "5"}, environment)
    assert config.timing.lease_ttl == 5 and config.min_ready == 2 and config.timing.renew_every == 0.1


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ("[amqp]\nprot = 1\n", "unknown key 'amqp.prot'; the nearest known one is 'amqp.port'"),
        ("[[peers]]\nnmae = 'b'\n", "unknown key 'peers.1.nmae'; the nearest known one is 'peers.name'"),
        ("[amqp.users]\nalice = '@nowhere'\n", "nowhere cannot be read: No such file or directory"),
        ("[amqp]\nport = 70000\n", "amqp.port: Input should be less than or equal to 65535"),
        ("[timing]\nlease_ttl = 0.3\n", "renew_every must be at most half of lease_ttl"),
        ("[timing]\nlease_ttl = 0.1\nrenew_every = 0.02\n", "renew_every must be at least 0.1"),
        ("[timing]\nprepare_timeout = 0.01\n", "timing: prepare_timeout must be at least 0.1"),
        ("[timing]\nbackup_timeout = 0.01\n", "timing: backup_timeout must be at least 0.1"),
        ("[timing]\nlease_ttl = 'soon'\n", "timing.lease_ttl: Input should be a valid number"),
        ("[[peers]]\nname = 'node-1'\nport = 7003\n", "needs a name of its own"),
        ("[[peers]]\nname = 'node-3'\n", "key 'peers.1.port' is missing"),
        ("[store]\nretention_seconds = -1\n", "store.retention_seconds"),
        ("what is this", "is not valid TOML"),
        ("[timing]\nlease_ttl = inf\n", "timing.lease_ttl: Input should be a finite number"),
        ("[amqp]\nport = 7001\n", "127.0.0.1:7001 is given twice"),
        ("[[peers]]\nname = 'node-3'\nport = 7002\n", "127.0.0.1:7002 is given twice"),
    ],
)
def test_one_sentence_for_each_mistake(tmp_path: Path, extra: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_config(write(tmp_path, extra), environment={})
    assert sentence in str(found.value) and "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["name.x", "peers.0.port", "peer.port.x"])
def test_a_key_below_one_that_has_none(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="has no keys of its own"):
        load_config(write(tmp_path), {name: "1"}, {})
    variable = "TXHA_" + name.upper().replace(".", "__")
    with pytest.raises(ConfigError, match="has no keys of its own"):
        load_config(write(tmp_path), environment={variable: "1"})


@pytest.mark.parametrize(
    ("variable", "sentence"),
    [
        ("TXHA_SPEED", "TXHA_SPEED: unknown key 'speed'; the nearest known one is 'peer.port'"),
        ("TXHA_TIMING__LEASE_TLT", "unknown key 'timing.lease_tlt'; the nearest known one is 'timing.lease_ttl'"),
        ("TXHA_LEASE_TTL", "unknown key 'lease_ttl'; the nearest known one is 'timing.lease_ttl'"),
        ("TXHA_PEERS", "TXHA_PEERS: what holds several values is written as JSON"),
        ("TXHA_TIMING", "TXHA_TIMING: what holds several values is written as JSON"),
    ],
)
def test_a_variable_that_cannot_be(tmp_path: Path, variable: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_config(write(tmp_path), environment={variable: "high"})
    assert sentence in str(found.value) and "high" not in str(found.value)


def test_an_unknown_option_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'amqp\.heart'; the nearest known one is 'amqp\.heartbeat'"):
        load_config(write(tmp_path), {"amqp.heart": "1"}, {})


def test_a_table_in_one_variable(tmp_path: Path) -> None:
    """A key of it in a variable of its own, or in an option, counts for more; so does any of them before the file."""
    path = write(tmp_path, "[timing]\nlease_ttl = 3\nbackup_timeout = 9\n")
    environment = {"TXHA_TIMING": '{"lease_ttl": 4, "renew_every": 0.3}', "TXHA_TIMING__RENEW_EVERY": "0.4"}
    environment["TXHA_PEERS"] = '[{"name": "node-9", "port": 7009}]'
    config = load_config(path, {"timing.prepare_timeout": "7"}, environment)
    timing = config.timing
    assert (timing.lease_ttl, timing.renew_every, timing.prepare_timeout) == (4, 0.4, 7)
    assert timing.backup_timeout == 9 and [peer.name for peer in config.peers] == ["node-9"]
    with pytest.raises(ConfigError, match=r"unknown key 'timing\.speed'"):
        load_config(path, environment={"TXHA_TIMING": '{"speed": 1}'})


def test_only_what_is_told_of_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXHA_MIN_READY", "2")
    monkeypatch.setenv("MIN_READY", "2")
    path = write(tmp_path)
    assert load_config(path, environment={}).min_ready == 1 and load_config(path).min_ready == 2
    assert NodeConfig(name="a", cluster="c", dir=tmp_path, coordination=tmp_path, peer=Address(port=1)).min_ready == 1


# -- passwords


def secret(path: Path, text: str = "s3cr3t\n", mode: int = 0o600) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_password_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative name is looked for beside the configuration, or, of variables and options, where the node starts."""
    secret(tmp_path / "beside")
    there = secret(tmp_path / "elsewhere" / "password", "other")
    monkeypatch.chdir(there.parent)
    path = write(tmp_path, "[amqp.users]\na = '@beside'\nb = '@@plain'\nc = 'as@it@is'\n")
    config = load_config(path, {"amqp.users.d": "@password"}, {"TXHA_AMQP__USERS__E": f"@{there}"})
    assert config.amqp.passwords() == {"a": "s3cr3t", "b": "@plain", "c": "as@it@is", "d": "other", "e": "other"}


def test_no_password_is_shown(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, "[amqp.users]\na = 's3cr3t'\n"), environment={})
    settings = amqp_settings(config, "", read_users(config.amqp))
    for shown in (repr(config), str(config), str(config.model_dump()), repr(settings)):
        assert "heartbeat" in shown and "s3cr3t" not in shown


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("s3cr3t", 0o604, "every user of this machine may use"),
        ("s3cr3t\nmore", 0o600, "must hold one password, in one line"),
        ("", 0o600, "must hold one password, in one line"),
    ],
)
def test_a_password_file_that_will_not_do(tmp_path: Path, text: str, mode: int, sentence: str) -> None:
    file = secret(tmp_path / "password", text, mode)
    with pytest.raises(ConfigError) as found:
        load_config(write(tmp_path), {"amqp.users.a": f"@{file}"}, {})
    assert sentence in str(found.value) and "\n" not in str(found.value) and "s3cr3t" not in str(found.value)
    assert "amqp.users: " in str(found.value)


@pytest.mark.parametrize(
    ("options", "extra"),
    [({"amqp.users": "s3cr3t"}, ""), ({}, "[amqp.users]\na = ['s3cr3t']\n")],
)
def test_a_mistake_tells_no_password(tmp_path: Path, options: dict[str, str], extra: str) -> None:
    with pytest.raises(ConfigError) as found:
        load_config(write(tmp_path, extra), options, {})
    assert "'s3cr3t'" not in str(found.value) and found.value.__cause__ is None


def test_a_cluster_cannot_need_more_ready_nodes_than_it_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="min_ready is 3 in a cluster of 2"):
        load_config(write(tmp_path), {"min_ready": "3"}, {})


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "nowhere.toml", environment={})


@pytest.mark.parametrize("late", [0.001, 0.02, 0.05])
def test_renew_every_below_the_tick(late: float) -> None:
    """P12: whatever the configuration accepts, a candidate that looks at its clock as the shell does takes over."""
    shortest = Timing(lease_ttl=2 * SHORTEST, renew_every=SHORTEST)
    with pytest.raises(ValueError, match="looks at its clock"):
        Timing(lease_ttl=2 * SHORTEST, renew_every=TICK)
    for timing in (shortest, Timing()):
        me, dead, effects = Member("b", "1"), Member("a", "1"), list[Effect]()
        settings = Settings(lease_ttl=timing.lease_ttl, renew_every=timing.renew_every)
        candidate = Candidate(me, settings, effects.append)
        candidate.observe(Record("c", 5, 1, dead, (dead, me)), 0.0)
        now = 0.0
        while now < 5 * timing.lease_ttl:
            now += TICK + late
            candidate.tick(Position(1, 9), [], now)
        assert any(isinstance(each, CompareAndSet) for each in effects), timing


def test_invariants_are_switched_by_one_variable() -> None:
    """In tests they are on already; a value that means nothing is refused."""
    switch_invariants({})
    switch_invariants({INVARIANTS: "0"})
    switch_invariants({INVARIANTS: "1"})
    assert CHECKS.on
    with pytest.raises(ConfigError, match=f"{INVARIANTS} is 0 or 1, not 'yes'"):
        switch_invariants({INVARIANTS: "yes"})
