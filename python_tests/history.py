"""The clients' own record of what they did and saw; every verdict is computed from it, never from the broker's word."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

OPEN, OK, FAILED, UNKNOWN, ROLLED_BACK = "open", "ok", "failed", "unknown", "rolled back"


@dataclass
class Attempt:
    """One transaction: it takes ``source`` from the input queue and publishes its own id to every output queue."""

    id: str
    worker: str
    number: int
    source: str
    outcome: str = OPEN
    first_publish: float | None = None
    commit_sent: float | None = None
    answered: float | None = None


@dataclass
class Sighting:
    """A message that a consumer was handed."""

    queue: str
    id: str
    redelivered: bool
    at: float


@dataclass
class Count:
    """A queue's length as the broker told it."""

    queue: str
    messages: int
    at: float


@dataclass
class History:
    """Everything, in the order in which it happened, from any thread; times are monotonic seconds."""

    attempts: list[Attempt] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    fed: dict[str, bool] = field(default_factory=dict)
    """Input message -> whether its publish was confirmed"""
    kills: list[float] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, worker: str, source: str) -> Attempt:
        """A transaction begins."""
        with self.lock:
            number = len(self.attempts)
            attempt = Attempt(f"{worker}.{number}", worker, number, source)
            self.attempts.append(attempt)
            return attempt

    def publishing(self, attempt: Attempt) -> None:
        """Its first publish goes out."""
        if attempt.first_publish is None:
            attempt.first_publish = time.monotonic()

    def committing(self, attempt: Attempt) -> None:
        """Its commit goes out."""
        attempt.commit_sent = time.monotonic()

    def answer(self, attempt: Attempt, outcome: str) -> None:
        """Its outcome, as far as the client knows."""
        attempt.answered = time.monotonic()
        attempt.outcome = outcome

    def interrupted(self, attempt: Attempt) -> None:
        """The connection went: without a commit it is rolled back, with one its outcome is unknown."""
        if attempt.outcome == OPEN:
            self.answer(attempt, ROLLED_BACK if attempt.commit_sent is None else UNKNOWN)

    def saw(self, queue: str, identifier: str, redelivered: bool) -> None:
        """A consumer was handed a message."""
        with self.lock:
            self.sightings.append(Sighting(queue, identifier, redelivered, time.monotonic()))

    def counted(self, queue: str, messages: int) -> None:
        """The broker told the length of a queue."""
        self.counts.append(Count(queue, messages, time.monotonic()))

    def in_flight(self) -> int:
        """Transactions between their first publish and their answer."""
        with self.lock:
            return sum(a.outcome == OPEN and a.first_publish is not None for a in self.attempts)

    def committed(self) -> int:
        """Transactions that were answered ok."""
        with self.lock:
            return sum(a.outcome == OK for a in self.attempts)
