"""How each exchange type finds its destinations (AMQP 0-9-1, 3.1.3; RabbitMQ for what that leaves open)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from broker_plugin.embedded.errors import precondition, type_name
from broker_plugin.embedded.topology.topic import TopicTrie


class Destination(NamedTuple):
    """Where a binding leads: a queue, or another exchange."""

    to_queue: bool
    name: str


class Router(Protocol):
    """The bindings of one exchange, indexed for its type."""

    needs_headers: bool

    def add(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        """One more binding."""
        ...

    def remove(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        """One binding less; it was added with this very mapping as its arguments."""
        ...

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        """The destinations of a message."""
        ...


class DirectRouter:
    """Bindings whose key equals the routing key."""

    needs_headers = False

    def __init__(self) -> None:
        self._targets: dict[str, dict[Destination, int]] = {}

    def add(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        targets = self._targets.setdefault(key, {})
        targets[target] = targets.get(target, 0) + 1

    def remove(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        targets = self._targets[key]
        targets[target] -= 1
        if not targets[target]:
            del targets[target]
            if not targets:
                del self._targets[key]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        return self._targets.get(key, ())


class FanoutRouter(DirectRouter):
    """Every binding, whatever its key."""

    def add(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        super().add("", arguments, target)

    def remove(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        super().remove("", arguments, target)

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        return self._targets.get("", ())


class TopicRouter:
    """Bindings whose pattern matches the routing key."""

    needs_headers = False

    def __init__(self) -> None:
        self._trie: TopicTrie[Destination] = TopicTrie()

    def add(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        self._trie.add(key, target)

    def remove(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        self._trie.remove(key, target)

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        return self._trie.match(key)


class HeadersRouter:
    """Bindings whose arguments match the message's headers."""

    needs_headers = True

    def __init__(self) -> None:
        self._bindings: list[tuple[Mapping[str, Any], Destination]] = []

    def add(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        self._bindings.append((arguments, target))

    def remove(self, key: str, arguments: Mapping[str, Any], target: Destination) -> None:
        # To be equal is not enough: {"a": 1} equals {"a": True} and is another binding.
        mine = (known is arguments and to == target for known, to in self._bindings)
        del self._bindings[list(mine).index(True)]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Destination]:
        return dict.fromkeys(to for arguments, to in self._bindings if headers_match(arguments, headers))


MATCH_MODES = ("all", "any", "all-with-x", "any-with-x")


def check_headers_binding(arguments: Mapping[str, Any]) -> None:
    """406 for an x-match that no headers exchange knows."""
    mode = arguments.get("x-match", "all")
    if not isinstance(mode, str):
        raise precondition(f"Invalid x-match field type {type_name(mode)} (value {mode}); expected longstr")
    if mode not in MATCH_MODES:
        raise precondition(f'Invalid x-match field value <<"{mode}">>; expected all, any, all-with-x, or any-with-x')


def headers_match(pattern: Mapping[str, Any], headers: Mapping[str, Any]) -> bool:
    """Whether headers match a binding's arguments. A pattern value None asks only for presence.

    Names that begin with ``x-`` are left out unless the mode ends in ``-with-x``; ``x-match`` always is.
    """
    mode = pattern.get("x-match", "all")
    with_x = mode.endswith("-with-x")
    wanted = [
        (name, value) for name, value in pattern.items() if name != "x-match" and (with_x or not name.startswith("x-"))
    ]
    hits = (name in headers and (value is None or _same(value, headers[name])) for name, value in wanted)
    return any(hits) if mode.startswith("any") else all(hits)


def _same(one: object, other: object) -> bool:
    """Equal in AMQP's sense: a value of another type is another value (True is not 1, nor is 1.0)."""
    return type(one) is type(other) and one == other


ROUTERS: dict[str, type[DirectRouter] | type[TopicRouter] | type[HeadersRouter]] = {
    "direct": DirectRouter,
    "fanout": FanoutRouter,
    "topic": TopicRouter,
    "headers": HeadersRouter,
}
