"""What ``txha cluster`` is about to run, worked out and checked in full before anything is written."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from broker_plugin.cli.layout import (
    CLUSTER_FILE,
    CONFIG_FILE,
    NEW_CLUSTER_FILE,
    ClusterError,
    NodeEntry,
    cluster_id,
    free_ports,
    is_founded,
    local_record,
    port_is_free,
    read_nodes,
    write_cluster,
)
from broker_plugin.node.config import SECRET_FILE, NodeConfig, parse_config, parse_settings
from broker_plugin.node.sources import absolute_file
from ha.membership.record import RecordStore
from recovery.secret_file import MARK, make_link_secret
from recovery.store.identity import check_identity, lock_directory
from txobserver.ports.store import StoreBusy, StoreDamaged, StoreError

LOOPBACK = "127.0.0.1"
LEFT_BY_A_KILLED_START = {"lock", NEW_CLUSTER_FILE}
"""What stands in a directory in which a cluster was to be made, before its cluster.json does"""


OWNER_ONLY, READABLE_BY_ALL = 0o600, 0o666
"""Modes of a node.toml, the second less the process's mask."""


class Wiring:
    """Where the nodes of a local cluster listen, and where each reaches the others: all on loopback.

    A cluster with nodes in network namespaces or with proxies between them gives another one.
    """

    def host(self, node: int) -> str:
        """The address on which the node with this index listens, for clients and for other nodes."""
        return LOOPBACK

    def route(self, node: int, other: int, port: int) -> tuple[str, int]:
        """Where ``node`` reaches ``other``, which listens for other nodes on ``port``."""
        return self.host(other), port


ON_LOOPBACK = Wiring()


@dataclass(frozen=True)
class ClusterPlan:
    """A cluster and the configuration text of each node. ``resumed``: it has been founded, and may hold data."""

    directory: Path
    identifier: str
    entries: list[NodeEntry]
    texts: list[str]
    resumed: bool

    def write(self) -> None:
        """Write cluster.json, then every node.toml: what is cut short can be resumed. Raises ClusterError.

        A cluster of a version that had no secrets gets one here, too.
        """
        try:
            write_cluster(self.directory, self.identifier, self.entries, founded=self.resumed)
            make_link_secret(self.directory / SECRET_FILE)
            for entry, text in zip(self.entries, self.texts, strict=True):
                entry.directory.mkdir(exist_ok=True)
                temporary = entry.directory / (CONFIG_FILE + ".new")
                temporary.unlink(missing_ok=True)
                temporary.touch(OWNER_ONLY if _holds_passwords(text) else READABLE_BY_ALL)
                temporary.write_text(text)
                temporary.rename(entry.directory / CONFIG_FILE)
        except OSError as error:
            raise ClusterError(f"{error.filename or self.directory} cannot be written: {error.strerror}") from error


def plan_cluster(
    directory: Path,
    count: int,
    base_port: int,
    settings: list[str],
    wiring: Wiring = ON_LOOPBACK,
    http_port: int | None = None,
) -> ClusterPlan:
    """The cluster in ``directory``, new or resumed; nodes listen for clients from ``base_port`` on, and where there is
    an ``http_port``, for operators from that on.

    The directory is locked for as long as this process lives, as soon as it is known to be a cluster's or to become
    one. Raises ClusterError, ConfigError, or StoreError for a directory that is in use or another cluster's.
    """
    directory = directory.absolute()
    found = _existing(directory)
    if found is not None:
        lock_directory(directory)
        if len(found) != count:
            raise ClusterError(f"{directory} holds a cluster of {len(found)} nodes; give --nodes {len(found)}")
        _check_stopped(directory, [each.name for each in found])
    ports = _neighbours(count, base_port, "--base-port")
    doors = [None] * count if http_port is None else _neighbours(count, http_port, "--http-port")
    if both := set(ports).intersection(doors):
        raise ClusterError(f"port {min(both)} is for clients and for operators; choose another --http-port")
    names = [f"node-{index + 1}" for index in range(count)] if found is None else [each.name for each in found]
    identifier = (cluster_id(directory) if found is not None else None) or f"local-{secrets.token_hex(6)}"
    entries = [NodeEntry(name, None, port, directory / name) for name, port in zip(names, ports, strict=True)]
    peer_ports = free_ports(count, {*ports, *(each for each in doors if each is not None)})
    texts = [
        _node_text(directory, identifier, entries, peer_ports, index, wiring, doors[index]) for index in range(count)
    ]
    whole = []
    for entry, text, peer_port, door in zip(entries, texts, peer_ports, doors, strict=True):
        config = _checked(entry, text, peer_port, settings)
        _check_door(config, door, count)
        whole.append(_with_settings(text, config, settings))
        if found is not None:
            _check_store(entry, identifier)
    if found is None:
        _make_directory(directory)
        lock_directory(directory)
        _check_still_new(directory)
    return ClusterPlan(directory, identifier, entries, whole, found is not None and is_founded(directory))


