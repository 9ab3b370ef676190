"""Topic patterns: words separated by dots, ``*`` for exactly one word, ``#`` for any number of words, also none."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


def words(text: str) -> list[str]:
    """The words of a routing key or pattern. The empty text has none (RabbitMQ's reading)."""
    return text.split(".") if text else []


class _Node(Generic[T]):
    __slots__ = ("children", "targets")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.targets: dict[T, int] = {}


class TopicTrie(Generic[T]):
    """Targets by pattern. The cost of a match depends on the patterns that can match, not on how many there are."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, target: T) -> None:
        """One more binding of ``target`` with this pattern."""
        node = self._root
        for word in words(pattern):
            node = node.children.setdefault(word, _Node())
        node.targets[target] = node.targets.get(target, 0) + 1

    def remove(self, pattern: str, target: T) -> None:
        """One binding less. KeyError if there was none."""
        path = [self._root]
        parts = words(pattern)
        for word in parts:
            path.append(path[-1].children[word])
        targets = path[-1].targets
        targets[target] -= 1
        if not targets[target]:
            del targets[target]
        for node, word in zip(reversed(path[:-1]), reversed(parts), strict=True):
            child = node.children[word]
            if child.children or child.targets:
                break
            del node.children[word]

    def match(self, routing_key: str) -> list[T]:
        """Every target with a pattern that this routing key matches, each once."""
        found: dict[T, None] = {}
        key = words(routing_key)
        seen: set[tuple[int, int]] = set()
        stack = [(self._root, 0)]
        while stack:
            node, at = stack.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == len(key):
                found.update(dict.fromkeys(node.targets))
            else:
                for name in (key[at], "*"):
                    if child := node.children.get(name):
                        stack.append((child, at + 1))
            if several := node.children.get("#"):
                stack.extend((several, after) for after in range(at, len(key) + 1))
        return list(found)
