"""The one stream that several logs are copies of, and which part of it each of them can be held to.

A log may begin late (retention, or a store that was copied) and end early (lag, a crash). It may end in events that a
later generation has overwritten, because its node has not been back since. What follows from it:

- The log that ends in the greatest generation says which events of earlier generations count: its primary went on
  from them (protocol.md, "Take-over"). Before that log begins, another one that holds the same position speaks for it.
- A node is compared from where its log begins to its last event that belongs to that stream. What it holds behind is
  a tail that was cut off from the others; no promise is about it, as long as none of it had passed the commit point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Span(NamedTuple):
    """The events of one generation in one log, by the sequences of the first and the last."""

    node: str
    generation: int
    first: int
    last: int


class Reach(NamedTuple):
    """What of a node's log is compared: from ``first`` to ``last``. Behind it stands a tail up to ``end``."""

    node: str
    first: int
    last: int
    end: int

    @property
    def tail(self) -> int:
        """How many events are left out of the comparison."""
        return self.end - self.last


class Zone(NamedTuple):
    """Sequences ``first`` to ``last``, which the same ``nodes`` must all hold."""

    first: int
    last: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Stream:
    """``parts``: the stream in order, each with the node whose copy is read. ``broken_at``: sequences at which no log
    shows that what stands before belongs to what stands behind."""

    parts: tuple[Span, ...]
    reaches: tuple[Reach, ...]
    broken_at: tuple[int, ...] = ()

    @property
    def first(self) -> int:
        """Its first sequence that any log holds."""
        return self.parts[0].first

    @property
    def last(self) -> int:
        """Its last sequence."""
        return self.parts[-1].last

    @property
    def zones(self) -> list[Zone]:
        """The stream, cut wherever a log begins or ends."""
        edges = sorted({edge for reach in self.reaches for edge in (reach.first, reach.last + 1)})
        zones = []
        for first, behind in pairwise(edges):
            nodes = tuple(reach.node for reach in self.reaches if reach.first <= first <= reach.last)
            zones.append(Zone(first, behind - 1, nodes))
        return zones


def stream_of(spans: Iterable[Span]) -> Stream:
    """The stream of these logs. Raises ValueError if there is not one event."""
    logs: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda each: (each.node, each.first)):
        logs.setdefault(span.node, []).append(span)
    if not logs:
        raise ValueError("the logs hold no event")
    parts: list[Span] = []
    broken: list[int] = []
    left = dict(logs)
    while left:
        node, linked = _next(left, parts)
        log = left.pop(node)
        begin = parts[0].first if parts else log[-1].last + 1
        earlier = [span._replace(last=min(span.last, begin - 1)) for span in log if span.first < begin]
        if earlier and not linked:
            broken.append(begin)
        parts = earlier + parts
    reaches = (_reach(node, log, parts) for node, log in logs.items())
    return Stream(tuple(parts), tuple(reach for reach in reaches if reach is not None), tuple(sorted(broken)))


def _next(logs: dict[str, list[Span]], parts: Sequence[Span]) -> tuple[str, bool]:
    """The log that says what stands before ``parts``, and whether it holds the event that they begin with."""
    if not parts:
        return max(logs, key=lambda node: (logs[node][-1].generation, logs[node][-1].last, -logs[node][0].first)), True
    begin = parts[0]

    def holds(node: str) -> bool:
        spans = logs[node]
        return any(span.generation == begin.generation and span.first <= begin.first <= span.last for span in spans)

    linked = [node for node in logs if holds(node)]
    if linked:
        return min(linked, key=lambda node: logs[node][0].first), True
    return max(logs, key=lambda node: (logs[node][-1].generation, logs[node][-1].last)), False


def _reach(node: str, log: Sequence[Span], parts: Sequence[Span]) -> Reach | None:
    """None for a log that holds nothing of the stream."""
    shared = [
        (max(span.first, part.first), min(span.last, part.last))
        for span in log
        for part in parts
        if span.generation == part.generation and span.first <= part.last and part.first <= span.last
    ]
    if not shared:
        return None
    return Reach(node, min(first for first, _ in shared), max(last for _, last in shared), log[-1].last)
