"""Whether a position belongs to a node's part of the stream, and is applied there."""

from __future__ import annotations

from ha.apply.replica import Replica
from txobserver.ids import Position


def is_applied_here(replica: Replica, position: Position) -> bool | None:
    """Whether the event at this position is one that this node has applied; None: it may come to it yet.

    False is for ever: another event stands there, or none ever will. A cursor of such a position was made by a stream
    that an operator has given up (``number_cut_off_and_given_again``).
    """
    applied = replica.applied
    if replica.resyncing:
        return None
    if position.sequence > applied.sequence:
        return None if position.generation >= applied.generation else False
    return position.sequence == 0 or replica.position_of(position.sequence) == position
