"""A round: two applications that send each other money, and what is done at certain steps of their transactions."""

from __future__ import annotations

from typing import NamedTuple

from python_tests.suites.coordinator.crashes import AFTER, AT, LEFT

LOG, TABLE = "log", "table"
WAYS_TO_DECIDE = (LOG, TABLE)
"""Coordinator with a log and prepared transactions; data manager of SQLAlchemy with a table of decisions."""

APART, TOGETHER = "apart", "together"
"""Each application in a database of a server of its own; both in one database, in schemas of their own."""

GET, CONSUME = "get", "consume"

APPLICATIONS = ("A", "B")
"""B reaches its database by way of a pooler that has another name for it."""
TELLERS = ("A1", "A2", "B1", "B2")
"""Processes: two of each application."""

SEND, BOOK = "send", "book"
NOTHING = "nothing"
"""The finding for a booking for which there was no message."""

_DECIDED_BY = {
    LOG: (
        *("database prepared", "broker prepared", "decision written", "decision synced"),
        *("database committed", "broker committed", "finished"),
    ),
    TABLE: ("broker prepared", "decision written", "database committed", "broker committed"),
}
_WORK = {
    (LOG, SEND): ("database begun", "account debited", "broker begun", "message published"),
    (LOG, BOOK): ("broker begun", "message taken", "database begun", "account credited", "message acknowledged"),
    (TABLE, SEND): ("broker begun", "account debited", "message published"),
    (TABLE, BOOK): ("broker begun", "message taken", "account credited", "message acknowledged"),
}

KILL_TELLER = "kill teller"
KILL_PRIMARY = "kill primary"
KILL_BACKUP = "kill backup"
KILL_NODES = "kill all nodes"
KILL_POOLER = "kill pooler"
KILL_DATABASE = "kill PostgreSQL"
STOP_DATABASE = "stop PostgreSQL"
RECOVER = "recovery runs"

DEEDS: dict[str, str] = {
    KILL_TELLER: "SIGKILL of the process that stands at the step; another one goes on with its work",
    KILL_PRIMARY: "SIGKILL of the primary",
    KILL_BACKUP: "SIGKILL of a backup",
    KILL_NODES: "SIGKILL of all nodes",
    KILL_POOLER: "SIGKILL of pgbouncer",
    KILL_DATABASE: "SIGKILL of all processes of an application's server",
    STOP_DATABASE: "an immediate shutdown of it",
    RECOVER: "`txha dtx recover --grace 0` of both applications, at once or one after the other",
}
"""What can be done, and what it is."""

ALSO = {KILL_TELLER: (AT, AFTER), RECOVER: (AT, AFTER)}
"""How it can be done, where that is not in each of the ways."""


def steps(way: str, kind: str) -> tuple[str, ...]:
    """Those of one transaction that commits, in their order."""
    return (*_WORK[way, kind], *_DECIDED_BY[way])


def ways(deed: str) -> tuple[str, ...]:
    """How it can be done."""
    return ALSO.get(deed, (AT, AFTER, LEFT))


class Stop(NamedTuple):
    """The next time that a teller comes to ``step`` of a transaction of ``kind``, ``deed`` is done in the way ``how``.

    ``turn``: not before its so-manieth transaction. ``whose``: the application whose server it is done to.
    """

    turn: int
    kind: str
    step: str
    deed: str
    how: str
    whose: str

    def __str__(self) -> str:
        whose = f" of {self.whose}" if self.deed in (KILL_DATABASE, STOP_DATABASE) else ""
        return f"{self.deed}{whose} {self.how} {self.kind}: {self.step}"


class Round(NamedTuple):
    """``ways``, ``takes`` and ``roles`` by application, ``stops`` by teller.

    ``sends``: each teller sends until so many transfers were not rolled back. ``compact``: the size in bytes at which
    a log is made smaller. ``takes``: whether messages are asked for or subscribed to.
    """

    seed: int
    layout: str
    ways: dict[str, str]
    takes: dict[str, str]
    roles: dict[str, str]
    sends: int
    compact: int
    stops: dict[str, tuple[Stop, ...]]

    def __str__(self) -> str:
        how = ", ".join(f"{each} by {self.ways[each]}, {self.takes[each]}, {self.roles[each]}" for each in APPLICATIONS)
        return f"seed {self.seed}: {self.layout}; {how}; {sum(map(len, self.stops.values()))} stops"
