"""Where a node stands when its calls are looked at."""

from __future__ import annotations

from typing import NamedTuple


class CallsStanding(NamedTuple):
    """``now`` in seconds. ``primary``: the node that leads ``generation``, where this node is attached to it in
    ``session``, or is it.

    ``ready``: this node is primary and serves, or is a ready backup.
    """

    now: float
    generation: int
    session: int
    primary: str | None
    ready: bool
