"""Events of a node's log that are about clients whom it passes on."""

from __future__ import annotations

from typing import NamedTuple


class PassingRefused(NamedTuple):
    """A client from ``address`` is not passed on to node ``primary``, and ``unsaid`` others were not since the last
    line. ``primary`` is empty where clients are served by a broker in a process of its own."""

    address: str
    primary: str
    reason: str
    unsaid: int = 0
