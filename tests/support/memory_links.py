"""Links of a cluster in memory: what both ends know, and which a node has closed, since nothing came on them."""

from __future__ import annotations

from typing import Any

from ha.messages.wire import decode


class ClosedLinks:
    """``closed``: they are dialled anew when both ways carry packets."""

    nodes: dict[str, Any]
    held: set[tuple[str, str]]
    wire: list[tuple[str, str, bytes]]
    frozen: set[str]
    features: frozenset[str]
    _were_frozen: set[str]

    def __init__(self) -> None:
        self.closed: set[tuple[str, str]] = set()
        self._closing: list[tuple[str, str]] = []

    def features_of(self, one: str, other: str) -> frozenset[str]:
        """What both of these nodes know."""
        return self.features

    def close_link(self, one: str, other: str) -> None:
        """One end closes it: the other one knows, if that way carries packets."""
        self.closed.add((one, other))
        self._closing.append((one, other))
        if (one, other) not in self.held and other in self.nodes:
            last = [(s, t, m) for s, t, m in self.wire if (s, t) == (one, other)]
            for source, target, data in last:
                self.nodes[target].report(lambda s=source, d=data: self.nodes[other].core.on_message(s, decode(d)))
            self.nodes[other].report(lambda: self.nodes[other].core.on_link(one, False))
        self.wire = [(s, t, m) for s, t, m in self.wire if {s, t} != {one, other}]

    def _dial_anew(self) -> None:
        closing, self._closing = self._closing, []
        for one, other in closing:  # who has closed a link is told as well that it is down, in a turn of its own
            if one in self.nodes:
                self.nodes[one].report(lambda o=one, p=other: self.nodes[o].core.on_link(p, False))
        for one, other in sorted(self.closed):
            if not {(one, other), (other, one)} & self.held and {one, other} <= self.nodes.keys():
                self.closed.discard((one, other))
                self.nodes[one].link(other)
                self.nodes[other].link(one)

    def _go_on(self) -> None:
        """Who was frozen in the last turn and is so no more runs its timer before it reads anything, as uvloop does."""
        went_on, self._were_frozen = self._were_frozen - self.frozen, set(self.frozen)
        for name in sorted(went_on & self.nodes.keys()):
            self.nodes[name].report(self.nodes[name].core.tick)
