"""Exchanges, queues by name, bindings, and where a message goes.

Durable and local parts stand side by side here: what is durable got here through the stream, the rest directly.
Routes are remembered until anything changes, so that a publisher's usual message costs one look-up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from broker_plugin.embedded.errors import located, not_found, refused
from broker_plugin.embedded.queues.local_queue import LocalQueue
from broker_plugin.embedded.queues.message_headers import headers_of
from broker_plugin.embedded.queues.queue import Queue
from broker_plugin.embedded.topology.exchange import Exchange, predeclared
from broker_plugin.embedded.topology.routers import Destination
from txobserver.octets import as_sent

ROUTES_KEPT = 10_000
"""More routes than this are not remembered: routing keys may be different for every message."""


class Route(NamedTuple):
    """Where a message goes: numbers of durable queues, and queues of this node's memory."""

    durable: tuple[int, ...]
    local: tuple[LocalQueue, ...]


Identity = tuple[str, Destination, str, bytes]


class Binding(NamedTuple):
    """A binding and what tells it from others; ``arguments_key`` is the encoded form of ``arguments``."""

    source: str
    target: Destination
    key: str
    arguments_key: bytes
    arguments: Mapping[str, Any]
    durable: bool

    @property
    def identity(self) -> Identity:
        """Bindings that agree in this are one binding."""
        return self[:4]


_encode = msgspec.msgpack.Encoder(order="sorted").encode


def binding(source: str, target: Destination, key: str, arguments: Mapping[str, Any], durable: bool = True) -> Binding:
    """A binding of these parts."""
    return Binding(source, target, key, _encode(arguments), arguments, durable)


class Topology:
    """What is declared at this node, and ``routes``, the routes that are remembered."""

    def __init__(self) -> None:
        self.exchanges = predeclared()
        self.queues: dict[str, Queue] = {}
        self.routes: dict[tuple[str, str], Route] = {}
        self._bindings: dict[Identity, Binding] = {}
        self._from: dict[str, dict[Identity, Binding]] = {}
        self._to: dict[Destination, dict[Identity, Binding]] = {}

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

    def known(self, wanted: Binding) -> Binding | None:
        """This binding as it stands, or None."""
        return self._bindings.get(wanted.identity)

    def bindings_from(self, exchange: str) -> int:
        """How many bindings lead away from this exchange."""
        return len(self._from.get(exchange, ()))

    def reached(self, exchange: str) -> list[Destination]:
        """What bindings lead to from this exchange, also by way of others."""
        found: dict[Destination, None] = {}
        todo = [exchange]
        while todo:
            new = [each.target for each in self._from.get(todo.pop(), {}).values() if each.target not in found]
            found.update(dict.fromkeys(new))
            todo += [target.name for target in dict.fromkeys(new) if not target.to_queue]
        return list(found)

    # -- change

    def add_exchange(self, exchange: Exchange) -> None:
        """An exchange was declared."""
        self.exchanges[exchange.name] = exchange
        self.routes.clear()

    def remove_exchange(self, name: str) -> list[str]:
        """An exchange was deleted, and every binding from and to it; returns the sources that lost a binding."""
        self.exchanges.pop(name, None)
        self.routes.clear()
        for each in list(self._from.get(name, {}).values()):
            self._unbind(each)
        return self._remove_target(Destination(False, name))

    def add_queue(self, queue: Queue) -> None:
        """A queue was declared."""
        self.queues[queue.name] = queue
        self.routes.clear()

    def remove_queue(self, name: str) -> list[str]:
        """A queue was deleted, and every binding to it; returns the sources that lost a binding."""
        self.queues.pop(name, None)
        self.routes.clear()
        return self._remove_target(Destination(True, name))

    def bind(self, new: Binding) -> bool:
        """Add a binding; False if it was there, or if one of its ends is not."""
        there = self.queues if new.target.to_queue else self.exchanges
        if new.identity in self._bindings or new.source not in self.exchanges or new.target.name not in there:
            return False
        self.routes.clear()
        for index in (self._bindings, self._from.setdefault(new.source, {}), self._to.setdefault(new.target, {})):
            index[new.identity] = new
        source = self.exchanges[new.source]
        source.router.add(new.key, new.arguments, new.target)
        source.local_bindings += not new.durable
        return True

    def unbind(self, gone: Binding) -> bool:
        """Remove a binding; False if there was none."""
        there = self._bindings.get(gone.identity)
        if there is None:
            return False
        self.routes.clear()
        self._unbind(there)
        return True

    def _remove_target(self, target: Destination) -> list[str]:
        doomed = list(self._to.get(target, {}).values())
        for each in doomed:
            self._unbind(each)
        return list(dict.fromkeys(each.source for each in doomed))

    def _unbind(self, gone: Binding) -> None:
        del self._bindings[gone.identity]
        del self._from[gone.source][gone.identity]
        if not self._from[gone.source]:
            del self._from[gone.source]
        del self._to[gone.target][gone.identity]
        if not self._to[gone.target]:
            del self._to[gone.target]
        exchange = self.exchanges.get(gone.source)
        if exchange is not None:
            exchange.router.remove(gone.key, gone.arguments, gone.target)
            exchange.local_bindings -= not gone.durable

    # -- route

    def route(self, exchange: str, key: str, properties: bytes) -> Route:
        """Where a client's message goes. 404 for a missing exchange, 403 for an internal one.

        ``key`` is made by ``text_of``, those of bindings are what their clients sent, which was text.
        """
        first = self.exchange(exchange)
        if first.internal:
            raise refused(f"cannot publish to internal {located('exchange', exchange)}")
        sent = as_sent(key)
        if not exchange:
            queue = self.queues.get(sent)
            found, fixed = (Route((), ()) if queue is None else _route([queue])), True
        else:
            names, fixed = self._walk(first, sent, properties)
            found = _route(self.queues[name] for name in names if name in self.queues)
        if fixed:
            if len(self.routes) >= ROUTES_KEPT:
                self.routes.clear()
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
            hits = list(exchange.router.match(key, headers))
            queues.update((hit.name, None) for hit in hits if hit.to_queue)
            names = [hit.name for hit in hits if not hit.to_queue]
            if not hits and exchange.alternate is not None:
                names.append(exchange.alternate)
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
