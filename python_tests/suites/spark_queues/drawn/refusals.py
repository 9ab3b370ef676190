"""What a query may say when it fails: what the documents promise, each for its causes. Everything else is a fault."""

from __future__ import annotations

import re
from collections.abc import Collection

from python_tests.suites.spark_queues.drawn.case import (
    ACCEPT_LOSS,
    DEEDS,
    GIVE_UP,
    HANG_BACKUP,
    HANG_BACKUPS,
    HANG_PRIMARY,
    KILL_BROKERS,
    KILL_DRIVER,
    KILL_PRIMARY,
    LEAVE_BEHIND,
    LOOK_AT_MESSAGES,
    LOOK_AT_SINK,
    LOSE_ANSWER,
    SETTLE_SPARK,
    SUSPEND,
    TAKE_OVER,
)

ASTRAY = "a row astray"
"""A cause that is none of the deeds."""

BROKER = {
    KILL_PRIMARY, KILL_BROKERS, TAKE_OVER, LOSE_ANSWER, HANG_BACKUP, HANG_BACKUPS, HANG_PRIMARY,
    LEAVE_BEHIND, ACCEPT_LOSS,
}
ANY = {*DEEDS}

ANOTHER_HISTORY = "another history"

REFUSALS: dict[str, tuple[str, set[str]]] = {
    ANOTHER_HISTORY: (r"is of cluster, accepted loss and generation", {ACCEPT_LOSS}),
    "the record is lost": (r"the broker has no record of query|broker's record of query .* is of batch", {ACCEPT_LOSS}),
    "the record is held": (r"a client holds the record of query", {LOOK_AT_SINK}),
    "messages are gone": (r"messages of a batch that is to be read again have left", {LOOK_AT_MESSAGES}),
    "a row is taken by no queue": (r"rows were taken by no queue", {ASTRAY}),
    "a branch was settled": (r"another client has settled it", {GIVE_UP, SUSPEND, ACCEPT_LOSS}),
    "a batch comes late": (r"comes late: batch \d+ has been decided", {SUSPEND}),
    "another driver writes the checkpoint": (r"another driver has written", {SUSPEND}),
    "the record is being changed": (r"is being changed, and that does not end", BROKER),
    "another driver": (
        r"another driver is at work|RESOURCE_LOCKED",
        {KILL_DRIVER, SUSPEND, SETTLE_SPARK, GIVE_UP, *BROKER},
    ),
    "another consumer": (r"has another consumer", {KILL_DRIVER, SUSPEND, LOOK_AT_MESSAGES, *BROKER}),
    "the outcome is unknown": (r"OutcomeUnknown", BROKER),
    "rolled back": (r"RolledBack|TimedOut", BROKER),
    "no decision": (r"no decision on batch", ANY),
    "the broker is lost": (
        r"no host answers|the broker (was|is) lost|connection (that held the record )?was lost|"
        r"(StreamLost|ConnectionClosed|ChannelWrongState|ConnectionWrongState|ChannelClosed|AMQPConnection|"
        r"ConnectionReset|BrokenPipe)",
        BROKER,
    ),
}
"""By name: how it is known, and what it may come of."""


def refusal(said: str, causes: Collection[str]) -> str | None:
    """The name of a refusal that may come of these causes; None if it may not."""
    for name, (pattern, allowed) in REFUSALS.items():
        if re.search(pattern, said) and allowed.intersection(causes):
            return name
    return None
