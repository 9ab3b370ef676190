"""Beats: what shows on a link between two nodes that both ends live, also when there is nothing to say."""

from __future__ import annotations

import msgspec

from ha.messages.numbers import Number

BEATS_FEATURE = "beats"
"""Of a node that beats, and closes a link on which nothing comes; only where both ends know it."""


class Beat(msgspec.Struct, array_like=True, tag=43):
    """Said to every linked peer, again and again: the next one follows in ``every`` milliseconds.

    ``unheard``: nothing has come from that peer for the deadline, and this end is about to close the link.
    """

    generation: Number
    every: Number
    unheard: bool = False
