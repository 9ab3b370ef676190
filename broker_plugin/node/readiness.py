"""How many nodes are ready, in one sentence that nobody overlooks where they are fewer than there should be."""

from __future__ import annotations

import logging

log = logging.getLogger("txha.node")


def shortage(ready: int, nodes: int, min_ready: int) -> str | None:
    """What it means that so many of the ``nodes`` are ready; None if all are."""
    if ready >= nodes:
        return None
    counted = f"{ready} of {nodes} nodes {'is' if ready == 1 else 'are'} ready"
    if ready < min_ready:
        return f"{counted} and min_ready is {min_ready}: NOTHING NEW IS COMMITTED"
    if ready == 1:
        return f"{counted}: WHAT IS COMMITTED NOW IS ON ONE DISK"
    spare = ready - min_ready
    return f"{counted}: nothing new is committed when {'another one' if not spare else f'{spare + 1} more'} must leave"


class Readiness:
    """Says so in the log of the primary, each time that it changes."""

    def __init__(self, nodes: int, min_ready: int) -> None:
        self.nodes = nodes
        self.min_ready = min_ready
        self._said: str | None = None

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
                log.info("all %d nodes are ready again", self.nodes)
            else:
                log.warning("%s", found)
            self._said = found
