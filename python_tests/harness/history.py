"""The clients' own record of what they did and saw; every verdict is computed from it, never from the broker's word.

Who publishes writes an ``Attempt``: one transaction, or one plain publish with a confirm. Who consumes writes a
``Session`` for each time that it watched a queue, and a ``Sighting`` for each message that it was handed. Who asks
for the length of a queue writes a ``Count``. A message's body is its id, so a record needs nothing but ids.

Times are monotonic seconds. What goes out is stamped *before* it is sent, what comes in *after* it was received. So
"sent before that was received" can be read off two stamps, and a verdict built on it holds however slow a client was.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

OPEN, OK, FAILED, UNKNOWN, ROLLED_BACK = "open", "ok", "failed", "unknown", "rolled back"


@dataclass
class Attempt:
    """One transaction, or one plain publish (``plain``). ``number`` rises with every attempt of the run.

    ``commit_sent`` is when its fate left the client's hands: the commit, or for a plain publish the publish itself.
    """

    id: str
    channel: str
    """Names one channel of one connection: what two attempts on it sent was sent in the order of their numbers"""
    number: int
    node: str = ""
    """Whom its client was connected to"""
    consumed: tuple[str, ...] = ()
    """Ids of the messages that it acknowledges"""
    plain: bool = False
    on_purpose: bool = False
    """Its client means to roll it back"""
    messages: dict[str, str] = field(default_factory=dict)
    """Id of each message that it publishes -> the queue, in the order of publishing"""
    outcome: str = OPEN
    first_publish: float | None = None
    commit_sent: float | None = None
    answered: float | None = None


@dataclass
class Session:
    """A consumer's time with a queue: from before it began to consume until it had ended, as far as it knows.

    ``clean``: everything handed to it was recorded, settled and answered for before it ended, so the broker holds
    nothing back for it. ``hidden`` is how many messages the broker may have handed to it that it has not recorded.
    """

    queue: str
    consumer: str
    hidden: int
    began: float
    ended: float | None = None
    clean: bool = False
    node: str = ""


@dataclass
class Sighting:
    """A message that a consumer was handed."""

    queue: str
    id: str
    redelivered: bool
    at: float
    session: Session | None = None


@dataclass
class Count:
    """A queue's length as the broker told it, between two moments."""

    queue: str
    messages: int
    asked: float
    answered: float
    client: str = ""
    node: str = ""


