"""Configuration: every mistake is one clear sentence, and the later source wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from broker_plugin.node.client_settings import amqp_settings
from broker_plugin.node.config import (
    INVARIANTS,
    Address,
    Amqp,
    ConfigError,
    NodeConfig,
    Timing,
    load_config,
    switch_invariants,
)
from broker_plugin.node.shell import TICK
from broker_plugin.node.timing import SHORTEST
from broker_plugin.node.users import read_users
from ha.effects import CompareAndSet, Effect
from ha.membership.candidate import Candidate
from ha.membership.record import Record
from ha.settings import Settings
from tests.support.invariants import unchecked
from txobserver.ids import Member, Position
from txobserver.invariants import CHECKS
from txobserver.work_limits import WorkLimits

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
    settings = amqp_settings(config, "", read_users(config.amqp), 1000)
    assert {key: getattr(settings, key) for key in AMQP} == AMQP
    assert settings.cluster == "c" and settings.users == {"alice": "secret"}


def test_who_has_not_logged_in_leaves_room_for_who_has(tmp_path: Path) -> None:
    """At most half of the descriptors that clients have, from one address a quarter, whatever is configured."""
    lines = "[amqp]\nmax_unauthenticated = 300\nmax_unauthenticated_per_address = 200\nlogin_seconds = 2.5\n"
    config = load_config(write(tmp_path, lines))

    def bounds(fit: int) -> tuple[int, int]:
        settings = amqp_settings(config, "", {}, fit)
        assert settings.handshake_timeout == 2.5
        return settings.max_unauthenticated, settings.max_unauthenticated_per_address

    assert [bounds(fit) for fit in (10_000, 500, 40, 1, 0)] == [(300, 200), (250, 125), (20, 10), (1, 1), (1, 1)]


def test_marks_of_memory_follow_the_high_one(tmp_path: Path) -> None:
    marks = load_config(write(tmp_path, "[memory]\nhigh_bytes = 100_000_000\n")).memory_marks()
    assert marks == (75_000_000, 100_000_000, 150_000_000, 50_000_000, 256 << 20)
    config = load_config(write(tmp_path, "[memory]\nlow_bytes = 1\nhard_bytes = 805306369\n"))
    assert config.memory_marks() == (1, 805_306_368, 805_306_369, 402_653_184, 256 << 20)


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("low_bytes = 805306368", "low_bytes must be less than high_bytes"),
        ("hard_bytes = 805306368", "high_bytes less than hard_bytes"),
        ("connection_bytes = 1048575", "connection_bytes must be at least 1048576"),
        ("connection_bytes = 2000000000", "at most hard_bytes"),
        ("high_bytes = 4194303", "greater than or equal to 4194304"),
    ],
)
def test_marks_of_memory_that_make_no_sense_are_refused(tmp_path: Path, lines: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_config(write(tmp_path, f"[memory]\n{lines}\n"))


def test_limits_of_transactions_reach_the_core(tmp_path: Path) -> None:
    lines = "[transactions]\nmax_events = 1\nmax_bytes = 2\nconnection_bytes = 3\nopen_bytes = 4\n"
    assert load_config(write(tmp_path, lines)).core_settings().work == WorkLimits(1, 2, 3, 4)
    with pytest.raises(ConfigError, match="less than or equal to 1048576"):
        load_config(write(tmp_path, "[transactions]\nmax_events = 1048577\n"))


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
        ("[http]\nport = 7002\n", "127.0.0.1:7002 is given twice"),
        ("[http]\nmetrics_port = 15672\n", "127.0.0.1:15672 is given twice"),
        ("[http]\nport = 0\n", "http.port: Input should be greater than or equal to 1"),
        ("[http]\nhost = ''\n", "http.host: String should have at least 1 character"),
        ("[[peers]]\nname = 'node-3'\nport = 7002\n", "127.0.0.1:7002 is given twice"),
        ("[amqp]\nhost = ''\n", "amqp.host: String should have at least 1 character"),
        ("[[peers]]\nname = 'node-3'\nhost = ''\nport = 7003\n", "peers.1.host: String should have at least 1"),
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
        ("TXHA_SPEED", "TXHA_SPEED: unknown key 'speed'; the nearest known one is 'unsupported'"),
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


def test_an_empty_host_of_this_node_does_not_stand_for_every_address(tmp_path: Path) -> None:
    for key in ("amqp.host", "peer.host"):
        with pytest.raises(ConfigError, match=rf"^the options: {key}: String should have at least 1 character"):
            load_config(write(tmp_path), {key: ""}, {})


def test_a_value_is_named_by_where_it_stands(tmp_path: Path) -> None:
    """An option by its key, since no file need be there; a variable by its name; what stands in the file by that."""
    path, said = write(tmp_path), "timing.lease_ttl: Input should be greater than 0"
    environment = {"TXHA_TIMING__LEASE_TTL": "-1"}
    with pytest.raises(ConfigError) as option:
        load_config(path, {"timing.lease_ttl": "-1"}, environment)
    with pytest.raises(ConfigError) as variable:
        load_config(path, {}, environment)
    with pytest.raises(ConfigError) as file:
        load_config(write(tmp_path, "[timing]\nlease_ttl = -1\n"), {}, {})
    assert [str(each.value) for each in (option, variable, file)] == [
        f"the options: {said}",
        f"TXHA_TIMING__LEASE_TTL: {said}",
        f"{path}: {said}",
    ]


@pytest.mark.parametrize("key", ["outcome_seconds", "timing.lease_ttl", "store.retention_seconds"])
@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_time_without_end_is_refused(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: Input should be a finite number"):
        load_config(write(tmp_path), {key: value}, {})


def test_an_unknown_option_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'amqp\.heart'; the nearest known one is 'amqp\.heartbeat'"):
        load_config(write(tmp_path), {"amqp.heart": "1"}, {})


@pytest.mark.parametrize(
    ("options", "environment", "said"),
    [
        ({"min_ready": "many"}, {}, "the options: min_ready: Input"),
        ({}, {"TXHA_MIN_READY": "many"}, "TXHA_MIN_READY: min_ready: Input"),
        ({"min_ready": "many"}, {"TXHA_MIN_READY": "1"}, "the options: min_ready: Input"),
        ({}, {"TXHA_PEERS": '[{"name": "n"}]'}, "TXHA_PEERS: key 'peers.0.port' is missing"),
        ({"min_ready": "9"}, {}, "{file} with the option min_ready: min_ready is 9"),
        ({}, {"TXHA_MIN_READY": "9"}, "{file} with TXHA_MIN_READY: min_ready is 9"),
        (
            {"timing.renew_every": "3"},
            {"TXHA_TIMING__LEASE_TTL": "5", "TXHA_LOG_LEVEL": "info"},
            "{file} with the option timing.renew_every and TXHA_TIMING__LEASE_TTL: timing: renew_every",
        ),
    ],
)
def test_what_an_option_or_a_variable_gives_is_not_blamed_on_the_file(
    tmp_path: Path, options: dict[str, str], environment: dict[str, str], said: str
) -> None:
    path = write(tmp_path)
    with pytest.raises(ConfigError) as found:
        load_config(path, options, environment)
    assert str(found.value).startswith(said.replace("{file}", str(path)))


def test_what_the_file_gives_is_blamed_on_it(tmp_path: Path) -> None:
    path = write(tmp_path, "[timing]\nlease_ttl = 'soon'\n")
    with pytest.raises(ConfigError) as found:
        load_config(path, {"min_ready": "1", "timing.renew_every": "1"}, {"TXHA_LOG_LEVEL": "info"})
    assert str(found.value).startswith(f"{path}: timing.lease_ttl: Input")


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


@pytest.mark.parametrize(
    "variable", ["TXHA_CRASH_POINT", "TXHA_AMQP_URL", "TXHA_TEST_SERVERS", "TXHA_CORE", "TXHA_CHECK_INVARIANTS"]
)
def test_variables_of_other_things_are_no_settings(tmp_path: Path, variable: str) -> None:
    """Of tests, of the compiled core and of invariants: they reach nodes that are started where they are set."""
    assert load_config(write(tmp_path), environment={variable: "x"}) == load_config(write(tmp_path), environment={})


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
    settings = amqp_settings(config, "", read_users(config.amqp), 1000)
    for shown in (repr(config), str(config), str(config.model_dump()), repr(settings)):
        assert "heartbeat" in shown and "s3cr3t" not in shown


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("s3cr3t", 0o604, "others than its owner may use"),
        ("s3cr3t", 0o640, "others than its owner may use"),
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
    assert "'s3cr3t'" not in str(found.value)
    assert found.value.__cause__ is None and found.value.__suppress_context__, "nor does a trace show it"


def test_no_error_of_a_model_tells_what_it_was_given(tmp_path: Path) -> None:
    """Whatever shows it: a trace, for example, where a configuration is made directly."""
    users: Any = {"users": {"a": ["s3cr3t"]}}
    for make in (
        lambda: Amqp(**users),
        lambda: NodeConfig(
            name="a", cluster="c", dir=tmp_path, coordination=tmp_path, peer=Address(port=1), amqp=users
        ),
    ):
        with pytest.raises(ValidationError) as found:
            make()
        assert "users.a" in str(found.value) and "s3cr3t" not in str(found.value)


def test_a_configuration_does_not_change(tmp_path: Path) -> None:
    config: Any = load_config(write(tmp_path), environment={})
    for part in (config, config.amqp, config.timing):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(part, next(iter(type(part).model_fields)), "x")


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
    """In tests they are on; in a node they are off unless it is asked for. A value that means nothing is refused."""
    assert CHECKS.on
    for environment, on in (({}, False), ({INVARIANTS: "0"}, False), ({INVARIANTS: "1"}, True)):
        with unchecked():
            switch_invariants(environment)
            assert CHECKS.on is on
    with pytest.raises(ConfigError, match=f"{INVARIANTS} is 0 or 1, not 'yes'"):
        switch_invariants({INVARIANTS: "yes"})
