"""Where a local cluster keeps its things: ``cluster.json``, ``coordination.sqlite``, one directory a node."""

from __future__ import annotations

import json
import random
import socket
from dataclasses import dataclass
from pathlib import Path

CLUSTER_FILE = "cluster.json"
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
    """The nodes of a local cluster. Raises ClusterError."""
    path = directory / CLUSTER_FILE
    try:
        data = json.loads(path.read_text())
        return [NodeEntry(n["name"], n["pid"], n["amqp_port"], Path(n["dir"])) for n in data["nodes"]]
    except FileNotFoundError:
        raise ClusterError(f"{directory} holds no cluster; start one with `txha cluster --dir {directory}`") from None
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError):
        raise ClusterError(f"{path} is damaged: it is not what `txha cluster` writes") from None


def cluster_id(directory: Path) -> str | None:
    """The id of the cluster in this directory, None if there is none."""
    try:
        found = json.loads((directory / CLUSTER_FILE).read_text()).get("cluster")
        return str(found) if found else None
    except (OSError, ValueError):
        return None


def write_cluster(directory: Path, identifier: str, entries: list[NodeEntry]) -> None:
    """Write cluster.json, whole or not at all."""
    nodes = [{"name": e.name, "pid": e.pid, "amqp_port": e.amqp_port, "dir": str(e.directory)} for e in entries]
    temporary = directory / (CLUSTER_FILE + ".new")
    temporary.write_text(json.dumps({"cluster": identifier, "nodes": nodes}, indent=2) + "\n")
    temporary.rename(directory / CLUSTER_FILE)


def free_ports(count: int, taken: set[int]) -> list[int]:
    """Loopback ports that nobody listens on at the moment, none of them in ``taken``. Raises ClusterError.

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
    """Whether nobody listens on this loopback port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
