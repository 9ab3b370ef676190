"""Exchanges and bindings in plain lists, and where a message goes by them: part of the model of a broker."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any


class Refused(Exception):
    """The reply code of what a client may not do."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True)
class Exchange:
    kind: str
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    alternate: str | None = None


@dataclass
class Binding:
    """Bindings are one if they agree in all of this, to the types of their arguments."""

    source: str
    to_queue: bool
    target: str
    key: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def same(self, other: Binding) -> bool:
        return self == other and repr(sorted(self.arguments.items())) == repr(sorted(other.arguments.items()))


def topic_matches(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return any(topic_matches(pattern[1:], key[at:]) for at in range(len(key) + 1))
    return bool(key) and pattern[0] in ("*", key[0]) and topic_matches(pattern[1:], key[1:])


def headers_match(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    hits = [
        name in headers and (value is None or (type(value), value) == (type(headers[name]), headers[name]))
        for name, value in arguments.items()
        if name != "x-match"
    ]
    return any(hits) if arguments.get("x-match") == "any" else all(hits)


def words(text: str) -> list[str]:
    return text.split(".") if text else []


class Routing:
    """What is declared beside queues."""

    def __init__(self) -> None:
        self.exchanges = {f"amq.{kind}": Exchange(kind) for kind in ("direct", "fanout", "topic", "headers")}
        self.bindings: list[Binding] = []

    def declare(self, name: str, wanted: Exchange) -> None:
        if self.exchanges.setdefault(name, wanted) != wanted:
            raise Refused(406)

    def delete(self, name: str, if_unused: bool = False) -> None:
        if if_unused and any(each.source == name for each in self.bindings):
            raise Refused(406)
        if self.exchanges.pop(name, None) is not None:
            self.unbind(b for b in self.bindings if name in (b.source, None if b.to_queue else b.target))

    def check_ends(self, wanted: Binding, queues: Collection[str]) -> None:
        if wanted.source not in self.exchanges or wanted.target not in (queues if wanted.to_queue else self.exchanges):
            raise Refused(404)

    def bind(self, wanted: Binding) -> None:
        if not any(wanted.same(each) for each in self.bindings):
            self.bindings.append(wanted)

    def unbind(self, gone: Iterable[Binding]) -> None:
        """These bindings go, and with them each auto-delete exchange that lost its last one."""
        doomed = list(gone)
        self.bindings = [each for each in self.bindings if not any(each is other for other in doomed)]
        for source in {each.source for each in doomed}:
            exchange = self.exchanges.get(source)
            if exchange and exchange.auto_delete and not any(each.source == source for each in self.bindings):
                self.delete(source)

    def queue_deleted(self, queue: str) -> None:
        self.unbind(each for each in self.bindings if each.to_queue and each.target == queue)

    def keep_durable(self, gone: Collection[str]) -> None:
        """What a take-over leaves: these queues have gone, and every exchange that is not durable."""
        for queue in gone:
            self.queue_deleted(queue)
        for name in [name for name, each in self.exchanges.items() if not each.durable]:
            self.delete(name)

    def route(self, exchange: str, key: str, headers: dict[str, Any]) -> set[str]:
        """Names of the queues that a message reaches."""
        if exchange not in self.exchanges:
            raise Refused(404)
        if self.exchanges[exchange].internal:
            raise Refused(403)
        found: set[str] = set()
        seen: set[str] = set()
        todo = [exchange]
        while todo:
            name = todo.pop()
            if name in seen or name not in self.exchanges:
                continue
            seen.add(name)
            hits = [each for each in self.bindings if each.source == name and self._matches(each, key, headers)]
            found |= {each.target for each in hits if each.to_queue}
            todo += [each.target for each in hits if not each.to_queue]
            alternate = self.exchanges[name].alternate
            if not hits and alternate:
                todo.append(alternate)
        return found

    def _matches(self, binding: Binding, key: str, headers: dict[str, Any]) -> bool:
        kind = self.exchanges[binding.source].kind
        if kind == "headers":
            return headers_match(binding.arguments, headers)
        if kind == "topic":
            return topic_matches(words(binding.key), words(key))
        return kind == "fanout" or binding.key == key