@dataclass
class History:
    """Everything, from any thread. Sightings of one consumer are in the order in which it was handed the messages.

    ``prefix`` begins every id and channel that it names, so that two histories of one run have none in common.
    """

    prefix: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    counts: list[Count] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    """When a primary was ended with SIGKILL: no client that was connected before has been served by it since"""
    clock: Callable[[], float] = time.monotonic
    _places: dict[str, str] = field(default_factory=dict)
    _open: dict[str, Attempt] = field(default_factory=dict)
    _committed: int = 0
    _fed: int = 0
    _visible: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def connected(self, client: str, node: str) -> None:
        """A client, or one channel of it, is connected there from now on."""
        self._places[client] = node

    # -- publishers

    def begin(
        self, channel: str, consumed: Sequence[str] = (), plain: bool = False, on_purpose: bool = False
    ) -> Attempt:
        """An attempt begins; it will acknowledge ``consumed``, or be rolled back ``on_purpose``."""
        with self._lock:
            number = next(self._numbers)
            name = self.prefix + channel
            attempt = Attempt(f"{name}.{number}", name, number, self._places.get(channel, ""))
            attempt.consumed, attempt.plain, attempt.on_purpose = tuple(consumed), plain, on_purpose
            self.attempts.append(attempt)
            self._fed += plain
            self._open[attempt.id] = attempt
            return attempt

    def publishing(self, attempt: Attempt, queue: str) -> str:
        """One of its messages is about to go out; returns its id."""
        message = f"{attempt.id}/{len(attempt.messages)}"
        attempt.messages[message] = queue
        if attempt.first_publish is None:
            attempt.first_publish = self.clock()
        return message

    def committing(self, attempt: Attempt) -> None:
        """Its commit, or its plain publish, is about to go out."""
        attempt.commit_sent = self.clock()

    def answer(self, attempt: Attempt, outcome: str) -> None:
        """Its outcome, as far as the client knows."""
        with self._lock:
            attempt.answered = self.clock()
            attempt.outcome = outcome
            self._committed += outcome == OK and not attempt.plain
            self._visible += len(attempt.messages) if outcome == OK else 0
            self._open.pop(attempt.id, None)

    def interrupted(self, attempt: Attempt, not_done: bool = False) -> None:
        """The connection went: without a commit it is rolled back, with one its outcome is unknown; unless the broker
        has said that what was not answered was ``not_done``: then it has failed."""
        if attempt.outcome == OPEN:
            lost = FAILED if not_done else UNKNOWN
            self.answer(attempt, ROLLED_BACK if attempt.commit_sent is None else lost)

    # -- consumers

    def watching(self, queue: str, consumer: str, hidden: int) -> Session:
        """A consumer is about to ask for messages, and may have ``hidden`` unrecorded ones in its hands."""
        session = Session(queue, consumer, hidden, self.clock(), node=self._places.get(consumer, ""))
        with self._lock:
            self.sessions.append(session)
        return session

    def saw(self, session: Session, identifier: str, redelivered: bool) -> None:
        """It was handed a message."""
        with self._lock:
            self.sightings.append(Sighting(session.queue, identifier, redelivered, self.clock(), session))
            self._visible -= not redelivered

    def watched(self, session: Session, clean: bool) -> None:
        """It has ended; ``clean`` as in ``Session``."""
        session.clean = clean
        session.ended = self.clock()

    def counted(self, queue: str, messages: int, asked: float, client: str = "") -> None:
        """The broker has told ``client`` the length of a queue, asked for at ``asked``."""
        self.counts.append(Count(queue, messages, asked, self.clock(), client, self._places.get(client, "")))

    def over_by(self, session: Session) -> float:
        """From when on no broker served this session: its clean end, or the first kill after it had begun."""
        if session.clean and session.ended is not None:
            return session.ended
        return min((kill for kill in self.kills if kill > session.began), default=float("inf"))

    # -- how it goes

    def in_flight(self) -> int:
        """Transactions between their first publish and their answer."""
        with self._lock:
            return sum(not a.plain and not a.on_purpose and a.first_publish is not None for a in self._open.values())

    def committing_now(self) -> int:
        """Transactions whose commit is out and not answered."""
        with self._lock:
            return sum(not a.plain and a.commit_sent is not None for a in self._open.values())

    def fed(self) -> int:
        """Plain publishes so far, whatever became of them."""
        return self._fed

    def backlog(self) -> int:
        """About how many messages wait in all queues: answered ok, and not seen."""
        return self._visible

    def waiting(self) -> set[str]:
        """Messages of confirmed plain publishes that no transaction has consumed yet for all that is known."""
        with self._lock:
            attempts = list(self.attempts)
        consumed = {source for a in attempts if a.outcome in (OK, UNKNOWN) for source in a.consumed}
        return {message for a in attempts if a.plain and a.outcome == OK for message in a.messages} - consumed

    def open_attempts(self) -> int:
        """Attempts of any kind that have no outcome yet."""
        with self._lock:
            return len(self._open)

    def committed(self) -> int:
        """Transactions that were answered ok."""
        return self._committed

    def undecided_at(self, moment: float) -> tuple[int, int]:
        """Of the transactions not answered at ``moment``: how many had published, and how many had sent their commit.

        Those that their client rolled back on purpose do not count: they were on their way to no commit-ok.
        """
        published = sent = 0
        with self._lock:
            for attempt in self.attempts:
                answered = attempt.answered is not None and attempt.answered <= moment
                if attempt.plain or attempt.on_purpose or answered:
                    continue
                published += attempt.first_publish is not None and attempt.first_publish <= moment
                sent += attempt.commit_sent is not None and attempt.commit_sent <= moment
        return published, sent
