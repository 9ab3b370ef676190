"""What must be so of exchanges, queues by name, and bindings (``txobserver.invariants``)."""

from __future__ import annotations

from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.topology.exchange import KINDS, PREDECLARED
from broker_plugin.embedded.topology.name_locks import NameLocks
from broker_plugin.embedded.topology.topology import ROUTES_KEPT, Topology
from txobserver.invariants import WALKED, differ


def check_topology(topology: Topology) -> None:
    """What is declared."""
    assert "" in topology.exchanges, "P12: the default exchange is gone"
    assert topology.exchanges.keys() >= PREDECLARED.keys(), "P12: an exchange is gone that is always there"
    assert len(topology.routes) <= ROUTES_KEPT, f"P12: {len(topology.routes)} routes are remembered"
    away = sum(map(len, topology._from.values()))
    assert away == len(topology._bindings), f"P5: {away} of {len(topology._bindings)} bindings lead away"
    towards = sum(map(len, topology._to.values()))
    assert towards == len(topology._bindings), f"P5: {towards} of {len(topology._bindings)} bindings lead somewhere"


def check_topology_deep(topology: Topology, numbered: dict[int, DurableQueue]) -> None:
    """Each exchange, queue and binding, and each route that is remembered."""
    for name, exchange in topology.exchanges.items():
        assert exchange.name == name, f"P5: the exchange {exchange.name!r} goes by {name!r}"
        assert exchange.kind in KINDS, f"P5: the exchange {name!r} is of the kind {exchange.kind!r}"
        local = sum(not each.durable for each in topology._from.get(name, {}).values())
        assert exchange.local_bindings == local, f"P12: {local} bindings from {name!r} are not durable"
        assert exchange.durable or local == topology.bindings_from(name), f"P2: a durable binding from {name!r}"
    for name, queue in topology.queues.items():
        assert queue.name == name, f"P5: the queue {queue.name!r} goes by {name!r}"
        assert not queue.deleted, f"P4: the queue {name!r} is gone, and is found"
        assert not queue.durable or numbered.get(queue.number) is queue, f"P5: {name!r} is another queue for the stream"
    for identity, each in list(topology._bindings.items())[:WALKED]:
        assert each.identity == identity, f"P5: a binding from {each.source!r} goes by {identity}"
        assert each.source in topology.exchanges, f"P5: a binding leads from {each.source!r}, which is not there"
        there = topology.queues if each.target.to_queue else topology.exchanges
        assert each.target.name in there, f"P5: a binding leads to {each.target.name!r}, which is not there"
        assert topology._from[each.source].get(identity) is each, f"P5: a binding from {each.source!r} is not followed"
        assert topology._to[each.target].get(identity) is each, f"P5: a binding to {each.target.name!r} would stay"
    assert all(topology._from.values()), "P12: an exchange is noted that nothing leads away from"
    assert all(topology._to.values()), "P12: a destination is noted that nothing leads to"
    for (exchange_name, _), route in list(topology.routes.items())[:WALKED]:
        assert exchange_name in topology.exchanges, f"P5: a route is remembered from {exchange_name!r}"
        assert differ(route.durable), f"P3: a route from {exchange_name!r} leads to a queue twice"
        assert differ(map(id, route.local)), f"P3: a route from {exchange_name!r} leads to a queue twice"
        assert set(route.durable) <= numbered.keys(), f"P5: a route from {exchange_name!r} leads to no queue"
        assert not any(each.deleted for each in route.local), f"P5: a route from {exchange_name!r} leads to no queue"


def check_locks(locks: NameLocks) -> None:
    """Names that are held."""
    for name, waiting in locks._waiting.items():
        assert name is not None, "P12: the name of nothing is held"
        assert all(map(callable, waiting)), f"P12: what waits for {name!r} can never go on"
