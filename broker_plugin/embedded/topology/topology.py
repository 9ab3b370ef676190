"""Exchanges, queues by name, bindings, and where a message goes.

Durable and local parts stand side by side here: what is durable got here through the stream, the rest directly.
Routes are remembered until anything changes, so that a publisher's usual message costs one look-up.

Names and arguments stay in the memory of every node for as long as what they belong to. So their bytes are counted, and
beyond ``most`` nothing new is declared.

A queue or exchange that goes takes its bindings in one step, whose cost does not depend on how many they are: its
``Target`` is gone, and no message goes there any more. What routers hold of it is swept out later (``sweep``).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from broker_plugin.embedded.errors import located, not_found, precondition, refused
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.message_headers import headers_of
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.topology.exchange import TOPIC, Exchange, predeclared
from broker_plugin.embedded.topology.routers import Destination, Target
from broker_plugin.embedded.topology.sizes import binding_bytes, queue_bytes
from broker_plugin.embedded.unsupported import MAX_PRIORITY
from txobserver.octets import as_sent
from txobserver.vhosts import beside, local_name, vhost_of

EXPIRES = "x-expires"
"""The argument of queue.declare: in how many milliseconds the queue goes, if it is not used"""
ROUTES_KEPT = 10_000
"""More routes than this are not remembered: routing keys may be different for every message."""
ROUTED_KEPT = 1_000_000
"""Nor more queues in all of them: each route may lead to every queue."""
ARGUMENTS_A_BINDING = 8
"""A binding of so many arguments more counts as one more where routers are swept."""
MOST_BYTES = 256 << 20
"""That names and arguments may take, unless the node says otherwise"""


class Route(NamedTuple):
    """Where a message goes: numbers of durable queues, and queues of this node's memory."""

    durable: tuple[int, ...]
    local: tuple[LocalQueue, ...]


class Binding(NamedTuple):
    """A binding. Its first four fields tell it from others; ``arguments_key`` is the encoded form of ``arguments``.

    ``size``: the bytes that it is counted for.
    """

    source: str
    target: Destination
    key: str
    arguments_key: bytes
    arguments: Mapping[str, Any]
    durable: bool
    size: int = 0


_encode = msgspec.msgpack.Encoder(order="sorted").encode


def binding(source: str, target: Destination, key: str, arguments: Mapping[str, Any], durable: bool = True) -> Binding:
    """A binding of these parts."""
    return Binding(source, target, key, _encode(arguments), arguments, durable, binding_bytes(key, arguments))


class Group(dict[tuple[str, bytes], Binding]):
    """The bindings with both ends in common, by key and arguments. ``size``: bytes of all of them."""

    size = 0


