"""What the audit can find: each breach by name, with the promise that it breaks (docs/promises.md)."""

from __future__ import annotations

from typing import NamedTuple


class Breach(NamedTuple):
    """A kind of breach: the promise, and what it means."""

    promise: str
    meaning: str


BREACHES = {
    "partial": Breach("P1", "a transaction's events are not those that its prepare counted, or not the same on a node"),
    "half-committed": Breach("P1", "a transaction's commit stands in some logs, and others hold something else there"),
    "out-of-turn": Breach("P1", "an event stands after its transaction's prepare or decision, or a commit before it"),
    "halved": Breach("P1", "of the messages that a client sent in one transaction, only some were committed"),
    "split": Breach("P1", "branches of one global transaction were prepared together, and ended differently"),
    "lost": Breach("P2", "a client was answered ok, and no log holds what it committed"),
    "undone": Breach(
        "P2", "events that had passed the commit point on one node were overwritten by a later generation"
    ),
    "hole": Breach("P2", "no log holds an event at a position within the stream"),
    "enqueued-twice": Breach("P3", "a message was put into a queue twice"),
    "dequeued-twice": Breach("P3", "a message was taken out of a queue twice"),
    "never-enqueued": Breach("P3", "a message was taken out of a queue that nothing had put it into"),
    "wrong-place": Breach(
        "P3", "a message was taken from an offset at which it does not stand, or before it stood there"
    ),
    "phantom": Breach("P4", "a message was handed out, and its transaction was not committed"),
    "committed-after-all": Breach("P4", "a client was told that it was rolled back, and the log has it committed"),
    "from-nowhere": Breach("P5", "a message is in a queue to which no client sent it"),
    "two-decisions": Breach("P6", "a transaction is decided twice, or otherwise on another node"),
    "disobeyed": Breach("P6", "a branch ended otherwise than its global transaction had been decided"),
    "told-otherwise": Breach("P6", "a client was answered ok, and the log has a rollback"),
    "differs": Breach("P7", "logs hold different events at the same position"),
    "out-of-order": Breach("P8", "what one channel sent to one queue stands there in another order"),
}
