"""Identities: positions, members, replication ids, offsets.

All of them are ordered and none is ever given twice (PROTOCOL, "Words").
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

COUNTER_BITS = 40
"""Low bits of a generated id that count within one generation; the generation stands in the bits above."""

INDEX_BITS = 20
"""Low bits of an offset that number the messages of one transaction; the stream sequence stands in the bits above."""

LAST_COUNTER = (1 << COUNTER_BITS) - 1
LAST_GENERATION = (1 << (63 - COUNTER_BITS)) - 1
"""Ids are kept in 63 bits, so what is left of them for the generation ends here."""

LAST_SEQUENCE = (1 << (63 - INDEX_BITS)) - 1
"""Offsets are kept in 63 bits, too."""

LAST_CONFIG_ID = (1 << 32) - 1
"""The id of the step that declared a queue is its number, which has 32 bits in the keys of the queue state."""

MAX_TRANSACTION_EVENTS = 1 << INDEX_BITS
"""A transaction with more events than this cannot be given offsets, so its commit fails."""

MAX_TRANSACTION_BYTES = 256 << 20
"""The bodies of one transaction's messages. Every node holds them in memory until the decision."""

MAX_OPEN_BYTES = 1 << 30
"""The same for all transactions together that are open at the primary."""


class Position(NamedTuple):
    """Where an event stands in the stream: (generation, sequence). Sequences go on without a gap across generations.

    Positions order as tuples: the greater generation wins, then the greater sequence.
    """

    generation: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]

    def __str__(self) -> str:
        return f"{self.generation}.{self.sequence}"


class Member(NamedTuple):
    """A node together with the incarnation of its store. A node whose store was made anew is another member."""

    node: str
    incarnation: str

    def __str__(self) -> str:
        return f"{self.node}/{self.incarnation}"


def generated_id(generation: int, counter: int) -> int:
    """An id that no other generation can give: the generation in the high bits, a counter in the low 40."""
    if not 0 <= counter < 1 << COUNTER_BITS:
        raise OverflowError(f"counter {counter} does not fit in {COUNTER_BITS} bits")
    return generation << COUNTER_BITS | counter


def generation_of(identifier: int) -> int:
    """The generation that gave this replication id or transaction id."""
    return identifier >> COUNTER_BITS


def id_text(identifier: int) -> str:
    """A replication id or transaction id for people: ``generation-counter``."""
    return f"{identifier >> COUNTER_BITS}-{identifier & (1 << COUNTER_BITS) - 1}"


def offset_of(sequence: int, index: int = 0) -> int:
    """The offset of a message in its queue, the same on every node.

    ``sequence`` is that of the publish or, inside a transaction, of the decision; ``index`` numbers
    the events of the transaction.
    """
    return sequence << INDEX_BITS | index
