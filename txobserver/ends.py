"""Where the counters end, and what is said then.

Ids, positions and the numbers of queues have as many bits as the store and the wire give them. What would need one
more is refused before it is confirmed, with a sentence; counted past its end it would be told ok, and could never be
written by a checkpoint (``counters_at_their_ends``). Refused is what is new, and well before the end: the decisions,
acknowledgements and rollbacks of what is there find numbers for a long while after that.
"""

from __future__ import annotations

from txobserver.ids import COUNTER_BITS, LAST_CONFIG_ID, LAST_COUNTER, LAST_GENERATION, LAST_SEQUENCE

RESERVED_SEQUENCES = 1 << 40
"""Events that may follow when nothing new is taken any more"""

RESERVED_IDS = 1 << 32
"""Ids for what is in transactions that are open then"""

END_OF_STREAM = (
    "the stream has used its positions up, so nothing new is taken; drain the queues and move to a new cluster"
)
END_OF_IDS = (
    "this generation has given the ids that it has, so nothing new is taken; promote another node or restart this one, "
    "which begins a new generation"
)
END_OF_CONFIGURATION = (
    f"the cluster has had its {LAST_CONFIG_ID} steps of configuration, so nothing can be declared, bound or deleted "
    "any more; move to a new cluster"
)
END_OF_GENERATIONS = (
    f"generation {LAST_GENERATION} is the last one, so no node can be promoted any more; move to a new cluster"
)


class ReplicationIds:
    """The ids that one generation gives to messages."""

    def __init__(self, generation: int) -> None:
        self._high = generation << COUNTER_BITS
        self.given = 0

    def next(self) -> int:
        """Another id, 0 if there is none left."""
        if self.given >= LAST_COUNTER:
            return 0
        self.given += 1
        return self._high | self.given


def end_of_new(sequence: int, ids: ReplicationIds) -> str | None:
    """Why nothing new can be taken any more, if the stream has come to ``sequence``."""
    if sequence > LAST_SEQUENCE - RESERVED_SEQUENCES:
        return END_OF_STREAM
    return END_OF_IDS if ids.given > LAST_COUNTER - RESERVED_IDS else None
