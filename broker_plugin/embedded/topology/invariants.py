"""What must be so of exchanges, queues by name, and bindings (``txobserver.invariants``)."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.topology.exchange import KINDS, PREDECLARED
from broker_plugin.embedded.topology.name_locks import NameLocks
from broker_plugin.embedded.topology.routers import Destination
from broker_plugin.embedded.topology.sizes import queue_bytes
from broker_plugin.embedded.topology.topology import ROUTES_KEPT, Group, Topology
from txobserver.invariants import WALKED, differ
from txobserver.vhosts import vhost_of


def check_topology(topology: Topology) -> None:
    """What is declared."""
    assert "" in topology.exchanges, "P12: the default exchange is gone"
    assert topology.exchanges.keys() >= PREDECLARED.keys(), "P12: an exchange is gone that is always there"
    assert len(topology.routes) <= ROUTES_KEPT, f"P12: {len(topology.routes)} routes are remembered"
    away, towards = sum(map(len, topology._from.values())), sum(map(len, topology._to.values()))
    assert away == towards, f"P5: bindings lead away in {away} groups, and somewhere in {towards}"
    assert topology._counts.keys() == topology._from.keys(), "P5: bindings are counted of other exchanges"
    assert topology._targets.keys() == topology._to.keys(), "P5: messages go elsewhere than bindings lead"


def check_topology_deep(topology: Topology, numbered: dict[int, DurableQueue]) -> None:
    """Each exchange, queue and binding, and each route that is remembered."""
    for name, exchange in topology.exchanges.items():
        assert exchange.name == name, f"P5: the exchange {exchange.name!r} goes by {name!r}"
        assert exchange.kind in KINDS, f"P5: the exchange {name!r} is of the kind {exchange.kind!r}"
        groups = topology._from.get(name, {}).values()
        counted = topology.bindings_from(name)
        assert counted == sum(map(len, groups)), f"P5: {counted} bindings from {name!r} are counted"
        local = sum(not each.durable for group in groups for each in group.values())
        assert exchange.local_bindings == local, f"P12: {local} bindings from {name!r} are not durable"
        assert exchange.durable or local == topology.bindings_from(name), f"P2: a durable binding from {name!r}"
    for name, queue in topology.queues.items():
        assert queue.name == name, f"P5: the queue {queue.name!r} goes by {name!r}"
        assert not queue.deleted, f"P4: the queue {name!r} is gone, and is found"
        assert not queue.durable or numbered.get(queue.number) is queue, f"P5: {name!r} is another queue for the stream"
    every = ((source, to, group) for source, ends in topology._from.items() for to, group in ends.items())
    for source, target, group in islice(every, WALKED):
        check_group(topology, source, target, group)
    declared = sum(queue_bytes(each.name, each.arguments) for each in topology.queues.values())
    own = (each for each in topology.exchanges.values() if each.name not in PREDECLARED and each.name)
    there = Counter(map(vhost_of, topology.queues))
    assert topology.queues_in == there, f"P12: {topology.queues_in} queues are counted, of {dict(there)}"
    declared += sum(queue_bytes(each.name, each.arguments) for each in own)
    declared += sum(group.size for ends in topology._from.values() for group in ends.values())
    assert topology.size == declared, f"P12: {topology.size} bytes of names and arguments are counted, of {declared}"
    assert all(topology._from.values()), "P12: an exchange is noted that nothing leads away from"
    assert all(topology._to.values()), "P12: a destination is noted that nothing leads to"
    for (exchange_name, _), route in list(topology.routes.items())[:WALKED]:
        assert exchange_name in topology.exchanges, f"P5: a route is remembered from {exchange_name!r}"
        assert differ(route.durable), f"P3: a route from {exchange_name!r} leads to a queue twice"
        assert differ(map(id, route.local)), f"P3: a route from {exchange_name!r} leads to a queue twice"
        assert set(route.durable) <= numbered.keys(), f"P5: a route from {exchange_name!r} leads to no queue"
        assert not any(each.deleted for each in route.local), f"P5: a route from {exchange_name!r} leads to no queue"


def check_group(topology: Topology, source: str, target: Destination, group: Group) -> None:
    """The bindings from one exchange to one queue or exchange."""
    assert group, f"P12: no binding leads from {source!r} to {target.name!r}, and it is noted"
    assert source in topology.exchanges, f"P5: a binding leads from {source!r}, which is not there"
    there = topology.queues if target.to_queue else topology.exchanges
    assert target.name in there, f"P5: a binding leads to {target.name!r}, which is not there"
    assert topology._to[target].get(source) is group, f"P5: the bindings to {target.name!r} would stay"
    assert not topology._targets[target].gone, f"P5: no message comes to {target.name!r}, which is there"
    assert len({each.durable for each in group.values()}) == 1, f"P2: some bindings from {source!r} are durable"
    assert group.size == sum(each.size for each in group.values()), f"P12: bytes of bindings from {source!r} are lost"
    for (key, arguments), each in islice(group.items(), WALKED):
        assert each[:4] == (source, target, key, arguments), f"P5: a binding from {each.source!r} goes by another name"


def check_locks(locks: NameLocks) -> None:
    """Names that are held."""
    for name, waiting in locks._waiting.items():
        assert name is not None, "P12: the name of nothing is held"
        assert all(map(callable, waiting)), f"P12: what waits for {name!r} can never go on"
