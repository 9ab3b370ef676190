"""Which ports must be free for a node to start: its own, and not those of its HTTP door."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_plugin.cli.layout import free_ports
from broker_plugin.node.config import ConfigError, NodeConfig, parse_config
from broker_plugin.node.ports import check_ports, why_shut

TABLES = ("amqp.port", "peer.port", "http.port", "http.metrics_port")
IN_USE = "the address is in use; choose another port"


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def config_with(directory: Path, key: str, taken: int) -> NodeConfig:
    """All ports but one are free."""
    ports = dict(zip(TABLES, free_ports(4, {taken}), strict=True)) | {key: taken}
    lines = [f'name = "a"\ncluster = "c"\ndir = "{directory}"\ncoordination = "{directory / "r"}"']
    lines += [f"{name} = {port}" for name, port in ports.items()]
    return parse_config("\n".join(lines), directory / "node.toml", environment={})


@pytest.mark.parametrize(("key", "what"), [("amqp.port", "AMQP clients"), ("peer.port", "other nodes")])
async def test_a_taken_port_of_the_node_is_refused(key: str, what: str, taken: int, tmp_path: Path) -> None:
    said = f"cannot listen for {what} on 127.0.0.1:{taken}: {IN_USE}"
    with pytest.raises(ConfigError, match=f"^{re.escape(said)}$"):
        await check_ports(config_with(tmp_path, key, taken))


@pytest.mark.parametrize("key", ["http.port", "http.metrics_port"])
async def test_a_taken_port_of_the_door_keeps_no_node_from_starting(key: str, taken: int, tmp_path: Path) -> None:
    """The door of its former process had kept it, and a supervisor does not start a node again that refuses to run."""
    config = config_with(tmp_path, key, taken)
    await check_ports(config)
    assert config.http is not None
    assert why_shut(config.http.addresses) == f"cannot listen for operators on 127.0.0.1:{taken}: {IN_USE}"


def test_a_door_whose_ports_are_free_can_be_opened(taken: int, tmp_path: Path) -> None:
    config = config_with(tmp_path, "peer.port", taken)
    assert config.http is not None and why_shut(config.http.addresses) is None
