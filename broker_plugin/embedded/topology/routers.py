"""How each exchange type finds its destinations (AMQP 0-9-1, 3.1.3; RabbitMQ for what that leaves open)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from broker_plugin.embedded.errors import precondition, type_name
from broker_plugin.embedded.topology.topic import TopicTrie


class Destination(NamedTuple):
    """Where a binding leads: a queue, or another exchange."""

    to_queue: bool
    name: str


class Target:
    """A destination for as long as it is there. One of the same name that is declared later is another one.

    ``gone``: it was deleted; what routers still hold of it means nothing, and is swept out piece by piece.
    """

    __slots__ = ("gone", "name", "to_queue")

    def __init__(self, destination: Destination) -> None:
        self.to_queue, self.name = destination
        self.gone = False


class Router(Protocol):
    """The bindings of one exchange, indexed for its type.

    ``tried``: how many bindings, or nodes of patterns, the last match has looked at beside what it has found;
    ``compared``: with how many headers of bindings those of the message were compared.
    """

    needs_headers: bool
    tried: int
    compared: int

    def add(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        """One more binding."""
        ...

    def remove(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        """One binding less; it was added with this very mapping as its arguments."""
        ...

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Target]:
        """Where a message goes; some of it may be gone."""
        ...


class DirectRouter:
    """Bindings whose key equals the routing key."""

    needs_headers = False
    compared = 0

    def __init__(self) -> None:
        self.tried = 0
        self._targets: dict[str, dict[Target, int]] = {}

    def add(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        targets = self._targets.setdefault(key, {})
        targets[target] = targets.get(target, 0) + 1

    def remove(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        targets = self._targets[key]
        targets[target] -= 1
        if not targets[target]:
            del targets[target]
            if not targets:
                del self._targets[key]

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Target]:
        return self._targets.get(key, ())


class FanoutRouter(DirectRouter):
    """Every binding, whatever its key."""

    def add(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        super().add("", arguments, target)

    def remove(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        super().remove("", arguments, target)

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Target]:
        return self._targets.get("", ())


class TopicRouter:
    """Bindings whose pattern matches the routing key."""

    needs_headers = False
    compared = 0

    def __init__(self) -> None:
        self.tried = 0
        self._trie: TopicTrie[Target] = TopicTrie()

    def add(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        self._trie.add(key, target)

    def remove(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        self._trie.remove(key, target)

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Target]:
        found = self._trie.match(key)
        self.tried = self._trie.visited
        return found


class HeadersRouter:
    """Bindings whose arguments match the message's headers, each indexed by a header that it cannot do without.

    ``tried``: how many bindings the last match has compared with the headers, ``compared``: of how many headers.
    """

    needs_headers = True

    def __init__(self) -> None:
        self.tried = 0
        self.compared = 0
        self._bindings: dict[tuple[Target, str, int], HeadersPattern] = {}
        self._by_header: dict[Hint, dict[int, HeadersPattern]] = {}
        self._always: dict[int, HeadersPattern] = {}
        self._hints: dict[Hint, Hint] = {}
        self._uses: dict[Hint, int] = {}

    def add(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        added = HeadersPattern(arguments, target, self._same_hint)
        self._bindings[target, key, id(arguments)] = added
        if added.always:
            self._always[id(added)] = added
        hints = added.hints
        if hints and not added.any:
            hints = [min(hints, key=lambda hint: len(self._by_header.get(hint, ())))]
        for hint in hints:
            self._by_header.setdefault(hint, {})[id(added)] = added
        added.hints = hints

    def remove(self, key: str, arguments: Mapping[str, Any], target: Target) -> None:
        # To be equal is not enough: {"a": 1} equals {"a": True} and is another binding.
        gone = self._bindings.pop((target, key, id(arguments)))
        self._always.pop(id(gone), None)
        for hint in gone.whole:
            self._uses[hint] -= 1
            if not self._uses[hint]:
                del self._uses[hint], self._hints[hint]
        for hint in gone.hints:
            del self._by_header[hint][id(gone)]
            if not self._by_header[hint]:
                del self._by_header[hint]

    def _same_hint(self, hint: Hint) -> Hint:
        """One object for all that are equal: sets of them are compared by their addresses, and not value by value."""
        kept = self._hints.setdefault(hint, hint)
        self._uses[kept] = self._uses.get(kept, 0) + 1
        return kept

    def match(self, key: str, headers: Mapping[str, Any]) -> Iterable[Target]:
        found = dict.fromkeys(pattern.target for pattern in self._always.values())
        self.tried = self.compared = 0
        there = Headers(headers, self._hints)
        for name, value in headers.items():
            for hint in {(name, None, None), (name, type(value), None), _hint(name, value)}:
                for pattern in self._by_header.get(hint, {}).values():
                    if pattern.target not in found:
                        self.tried += 1
                        self.compared += pattern.count
                        if pattern.matches(there):
                            found[pattern.target] = None
        return found


MATCH_MODES = ("all", "any", "all-with-x", "any-with-x")
Hint = tuple[str, type | None, Any]
"""A header's name, its value's type (None: any value will do), and its value (None: any of that type is compared)"""


def check_headers_binding(arguments: Mapping[str, Any]) -> None:
    """406 for an x-match that no headers exchange knows."""
    mode = arguments.get("x-match", "all")
    if not isinstance(mode, str):
        raise precondition(f"Invalid x-match field type {type_name(mode)} (value {mode}); expected longstr")
    if mode not in MATCH_MODES:
        raise precondition(f'Invalid x-match field value <<"{mode}">>; expected all, any, all-with-x, or any-with-x')


class Headers:
    """The headers of a message. ``whole``: those of them that some binding asks for, of ``known``."""

    def __init__(self, headers: Mapping[str, Any], known: Mapping[Hint, Hint]) -> None:
        self.values = headers
        hints = (known.get(_hint(name, value)) for name, value in headers.items())
        self.whole = frozenset(hint for hint in hints if hint is not None)


class HeadersPattern:
    """A binding's arguments, as they are compared with headers. A value None asks only for presence.

    Names that begin with ``x-`` are left out unless the mode ends in ``-with-x``; ``x-match`` always is.
    ``any``: one header is enough; ``hints``: headers of which a message that matches has one (``any``), or each.
    ``count``: of how many. A client can ask for thousands: those that can be in a set are compared as one, ``whole``.
    """

    __slots__ = ("_others", "always", "any", "count", "hints", "target", "whole")

    def __init__(self, arguments: Mapping[str, Any], target: Target, same: Callable[[Hint], Hint]) -> None:
        mode = arguments.get("x-match", "all")
        with_x = mode.endswith("-with-x")
        self.any = mode.startswith("any")
        self.target = target
        wanted = [
            (name, value)
            for name, value in arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        ]
        self.count = len(wanted)
        self.always = not wanted and not self.any
        self.hints = [_hint(name, value) for name, value in wanted]
        self.whole = frozenset(same(hint) for hint in self.hints if hint[2] is not None)
        self._others = [each for each, hint in zip(wanted, self.hints, strict=True) if hint[2] is None]

    def matches(self, headers: Headers) -> bool:
        """Whether a message with these headers goes there."""
        values = headers.values
        hits = (name in values and (value is None or _same(value, values[name])) for name, value in self._others)
        if self.any:
            return not self.whole.isdisjoint(headers.whole) or any(hits)
        return self.whole <= headers.whole and all(hits)


def _hint(name: str, value: object) -> Hint:
    """Under which a binding that asks for this header is found, or nothing else that equals it."""
    if value is None:
        return name, None, None
    try:
        hash(value)
    except TypeError:
        return name, type(value), None
    return name, type(value), value


def _same(one: object, other: object) -> bool:
    """Equal in AMQP's sense: a value of another type is another value (True is not 1, nor is 1.0)."""
    return type(one) is type(other) and one == other


ROUTERS: dict[str, type[DirectRouter] | type[TopicRouter] | type[HeadersRouter]] = {
    "direct": DirectRouter,
    "fanout": FanoutRouter,
    "topic": TopicRouter,
    "headers": HeadersRouter,
}
