"""The lease that a node has by default: it goes by the coordination store, and gives way to what is configured."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_plugin.coordination.address import store_at
from broker_plugin.node.config import ConfigError, NodeConfig, load_config
from broker_plugin.node.timing import LEASE_SECONDS, LEASE_SECONDS_ETCD, RENEW_SECONDS, Timing, default_lease

ETCD = "etcd://one:2379,two:2379/orders"
GOOD = 'name = "a"\ncluster = "c"\ndir = "node"\ncoordination = "{address}"\n[peer]\nport = 5700\n'


def timing(tmp_path: Path, address: str, extra: str = "", **flags: str) -> Timing:
    """What a node with this address goes by."""
    path = tmp_path / "node.toml"
    path.write_text(GOOD.format(address=address) + extra)
    return load_config(path, {f"timing.{key}": value for key, value in flags.items()}, {}).timing


@pytest.mark.parametrize("address", ["sqlite:///record.sqlite", "record.sqlite", "/etcd/record.sqlite"])
def test_a_file_has_the_short_lease(tmp_path: Path, address: str) -> None:
    found = timing(tmp_path, address)
    assert (found.lease_ttl, found.renew_every, found.hung_after) == (LEASE_SECONDS, RENEW_SECONDS, 0.75)
    assert (Timing().lease_ttl, Timing().renew_every) == (LEASE_SECONDS, RENEW_SECONDS)


def test_etcd_has_a_lease_that_outlasts_an_election_of_its_own(tmp_path: Path) -> None:
    """An election takes 2 seconds by etcd's defaults; a primary must renew behind it, and before its lease is over."""
    found = timing(tmp_path, ETCD)
    assert (found.lease_ttl, found.renew_every, found.hung_after) == (LEASE_SECONDS_ETCD, 0.5, 3.0)
    assert found.lease_ttl >= 2.0 + 2 * found.renew_every + 0.5
    others = timing(tmp_path, ETCD, "[timing]\nprepare_timeout = 2\n")
    assert (others.lease_ttl, others.renew_every, others.prepare_timeout) == (LEASE_SECONDS_ETCD, 0.5, 2.0)


def test_what_is_configured_goes_before_it(tmp_path: Path) -> None:
    """Renewals go by the lease that there is; whichever source it is from."""
    assert timing(tmp_path, ETCD, "[timing]\nlease_ttl = 8\n").renew_every == 1.0
    assert timing(tmp_path, ETCD, lease_ttl="8").renew_every == 1.0
    assert timing(tmp_path, ETCD, lease_ttl="1").renew_every == RENEW_SECONDS
    found = timing(tmp_path, ETCD, "[timing]\nrenew_every = 0.9\n", lease_ttl="6")
    assert (found.lease_ttl, found.renew_every, found.hung_after) == (6.0, 0.9, 4.5)


@pytest.mark.parametrize(
    ("address", "extra", "seconds"),
    [
        (ETCD, "", LEASE_SECONDS),
        (ETCD, "[timing]\nrenew_every = 0.3\n", LEASE_SECONDS),
        (ETCD, "[timing]\nrenew_every = 0.6\n", 0),
        (ETCD, "[timing]\nlease_ttl = 3.0\n", 0),
        (ETCD, "[timing]\nlease_ttl = 1.0\n", 0),
        ("record.sqlite", "", 0),
        ("record.sqlite", "[timing]\nlease_ttl = 4.0\n", 0),
    ],
)
def test_how_long_a_node_of_an_earlier_version_waits(tmp_path: Path, address: str, extra: str, seconds: float) -> None:
    """0.1.0 has a lease of one second with etcd too, unless the file names one; it refuses half of it or more between
    renewals."""
    path = tmp_path / "node.toml"
    path.write_text(GOOD.format(address=address) + extra)
    assert load_config(path, {}, {}).core_settings().lease_before == seconds


@pytest.mark.parametrize(
    ("extra", "sentence"),
    [
        ("[timing]\nlease_ttl = 'soon'\n", "timing.lease_ttl: Input should be a valid number"),
        ("[timing]\nlease_ttl = -1\n", "timing.lease_ttl: Input should be greater than 0"),
        ("[timing]\nrenew_every = 2.5\n", "timing: renew_every must be at most half of lease_ttl"),
    ],
)
def test_what_is_wrong_is_said_of_the_key_that_was_given(tmp_path: Path, extra: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        timing(tmp_path, ETCD, extra)
    path = tmp_path / "node.toml"
    path.write_text("timing = 3\n" + GOOD.format(address=ETCD))
    with pytest.raises(ConfigError, match="timing: must be a table"):
        load_config(path, {}, {})


def test_a_store_in_place_of_its_address() -> None:
    """As a configuration that is made directly has it."""
    values = {"name": "a", "cluster": "c", "dir": ".", "coordination": store_at(ETCD), "peer": {"port": 1}}
    assert NodeConfig.model_validate(values).timing.lease_ttl == LEASE_SECONDS_ETCD
    assert default_lease(store_at(ETCD)) == LEASE_SECONDS_ETCD
    assert default_lease(store_at("record.sqlite")) == LEASE_SECONDS
