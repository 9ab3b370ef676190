"""The network between the nodes of a cluster under stress, and what can be done to it.

``Namespaces`` puts each node into a network of its own, joined by a bridge, and drops packets with nftables. It needs
root. ``Proxied`` leaves the nodes on loopback with a TCP proxy in each link. Delay is made by the proxies in either
case: the kernel's own needs a module that is often missing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from broker_plugin.cli.cluster.plan import Wiring
from broker_plugin.cli.layout import free_ports
from python_tests.harness.stress.namespaces import Namespace, NetworkError, run
from python_tests.harness.stress.proxies import Link, Proxies

CLIENTS = -1
"""Stands for all clients where a node's index is wanted"""

CUT = 1.0

Way = tuple[int, int]
"""From one node to another, by their indexes"""

T = TypeVar("T")


@dataclass(frozen=True)
class Impairment:
    """What happens to packets on some ways: a share of them is lost (``CUT``: all), the rest is late by ``delay`` s.

    ``served``: nodes and ports; where there are any, it hits only connections that were made to one of these.
    """

    ways: frozenset[Way]
    loss: float = 0.0
    delay: float = 0.0
    served: frozenset[tuple[int, int]] = frozenset()


class Network(Wiring):
    """Plain loopback: nothing can be done to it. Impairments of the other networks may overlap."""

    cuts = False
    """Whether ways between nodes can be cut"""
    cuts_clients = False
    delays = False

    hosts = False
    """Whether each node has a host of its own, with what else runs there"""

    def open(self) -> None:
        """Make it. Raises NetworkError."""

    def offer(self, ports: Sequence[int]) -> None:
        """What listens on these ports of each node's host can be reached from every host, at its ``service`` address.

        Before ``open``.
        """

    def service(self, node: int) -> str:
        """The address at which all hosts reach what is offered beside this node: the same for each of them."""
        return self.host(node)

    def start_proxies(self) -> None:
        """Let its proxies begin to work: every route that they serve has been asked for. Raises NetworkError."""

    def close(self) -> None:
        """Take it away."""

    def command(self, node: int) -> list[str]:
        """What to put before the command that runs this node."""
        return []

    def call(self, node: int, function: Callable[[], T]) -> T:
        """Call where this node's loopback is."""
        return function()

    def impose(self, impairment: Impairment) -> int:
        """Impair the network; returns a number for ``lift``. Raises NetworkError."""
        raise NetworkError("nothing can be done to this network")

    def lift(self, number: int) -> int:
        """End an impairment; returns how many packets (or pieces, in proxies) it hit. Raises NetworkError."""
        raise NetworkError("nothing was done to this network")


class Proxied(Network):
    """Nodes on loopback; each reaches each other one through a proxy."""

    cuts = True
    delays = True

    def __init__(self, nodes: int) -> None:
        ways = [(node, other) for node in range(nodes) for other in range(nodes) if node != other]
        self._ports = dict(zip(ways, free_ports(len(ways), set()), strict=True))
        self._links: dict[Way, Link] = {}
        self._proxies = Proxies()

    def route(self, node: int, other: int, port: int) -> tuple[str, int]:
        """By way of the proxy."""
        here = ("127.0.0.1", self._ports[node, other])
        self._links[node, other] = Link((node, other), here, (self.host(other), port), self.place(node))
        return here

    def place(self, node: int) -> int | None:
        """The process in whose network the node's proxies are; None for this one."""
        return None

    def start_proxies(self) -> None:
        """See ``Network``."""
        self._proxies.start([*self._links.values(), *self.offered()])

    def offered(self) -> list[Link]:
        """Those to what is offered beside the nodes."""
        return []

    def close(self) -> None:
        """End the proxies."""
        self._proxies.stop()

    def impose(self, impairment: Impairment) -> int:
        """See ``Network``. A lost packet is late by the time after which TCP sends it again."""
        ways, served = sorted(impairment.ways), sorted(impairment.served)
        return self._proxies.impose(ways, impairment.loss, impairment.delay, served)

    def lift(self, number: int) -> int:
        """See ``Network``."""
        return self._proxies.lift(number)

    def reset(self, node: int, other: int) -> int:
        """Close the connections between two nodes, whichever of them made them; returns how many. Raises
        NetworkError."""
        return self._proxies.reset([(node, other), (other, node)])

    def forget(self, node: int, other: int) -> int:
        """Drop from now on what goes over the connection that ``node`` has made to ``other``, either way; neither is
        told, and new ones can be made. Returns how many there were. Raises NetworkError."""
        return self._proxies.forget([(node, other)])


