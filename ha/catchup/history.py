"""Comparing logs by their generations' first positions (PROTOCOL, "In step")."""

from __future__ import annotations

from collections.abc import Sequence

from txobserver.ids import Position


def common_sequence(ours: Sequence[Position], our_tail: int, theirs: Sequence[Position], their_tail: int) -> int:
    """The greatest sequence up to which two logs are the same; 0 if they share nothing.

    A generation's events are made by one primary and are given one position each, so two logs agree on a generation
    as far as both go in it, if it begins at the same sequence in both and so does every one before it.
    """
    common = 0
    for index, start in enumerate(ours):
        if index >= len(theirs) or theirs[index] != start:
            break
        common = min(_end(ours, index, our_tail), _end(theirs, index, their_tail))
    return common


def _end(history: Sequence[Position], index: int, tail: int) -> int:
    """Sequence of the last event of the generation at ``index``."""
    return history[index + 1].sequence - 1 if index + 1 < len(history) else tail