def check_settings(directory: Path, count: int, settings: list[str]) -> None:
    """Refuse what no node of a cluster in ``directory`` could be given, with nothing made: as ``plan_cluster`` does.

    Raises ClusterError, ConfigError.
    """
    ports = free_ports(2 * count, set())
    entries = [
        NodeEntry(f"node-{index + 1}", None, port, directory.absolute() / f"node-{index + 1}")
        for index, port in enumerate(ports[:count])
    ]
    for index, entry in enumerate(entries):
        text = _node_text(directory.absolute(), "local", entries, ports[count:], index, ON_LOOPBACK, None)
        _check_door(_checked(entry, text, ports[count + index], settings), None, count)


def _existing(directory: Path) -> list[NodeEntry] | None:
    """The nodes of a cluster that is to be resumed; None where a new one may be made. Raises ClusterError."""
    try:
        if not directory.exists():
            return None
        if (directory / CLUSTER_FILE).exists():
            return read_nodes(directory)
        if {path.name for path in directory.iterdir()} - LEFT_BY_A_KILLED_START:
            raise ClusterError(f"{directory} is not empty and holds no cluster; choose another directory")
    except OSError as error:
        raise ClusterError(f"{directory} cannot be used: {error.strerror}") from error
    return None


def _check_stopped(directory: Path, names: list[str]) -> None:
    """Its nodes' ports are in use while one runs, and other ports in its files would part it from the others.

    Raises ClusterError. What else is wrong with a store is left for its node to find.
    """
    for name in names:
        try:
            os.close(lock_directory(directory / name, create=False))
        except StoreBusy:
            raise ClusterError(
                f"{name} of {directory} runs by itself, or its store is in use by another command: end that (Ctrl-C or "
                "SIGTERM ends a node cleanly), then start the cluster"
            ) from None
        except StoreError:
            continue


def _check_still_new(directory: Path) -> None:
    """Once more, since until it was locked another command could make a cluster here. Raises ClusterError."""
    if _existing(directory) is not None:
        raise ClusterError(
            f"another command has made a cluster in {directory} meanwhile; run this one again to resume that"
        )


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ClusterError(f"cannot make {directory}: {error.strerror}") from error


def _neighbours(count: int, first: int, option: str) -> list[int]:
    ports = [first + index for index in range(count)]
    if ports[0] < 1 or ports[-1] > 65535:
        raise ClusterError(f"ports {ports[0]} to {ports[-1]} are out of range; choose another {option}")
    for port in ports:
        if not port_is_free(port):
            raise ClusterError(f"port {port} is in use; choose another {option}")
    return ports


def _node_text(
    directory: Path,
    identifier: str,
    entries: list[NodeEntry],
    peer_ports: list[int],
    index: int,
    wiring: Wiring,
    door: int | None,
) -> str:
    """The node.toml of one node. ``door``: its port for operators."""
    entry, host = entries[index], wiring.host(index)
    routes = [(other, *wiring.route(index, n, peer_ports[n])) for n, other in enumerate(entries) if n != index]
    sections = [
        _section(
            "",
            name=entry.name,
            cluster=identifier,
            dir=str(entry.directory),
            coordination=str(local_record(directory)),
        ),
        _section("[amqp]", host=host, port=entry.amqp_port),
        *([] if door is None else [_section("[http]", host=host, port=door)]),
        _section("[peer]", host=host, port=peer_ports[index], secret=MARK + str(directory / SECRET_FILE)),
        *(_section("[[peers]]", name=other.name, host=there, port=port) for other, there, port in routes),
    ]
    return "\n".join(sections)