class Namespaces(Network):
    """A namespace for each node, on a bridge in the network of the process that opens it; ``proxied``: proxies for
    delay too.

    The bridge is the clients' end.
    """

    cuts = True
    cuts_clients = True
    hosts = True
    BRIDGE = "txha0"
    SUBNET = "10.77.0"
    SERVICES = "10.78.0"
    """Where each host finds the proxies to what the others offer: addresses of its own loopback. The clients' end goes
    straight there."""

    def __init__(self, nodes: int, proxied: bool) -> None:
        self._count = nodes
        self._spaces: list[Namespace] = []
        self._imposed: dict[int, Impairment] = {}
        self._last = 0
        self._proxies = _ProxiesInside(nodes, self) if proxied else None
        self.delays = proxied
        self.ports: Sequence[int] = ()

    def host(self, node: int) -> str:
        """The node's address; that of the clients for ``CLIENTS``."""
        return f"{self.SUBNET}.{1 if node == CLIENTS else node + 11}"

    def route(self, node: int, other: int, port: int) -> tuple[str, int]:
        """Straight, or by way of a proxy in the node's own namespace."""
        if self._proxies is not None:
            return self._proxies.route(node, other, port)
        return super().route(node, other, port)

    def offer(self, ports: Sequence[int]) -> None:
        """See ``Network``."""
        self.ports = ports

    def service(self, node: int) -> str:
        """See ``Network``. Straight, or by way of a proxy in the namespace of who asks."""
        return self.host(node) if self._proxies is None else f"{self.SERVICES}.{node + 11}"

    def open(self) -> None:
        """See ``Network``."""
        run("ip", "link", "add", self.BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{self.host(CLIENTS)}/24", "dev", self.BRIDGE)
        run("ip", "link", "set", self.BRIDGE, "up")
        for node in range(self._count):
            space = Namespace()
            self._spaces.append(space)
            outer = f"txha-n{node}"
            run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", str(space.pid))
            run("ip", "link", "set", outer, "master", self.BRIDGE, "up")
            space.run("ip", "address", "add", f"{self.host(node)}/24", "dev", "eth0")
            space.run("ip", "link", "set", "eth0", "up")
            if self.ports and self._proxies is not None:
                run("ip", "route", "add", f"{self.service(node)}/32", "via", self.host(node))
                for other in range(self._count):
                    space.run("ip", "address", "add", f"{self.service(other)}/32", "dev", "lo")

    def start_proxies(self) -> None:
        """See ``Network``."""
        if self._proxies is not None:
            self._proxies.start_proxies()

    def close(self) -> None:
        """See ``Network``."""
        if self._proxies is not None:
            self._proxies.close()
        for space in self._spaces:
            space.close()
        self._spaces.clear()
        run("ip", "link", "delete", self.BRIDGE)

    def pid(self, node: int) -> int:
        """A process in the node's namespace."""
        return self._spaces[node].pid

    def command(self, node: int) -> list[str]:
        """See ``Network``."""
        return self._spaces[node].command()

    def call(self, node: int, function: Callable[[], T]) -> T:
        """See ``Network``."""
        return self._spaces[node].call(function)

    def impose(self, impairment: Impairment) -> int:
        """See ``Network``. Each impairment is a table of its own in each namespace that receives less by it."""
        if impairment.delay:
            assert self._proxies is not None, "delay takes proxies"
            return -self._proxies.impose(impairment)
        self._last += 1
        for receiver in _receivers(impairment.ways):
            self._spaces[receiver].run("nft", "-f", "-", text=self._table(self._last, receiver, impairment))
        self._imposed[self._last] = impairment
        return self._last

    def lift(self, number: int) -> int:
        """See ``Network``."""
        if number < 0:
            assert self._proxies is not None
            return self._proxies.lift(-number)
        hits = 0
        for receiver in _receivers(self._imposed.pop(number).ways):
            space, table = self._spaces[receiver], _table_name(number)
            for entry in json.loads(space.run("nft", "-j", "list", "table", "inet", table))["nftables"]:
                for part in entry.get("rule", {}).get("expr", ()):
                    hits += part.get("counter", {}).get("packets", 0)
            space.run("nft", "delete", "table", "inet", table)
        return hits

    def _table(self, number: int, receiver: int, impairment: Impairment) -> str:
        """What is dropped where a packet comes in. A node cannot drop what goes to the clients: so that is dropped
        where it goes out."""
        lot = "" if impairment.loss >= CUT else f"numgen random mod 1000 < {round(impairment.loss * 1000)} "
        rules = []
        for sender, to in sorted(impairment.ways):
            if to == receiver:
                # What a host sends to itself has an address of its loopback, whichever.
                origin = 'iifname "lo"' if sender == to else f"ip saddr {self.host(sender)}"
                for ports in _ports(sender, to, impairment.served):
                    rules.append(f"add rule inet {_table_name(number)} in {origin} {ports}{lot}counter drop")
            elif to == CLIENTS and sender == receiver:
                rules.append(f"add rule inet {_table_name(number)} out ip daddr {self.host(to)} {lot}counter drop")
        head = [
            f"add table inet {_table_name(number)}",
            f"add chain inet {_table_name(number)} in {{ type filter hook input priority 0; }}",
            f"add chain inet {_table_name(number)} out {{ type filter hook output priority 0; }}",
        ]
        return "\n".join([*head, *rules]) + "\n"


class _ProxiesInside(Proxied):
    """Proxies in the namespaces of the nodes that dial through them."""

    def __init__(self, nodes: int, spaces: Namespaces) -> None:
        super().__init__(nodes)
        self._nodes = nodes
        self._spaces = spaces

    def host(self, node: int) -> str:
        return self._spaces.host(node)

    def place(self, node: int) -> int | None:
        return self._spaces.pid(node)

    def offered(self) -> list[Link]:
        spaces, nodes = self._spaces, range(self._nodes)
        ways = [(node, other) for node in nodes for other in nodes if node != other]
        return [
            Link((node, other), (spaces.service(other), port), (spaces.host(other), port), spaces.pid(node))
            for node, other in ways
            for port in spaces.ports
        ]


def _receivers(ways: Iterable[Way]) -> set[int]:
    """The nodes in whose namespaces something is dropped."""
    return {sender if to == CLIENTS else to for sender, to in ways}


def _ports(sender: int, to: int, served: Iterable[tuple[int, int]]) -> list[str]:
    """What picks the packets between two nodes that belong to connections to one of ``served``; all if it is empty."""
    asked = [f"tcp dport {port} " for node, port in sorted(served) if node == to]
    answered = [f"tcp sport {port} " for node, port in sorted(served) if node == sender]
    return [*asked, *answered] if served else [""]


def _table_name(number: int) -> str:
    return f"txha{number}"