class Topology:
    """What is declared at this node by full names, and ``routes``, the routes that are remembered.

    ``queues_in``: how many queues each virtual host has. ``prioritised``: names of the queues that were declared with
    priorities; ``expiring``: of those that were with an expiry. ``size``: bytes that all of it is counted for;
    ``most``: how many those may be. ``walked``: how many exchanges and bindings the last ``route`` has looked at;
    ``compared``: with how many headers of bindings it has compared those of the message. ``to_sweep`` is called when
    there is something to be swept out. ``alternate_of`` tells which alternate exchange a policy gives to an exchange
    that was declared without one.
    """

    def __init__(
        self,
        most: int = MOST_BYTES,
        to_sweep: Callable[[], object] = lambda: None,
        alternate_of: Callable[[str], str | None] = lambda name: None,
    ) -> None:
        self.most = most
        self._alternate_of = alternate_of
        self._to_sweep = to_sweep
        self.size = 0
        self.walked = self.compared = 0
        self.exchanges = predeclared()
        self.queues: dict[str, Queue] = {}
        self.prioritised: dict[str, None] = {}
        self.expiring: dict[str, None] = {}
        self.queues_in: Counter[str] = Counter()
        self.routes: dict[tuple[str, str], Route] = {}
        self._targets: dict[Destination, Target] = {}
        self._from: dict[str, dict[Destination, Group]] = {}
        self._to: dict[Destination, dict[str, Group]] = {}
        self._counts: dict[str, int] = {}
        self._swept: deque[tuple[Exchange, Target, Group]] = deque()
        self._routed = 0

    # -- look up

    def exchange(self, name: str) -> Exchange:
        """The exchange. 404 if there is none."""
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise not_found("exchange", name)
        return exchange

    def queue(self, name: str) -> Queue:
        """The queue. 404 if there is none."""
        queue = self.queues.get(name)
        if queue is None:
            raise not_found("queue", name)
        return queue

    def is_topic(self, name: str) -> bool:
        """Whether there is a topic exchange of this name."""
        exchange = self.exchanges.get(name)
        return exchange is not None and exchange.kind == TOPIC

    def known(self, wanted: Binding) -> Binding | None:
        """This binding as it stands, or None."""
        group = self._from.get(wanted.source, {}).get(wanted.target)
        return None if group is None else group.get((wanted.key, wanted.arguments_key))

    def bindings_from(self, exchange: str) -> int:
        """How many bindings lead away from this exchange."""
        return self._counts.get(exchange, 0)

    def reached(self, exchange: str) -> list[Destination]:
        """What bindings lead to from this exchange, also by way of others."""
        found: dict[Destination, None] = {}
        todo = [exchange]
        while todo:
            new = [target for target in self._from.get(todo.pop(), ()) if target not in found]
            found.update(dict.fromkeys(new))
            todo += [target.name for target in new if not target.to_queue]
        return list(found)

    # -- change

    def check_room(self, size: int) -> None:
        """406 if what is declared would be too much with so many bytes more."""
        if self.size + size > self.most:
            raise precondition(
                f"all queues, exchanges and bindings would take more than {self.most} bytes of memory with this one "
                "(memory.declared_bytes): delete what is not needed, or give shorter arguments"
            )

    def add_exchange(self, exchange: Exchange) -> None:
        """An exchange was declared."""
        self.exchanges[exchange.name] = exchange
        self.size += queue_bytes(exchange.name, exchange.arguments)
        self.routes.clear()

    def remove_exchange(self, name: str) -> list[str]:
        """An exchange was deleted, and every binding from and to it; returns the sources that lost a binding."""
        gone = self.exchanges.pop(name, None)
        self.routes.clear()
        if gone is not None:
            self.size -= queue_bytes(name, gone.arguments)
            for destination in list(self._from.get(name, ())):
                target = self._targets[destination]
                self._leave_over(gone, target, self._drop(name, destination))
        return self._remove_target(Destination(False, name))

    def add_queue(self, queue: Queue) -> None:
        """A queue was declared."""
        former = self.queues.get(queue.name)
        if former is not None:
            self.size -= queue_bytes(former.name, former.arguments)
        else:
            self.queues_in[vhost_of(queue.name)] += 1
        self.queues[queue.name] = queue
        self.size += queue_bytes(queue.name, queue.arguments)
        if MAX_PRIORITY in queue.arguments:
            self.prioritised[queue.name] = None
        self.expiring.pop(queue.name, None)
        if EXPIRES in queue.arguments:
            self.expiring[queue.name] = None
        self.routes.clear()

    def remove_queue(self, name: str) -> list[str]:
        """A queue was deleted, and every binding to it; returns the sources that lost a binding."""
        gone = self.queues.pop(name, None)
        if gone is not None:
            self.size -= queue_bytes(name, gone.arguments)
            self.queues_in.subtract((vhost_of(name),))
        self.prioritised.pop(name, None)
        self.expiring.pop(name, None)
        self.routes.clear()
        return self._remove_target(Destination(True, name))

    def bind(self, new: Binding) -> bool:
        """Add a binding; False if it was there, or if one of its ends is not."""
        there = self.queues if new.target.to_queue else self.exchanges
        if new.source not in self.exchanges or new.target.name not in there or self.known(new) is not None:
            return False
        self.routes.clear()
        target = self._targets.setdefault(new.target, Target(new.target))
        targets = self._from.setdefault(new.source, {})
        group = targets.get(new.target)
        if group is None:
            group = targets[new.target] = self._to.setdefault(new.target, {})[new.source] = Group()
        group[new.key, new.arguments_key] = new
        group.size += new.size
        self.size += new.size
        self._counts[new.source] = self._counts.get(new.source, 0) + 1
        source = self.exchanges[new.source]
        source.router.add(new.key, new.arguments, target)
        source.local_bindings += not new.durable
        return True

    def unbind(self, gone: Binding) -> bool:
        """Remove a binding; False if there was none."""
        there = self.known(gone)
        if there is None:
            return False
        self.routes.clear()
        exchange = self.exchanges[there.source]
        exchange.router.remove(there.key, there.arguments, self._targets[there.target])
        group = self._from[there.source][there.target]
        if len(group) == 1:
            self._drop(there.source, there.target)
        else:
            del group[there.key, there.arguments_key]
            group.size -= there.size
            self.size -= there.size
            exchange.local_bindings -= not there.durable
            self._counts[there.source] -= 1
        return True

    def sweep(self, most: int) -> int:
        """Let routers forget about so many bindings at most of what is gone; returns how many those were."""
        done = 0
        while self._swept and done < most:
            exchange, target, group = self._swept[0]
            while group and done < most:
                _, each = group.popitem()
                exchange.router.remove(each.key, each.arguments, target)
                done += 1 + len(each.arguments) // ARGUMENTS_A_BINDING
            if not group:
                self._swept.popleft()
        return done

    def _remove_target(self, destination: Destination) -> list[str]:
        """All that leads there goes with it; returns the sources that lost a binding."""
        target = self._targets.get(destination)
        sources = list(self._to.get(destination, ()))
        for source in sources:
            group, exchange = self._drop(source, destination), self.exchanges.get(source)
            if exchange is not None and target is not None:
                self._leave_over(exchange, target, group)
        if target is not None:
            target.gone = True
        return sources

    def _leave_over(self, exchange: Exchange, target: Target, group: Group) -> None:
        if not self._swept:
            self._to_sweep()
        self._swept.append((exchange, target, group))

    def _drop(self, source: str, destination: Destination) -> Group:
        """No binding leads from here to there any more; returns those that did. All of them are durable, or none."""
        targets, sources = self._from[source], self._to[destination]
        del sources[source]
        if not sources:
            del self._to[destination], self._targets[destination]
        group = targets.pop(destination)
        self.size -= group.size
        self._counts[source] -= len(group)
        if not targets:
            del self._from[source], self._counts[source]
        exchange = self.exchanges.get(source)
        if exchange is not None and not next(iter(group.values())).durable:
            exchange.local_bindings -= len(group)
        return group

    # -- route

    def route(self, exchange: str, key: str, properties: bytes) -> Route:
        """Where a client's message goes. 404 for a missing exchange, 403 for an internal one.

        ``key`` is made by ``text_of``, those of bindings are what their clients sent, which was text.
        """
        first = self.exchange(exchange)
        if first.internal:
            raise refused(f"cannot publish to internal {located('exchange', exchange)}")
        sent = as_sent(key)
        self.walked = self.compared = 0
        if not local_name(exchange):
            queue = self.queues.get(beside(exchange, sent))
            found, fixed = (Route((), ()) if queue is None else _route([queue])), True
        else:
            names, fixed = self._walk(first, sent, properties)
            found = _route(self.queues[name] for name in names if name in self.queues)
        if fixed:
            reached = len(found.durable) + len(found.local)
            self._routed = (self._routed if self.routes else 0) + reached
            if len(self.routes) >= ROUTES_KEPT or self._routed > ROUTED_KEPT:
                self.routes.clear()
                self._routed = reached
            self.routes[exchange, key] = found
        return found

    def _walk(self, first: Exchange, key: str, properties: bytes) -> tuple[dict[str, None], bool]:
        """Names of the queues reached, in order of discovery, and whether any message of this key reaches the same."""
        fixed = True
        queues: dict[str, None] = {}
        seen = {first.name}
        todo = [first]
        while todo:
            exchange = todo.pop()
            headers: Mapping[str, Any] = {}
            if exchange.router.needs_headers:
                fixed = False
                headers = headers_of(properties)
            hits = [hit for hit in exchange.router.match(key, headers) if not hit.gone]
            self.walked += 1 + len(hits) + exchange.router.tried
            self.compared += exchange.router.compared
            queues.update((hit.name, None) for hit in hits if hit.to_queue)
            names = [hit.name for hit in hits if not hit.to_queue]
            if not hits:
                alternate = exchange.alternate
                if alternate is None:
                    alternate = self._alternate_of(exchange.name)
                names += [] if alternate is None else [alternate]
            for name in names:
                if name not in seen and name in self.exchanges:
                    seen.add(name)
                    todo.append(self.exchanges[name])
        return queues, fixed


def _route(queues: Iterable[Queue]) -> Route:
    durable: list[int] = []
    local: list[LocalQueue] = []
    for queue in queues:
        if isinstance(queue, LocalQueue):
            local.append(queue)
        else:
            durable.append(queue.number)
    return Route(tuple(durable), tuple(local))