def _section(heading: str, **values: Any) -> str:
    """A part of a TOML file. TOML writes strings and numbers as JSON does, and may quote any key so."""
    lines = [heading] if heading else []
    lines += [f"{_key(key)} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _key(name: str) -> str:
    return name if name.isascii() and name.isidentifier() else json.dumps(name, ensure_ascii=False)


def _with_settings(text: str, config: NodeConfig, settings: list[str]) -> str:
    """The file of a node with what ``--set`` gave: a node that is started by itself has it as well."""
    values = tomllib.loads(text)
    for dotted, given in parse_settings(settings).items():
        *path, last = dotted.split(".")
        table, found = values, config
        for part in path:
            table, found = table.setdefault(part, {}), _field(found, part)
        value = _field(found, last)
        table[last] = absolute_file(given, Path.cwd()) if isinstance(value, SecretStr) else value
    return "\n".join(_sections(values))


def _field(of: Any, name: str) -> Any:
    found = of[name] if isinstance(of, dict) else getattr(of, name)
    return str(found) if isinstance(found, Path | RecordStore) else found


def _holds_passwords(text: str) -> bool:
    """Whether a node.toml has users, whose passwords may stand there in clear."""
    return bool(tomllib.loads(text).get("amqp", {}).get("users"))


def _sections(values: dict[str, Any], *path: str) -> Iterator[str]:
    """The TOML of a table and all within it, whose lists hold tables."""
    heading = ".".join(map(_key, path))
    plain = {key: value for key, value in values.items() if not isinstance(value, dict | list)}
    yield _section(f"[{heading}]" if path else "", **plain)
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _sections(value, *path, key)
        elif isinstance(value, list):
            yield from (_section(f"[[{key}]]", **each) for each in value)


def _check_store(entry: NodeEntry, identifier: str) -> None:
    """Whether the node's data is this cluster's. Raises StoreError; damage is left for the node to find and to tell."""
    with contextlib.suppress(StoreDamaged):
        check_identity(entry.directory, identifier, entry.name)


def _check_door(config: NodeConfig, door: int | None, count: int) -> None:
    """Each node needs ports of its own. Raises ClusterError."""
    if config.amqp.tls_port is not None and count > 1:
        raise ClusterError(
            "amqp.tls_port cannot be set for a local cluster of several nodes: set it in the file of each node, and "
            "start that with `txha node`"
        )
    if config.http is None:
        return
    if config.http.port != door:
        raise ClusterError("http.port cannot be set for a local cluster: give --http-port, and each node gets its own")
    if config.http.metrics_port is not None and count > 1:
        raise ClusterError(
            "http.metrics_port cannot be set for a local cluster of several nodes: read /metrics at each node's door"
        )


def _checked(entry: NodeEntry, text: str, peer_port: int, settings: list[str]) -> NodeConfig:
    """The node's configuration, if it is that of the node that was planned. Raises ConfigError, ClusterError."""
    if "peer.secret" in parse_settings(settings):
        raise ClusterError(f"peer.secret cannot be set for a local cluster: it stands in its file {SECRET_FILE}")
    config = parse_config(text, entry.directory / CONFIG_FILE, parse_settings(settings))
    chosen: list[tuple[str, Any, Any]] = [
        ("name", config.name, entry.name),
        ("dir", config.dir, entry.directory),
        ("coordination", config.coordination, local_record(entry.directory.parent)),
        ("amqp.port", config.amqp.port, entry.amqp_port),
        ("peer.port", config.peer.port, peer_port),
    ]
    for key, value, planned in chosen:
        if value != planned:
            raise ClusterError(f"{key} cannot be set for a local cluster: `txha cluster` chooses it for each node")
    return config
