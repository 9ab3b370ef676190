"""What clients did and were told, as they know it. A message's body begins with its name: ``attempt/number``."""

from __future__ import annotations

from dataclasses import dataclass, field

from txobserver.xid import Xid

OPEN, SENT, OK, FAILED, UNKNOWN, ROLLED_BACK = "open", "sent", "ok", "failed", "unknown", "rolled back"
LARGE_EVERY = 2
"""One message of so many is larger than a disk's sector, so that a power cut may take some of its sectors"""
SIZES = 900, 2600, 1700
"""Bytes of such a message, in turn"""


@dataclass
class Attempt:
    """One transaction, or one plain publish (``plain``), by one client."""

    label: str
    client: str
    plain: bool
    published: list[tuple[str, str]] = field(default_factory=list)
    """(queue, body) in order"""
    consumed: list[tuple[str, str]] = field(default_factory=list)
    """(queue, body) that its acknowledgements take away"""
    outcome: str = OPEN
    xid: Xid | None = None
    """Of one that is a branch"""
    token: bytes | None = None
    """Of a plain transaction whose client wants to ask for its outcome"""
    asked: set[bool] = field(default_factory=set)
    """What was asked of a branch, by any client: to commit (True), to roll back"""
    decision: bool | None = None
    """What its coordinator has decided"""
    final: bool = False
    """Whether its coordinator knows what became of it"""
    refused_at: int | None = None
    """The end of the one stream when it was first told not to have happened"""
    void: bool = False
    """Whether it was told so by a stream whose loss an operator has accepted since"""

    @property
    def name(self) -> Xid | bytes | None:
        """What its outcome is remembered by."""
        return self.xid or self.token

    @property
    def may_happen(self) -> bool:
        """Whether it may have committed for all that its client knows."""
        if self.void and (self.outcome == FAILED or True in self.asked):
            return True
        return self.outcome in (SENT, OK, UNKNOWN)


class Book:
    """All attempts. Bodies are unique over a whole run."""

    def __init__(self) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.branches: dict[Xid, Attempt] = {}
        self.queue_of: dict[str, str] = {}
        self.exempt: set[str] = set()
        """Queues that clients delete: their messages may go (PROTOCOL, "Exempt by name")"""
        self.fading: set[str] = set()
        """Those of them that one client deletes while another publishes: what comes too late goes nowhere"""
        self.told_not_done: set[str] = set()
        """Labels of attempts that failed since their connection was closed with that word"""
        self.given_up: set[str] = set()
        """Those whose connection has gone: what is told to it late says nothing of what is there afterwards"""

    def begin(self, client: str, plain: bool = False, xid: Xid | None = None) -> Attempt:
        """A new attempt."""
        label = f"{client}.{len(self.attempts)}"
        attempt = self.attempts[label] = Attempt(label, client, plain, xid=xid)
        if xid is not None:
            self.branches[xid] = attempt
        return attempt

    def publish(self, attempt: Attempt, queue: str) -> str:
        """A message is about to go out; returns its body."""
        body = f"{attempt.label}/{len(attempt.published)}"
        turn, rest = divmod(len(self.queue_of), LARGE_EVERY)
        if rest == 0:
            body = body.ljust(SIZES[turn % len(SIZES)])
        attempt.published.append((queue, body))
        self.queue_of[body] = queue
        return body

    def goes_nowhere(self, attempt: Attempt) -> bool:
        """Whether its messages may find no queue."""
        return any(queue in self.fading for queue, _ in attempt.published)

    def attempt_of(self, body: str) -> Attempt | None:
        """Who published this body."""
        return self.attempts.get(body.split("/")[0])

    def lost_connection(self, attempt: Attempt, not_done: bool = False) -> None:
        """No answer will come: without a commit it is rolled back, with one its outcome is unknown, unless the client
        was told that what was not answered was ``not_done``."""
        if attempt.outcome == OPEN:
            attempt.outcome = ROLLED_BACK
        elif attempt.outcome == SENT and not_done:
            attempt.outcome = FAILED
            self.told_not_done.add(attempt.label)
        elif attempt.outcome == SENT:
            attempt.outcome = UNKNOWN

    def cut(self, kept: int) -> None:
        """What was told behind ``kept`` is of no account any more."""
        for attempt in self.attempts.values():
            if attempt.refused_at is not None and attempt.refused_at > kept:
                attempt.refused_at, attempt.void = None, True

    def open_now(self) -> int:
        """Transactions that have published and have no answer."""
        return sum(a.outcome in (OPEN, SENT) and bool(a.published) and not a.plain for a in self.attempts.values())

    def unanswered(self) -> bool:
        """Whether a client waits for an answer that matters."""
        return any(
            attempt.outcome in (OPEN, SENT) and any(queue not in self.exempt for queue, _ in attempt.published)
            for attempt in self.attempts.values()
        )

    def count(self, outcome: str) -> int:
        """Transactions with this outcome."""
        return sum(a.outcome == outcome and not a.plain for a in self.attempts.values())
