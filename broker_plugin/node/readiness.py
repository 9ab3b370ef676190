"""How many nodes are ready, in one sentence that no operator overlooks where they are fewer than there should be."""

from __future__ import annotations

import logging

from broker_plugin.logs.events import AllReady, TooFewReady
from broker_plugin.logs.formats import tell
from broker_plugin.logs.prose import shortage as shortage
from ha.core import NodeCore
from ha.membership.belonging import membership_of, needed
from ha.membership.record import Record

log = logging.getLogger("txha.node")


class Readiness:
    """Says so in the log of the primary, each time that it changes."""

    def __init__(self, nodes: int, min_ready: int) -> None:
        self.nodes = nodes
        self.min_ready = min_ready
        self._said: str | None = None
        self._nodes_of_file = nodes
        self._followed: Record | None = None

    def follow(self, core: NodeCore) -> None:
        """Of as many nodes as the record says, and as many of them as must be ready by it."""
        record = core.record
        if record is self._followed:  # as after nearly every turn
            return
        self._followed = record
        membership = membership_of(record)
        self.nodes = self._nodes_of_file if membership is None else len(membership.nodes)
        if record is not None:
            self.min_ready = needed(record, core.settings)

    def shortage(self, ready: int) -> str | None:
        """See ``shortage``."""
        return shortage(ready, self.nodes, self.min_ready)

    def look(self, ready: int | None) -> None:
        """So many members does the primary's record list; None at a node that is not an active primary."""
        if ready is None:
            self._said = None
            return
        found = self.shortage(ready)
        if found != self._said:
            if found is None:
                tell(log, logging.INFO, AllReady(self.nodes))
            else:
                tell(log, logging.WARNING, TooFewReady(ready, self.nodes, self.min_ready))
            self._said = found
