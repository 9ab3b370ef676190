"""Where a local cluster keeps its things: ``cluster.json``, ``coordination.sqlite``, one directory a node."""

from __future__ import annotations

import json
import random
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_plugin.coordination.address import in_file
from ha.membership.record import RecordStore

CLUSTER_FILE = "cluster.json"
NEW_CLUSTER_FILE = CLUSTER_FILE + ".new"
FOUNDED = "founded"
COORDINATION_FILE = "coordination.sqlite"
CONFIG_FILE = "node.toml"
LOG_FILE = "node.log"
LOWEST_PORT = 10_000
EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class ClusterError(Exception):
    """The cluster's directory cannot be used so; one sentence says why."""


@dataclass
class NodeEntry:
    """One line of cluster.json. ``pid`` is None while the node does not run."""

    name: str
    pid: int | None
    amqp_port: int
    directory: Path


def read_cluster(directory: Path) -> list[NodeEntry]:
    """The nodes of the local cluster that lives in this directory. Raises ClusterError.

    Of a copy too: what speaks to its nodes, or gives up their stores, would do so to those of the cluster it is of.
    """
    entries = read_nodes(directory)
    for entry in entries:
        if entry.directory.resolve() != (directory / entry.name).resolve():
            raise ClusterError(
                f"{directory} is a copy of the cluster in {entry.directory.parent}, or was moved from there: give that "
                f"directory, or start the cluster that is here with `txha cluster --dir {directory}`, which then names "
                "this one in its files"
            )
    return entries


def read_nodes(directory: Path) -> list[NodeEntry]:
    """The nodes as cluster.json names them, whose ``directory`` may be elsewhere. Raises ClusterError."""
    try:
        return [NodeEntry(n["name"], n["pid"], n["amqp_port"], Path(n["dir"])) for n in _read(directory)["nodes"]]
    except (KeyError, TypeError):
        raise _damaged(directory) from None


def is_founded(directory: Path) -> bool:
    """Whether cluster.json says that the cluster has been founded; one of an earlier version does. Raises ClusterError.

    It is written before the cluster is founded, and once more afterwards. In between it says False.
    """
    return _read(directory).get(FOUNDED, True) is not False


def _read(directory: Path) -> dict[str, Any]:
    path = directory / CLUSTER_FILE
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        raise ClusterError(f"{directory} holds no cluster; start one with `txha cluster --dir {directory}`") from None
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError):
        raise _damaged(directory) from None
    if not isinstance(data, dict):
        raise _damaged(directory)
    return data


def _damaged(directory: Path) -> ClusterError:
    return ClusterError(f"{directory / CLUSTER_FILE} is damaged: it is not what `txha cluster` writes")


def cluster_id(directory: Path) -> str | None:
    """The id of the cluster in this directory, None if there is none."""
    try:
        found = json.loads((directory / CLUSTER_FILE).read_text()).get("cluster")
        return str(found) if found else None
    except (OSError, ValueError, RecursionError, AttributeError):
        return None


def write_cluster(directory: Path, identifier: str, entries: list[NodeEntry], founded: bool = True) -> None:
    """Write cluster.json, whole or not at all."""
    nodes = [{"name": e.name, "pid": e.pid, "amqp_port": e.amqp_port, "dir": str(e.directory)} for e in entries]
    data = {"cluster": identifier, "nodes": nodes} | ({} if founded else {FOUNDED: False})
    temporary = directory / NEW_CLUSTER_FILE
    temporary.write_text(json.dumps(data, indent=2) + "\n")
    temporary.rename(directory / CLUSTER_FILE)


def free_ports(count: int, taken: set[int]) -> list[int]:
    """Loopback ports that no process listens on at the moment, none of them in ``taken``. Raises ClusterError.

    They are outside the range from which the system gives ports to outgoing connections: a client's connection could
    otherwise sit on the port of a node that is down, and keep it from being started again.
    """
    low, high = ephemeral_range()
    candidates = [p for p in range(LOWEST_PORT, 65536) if not low <= p <= high and p not in taken]
    random.shuffle(candidates)
    ports: list[int] = []
    for port in candidates:
        if len(ports) == count:
            break
        if port_is_free(port):
            ports.append(port)
    if len(ports) < count:
        raise ClusterError(f"there are no {count} free loopback ports")
    return ports


def ephemeral_range() -> tuple[int, int]:
    """The first and the last port that the system gives to outgoing connections."""
    try:
        low, high = EPHEMERAL.read_text().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 32768, 60999


def port_is_free(port: int) -> bool:
    """Whether no process listens on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def local_record(directory: Path) -> RecordStore:
    """Where the cluster in this directory keeps its record."""
    return in_file(directory / COORDINATION_FILE)
