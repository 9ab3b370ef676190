"""Topic patterns: words separated by dots, ``*`` for exactly one word, ``#`` for any number of words, also none.

A match reads the key once, word by word, and holds the nodes of the trie that what has been read leads to. A node
behind a ``#`` stays among them to the end, and is entered once. So a match costs at most the words of the key times the
nodes of the trie, whatever a client binds and publishes (``a_pattern_of_many_hashes``).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


def words(text: str) -> list[str]:
    """The words of a routing key or pattern. The empty text has none (RabbitMQ's reading)."""
    return text.split(".") if text else []


def canonical(pattern: str) -> list[str]:
    """The words of a pattern that matches the same keys: where wildcards stand together, first each ``*``, then one
    ``#``. So a ``#`` is the last word, or a word of the key must follow it.
    """
    found: list[str] = []
    several = False
    for word in words(pattern):
        if word == "#":
            several = True
        elif word == "*":
            found.append(word)
        else:
            if several:
                found.append("#")
                several = False
            found.append(word)
    if several:
        found.append("#")
    return found


class _Node(Generic[T]):
    __slots__ = ("children", "targets")

    def __init__(self) -> None:
        self.children: dict[str, _Node[T]] = {}
        self.targets: dict[T, int] = {}


class TopicTrie(Generic[T]):
    """Targets by pattern. The cost of a match depends on the patterns that can match, not on how many there are.

    ``visited``: how many nodes the last match has looked at.
    """

    def __init__(self) -> None:
        self.visited = 0
        self._root: _Node[T] = _Node()

    def add(self, pattern: str, target: T) -> None:
        """One more binding of ``target`` with this pattern."""
        node = self._root
        for word in canonical(pattern):
            node = node.children.setdefault(word, _Node())
        node.targets[target] = node.targets.get(target, 0) + 1

    def remove(self, pattern: str, target: T) -> None:
        """One binding less. KeyError if there was none."""
        path = [self._root]
        parts = canonical(pattern)
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
        key = words(routing_key)
        lasting: _Lasting[T] = _Lasting(key)
        here = [self._root]
        lasting.enter(here)
        self.visited = 1
        for word in key:
            behind = lasting.waiting.get(word, ())
            after = list(behind)
            for node in here:
                if word not in ("*", "#") and (child := node.children.get(word)) is not None:
                    after.append(child)
                if (child := node.children.get("*")) is not None:
                    after.append(child)
            self.visited += len(here) + len(behind)
            here = after
            lasting.enter(here)
        found: dict[T, None] = {}
        for node in (*here, *lasting.nodes):
            found.update(dict.fromkeys(node.targets))
        self.visited += lasting.entered
        return list(found)


class _Lasting(Generic[T]):
    """The nodes behind a ``#`` that a match has come to: whatever is read of the key, the match stays there.

    ``waiting``: where each word of the key leads from any of them. ``entered`` counts what it took to note that.
    """

    def __init__(self, key: list[str]) -> None:
        self.nodes: list[_Node[T]] = []
        self.waiting: dict[str, list[_Node[T]]] = {}
        self.entered = 0
        self._seen: set[int] = set()
        self._words = set(key)

    def enter(self, here: list[_Node[T]]) -> None:
        """The match has come to these nodes; behind their ``#`` it stays."""
        for node in here:
            several = node.children.get("#")
            if several is None or id(several) in self._seen:
                continue
            self._seen.add(id(several))
            self.nodes.append(several)
            children = several.children
            wanted = self._words if len(self._words) < len(children) else children.keys() & self._words
            self.entered += 1 + min(len(self._words), len(children))
            for word in wanted:
                child = children.get(word)
                if child is not None:
                    self.waiting.setdefault(word, []).append(child)
