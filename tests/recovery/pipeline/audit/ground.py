"""What of a run can be broken, and is given out once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from python_tests.harness.history import OK, ROLLED_BACK, Attempt
from tests.recovery.pipeline.audit.cluster_run import ClusterRun
from tests.recovery.pipeline.audit.stored_logs import Stored
from txobserver.events import (
    Delivered,
    Publish,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
)

Found = tuple[str, Any]
"""The name of a breach, and its subject: a transaction's number, a client's transaction, a message, or a queue."""


@dataclass
class _Transaction:
    """A transaction that the history does not know, by the positions of its events."""

    number: int
    enqueues: list[int]
    dequeue: int
    prepare: int
    decision: int


class Ground:
    """What of a run can be broken: each asks for something that no other has used. Only what stands in more than one
    log is given out, since an event that one log alone holds cannot differ."""

    def __init__(self, run: ClusterRun) -> None:
        self.run = run
        everywhere = set.intersection(*(set(log) for log in run.stored.logs.values()))
        self.shared = {at: stored for at, stored in run.stored.logs[run.late].items() if at in everywhere}
        self._transactions = self._plain_transactions()
        self._marks = [at for at, stored in self.shared.items() if isinstance(stored.event, Delivered)]
        settled = self._settlements()
        publishes = [(at, s) for at, s in self.shared.items() if self._puts_into(s, "plain")]
        self._settled = [(s, settled[s.event.rid]) for _, s in publishes if s.event.rid in settled]
        self._unsettled = [s for _, s in publishes if s.event.rid not in settled]
        history = run.history.attempts
        known = {
            s.event.message.body.decode() for s in self.shared.values() if isinstance(s.event, Publish | TxEnqueue)
        }
        self._orders = [a for a in history if a.plain and set(a.messages) <= known]
        self._committed = [a for a in history if not a.plain and a.outcome == OK and set(a.messages) <= known]
        self._rolled_back = [
            a for a in history if not a.plain and a.outcome == ROLLED_BACK and a.on_purpose and set(a.messages) <= known
        ]

    def _puts_into(self, stored: Stored, queue: str) -> bool:
        return isinstance(stored.event, Publish) and stored.event.queues == (self.run.numbers[queue],)

    def _settlements(self) -> dict[int, Stored]:
        """Replication id -> where a message of ``plain`` is settled, in a log that all hold."""
        return {
            rid: stored
            for stored in self.shared.values()
            if isinstance(stored.event, Settle) and stored.event.queue == self.run.numbers["plain"]
            for _, rid in stored.event.entries
        }

    def _plain_transactions(self) -> list[_Transaction]:
        parts: dict[int, list[tuple[int, Any]]] = {}
        for at, stored in sorted(self.shared.items()):
            if isinstance(stored.event, TxOpen | TxEnqueue | TxDequeue | TxPrepare | TxDecision):
                parts.setdefault(stored.event.tx, []).append((at, stored.event))
        found = []
        feed, taken = self.run.numbers["feed"], self._taken_later()
        for number, events in parts.items():
            at = [
                [p for p, e in events if isinstance(e, kind)] for kind in (TxEnqueue, TxDequeue, TxPrepare, TxDecision)
            ]
            if not isinstance(events[0][1], TxOpen) or not all(at):
                continue
            takes_feed = any(isinstance(e, TxDequeue) and e.queue == feed for _, e in events)
            if takes_feed and not any(e.rid in taken for _, e in events if isinstance(e, TxEnqueue)):
                found.append(_Transaction(number, at[0], at[1][0], at[2][0], at[3][0]))
        return found

    def _taken_later(self) -> set[int]:
        logs = self.run.stored.logs.values()
        return {rid for log in logs for s in log.values() if isinstance(s.event, Settle) for _, rid in s.event.entries}

    def transaction(self) -> _Transaction:
        """A committed transaction, the messages of which wait in their queues."""
        return self._transactions.pop()

    def mark(self) -> int:
        """The position of an event that matters to no check."""
        return self._marks.pop()

    def mark_behind(self, position: int) -> int:
        """The last such position, which must be behind this one."""
        at = max(self._marks)
        assert at > position
        self._marks.remove(at)
        return at

    def settled(self) -> tuple[Stored, Stored]:
        """A publish and the settlement of its message."""
        return self._settled.pop()

    def unsettled(self) -> Stored:
        """A publish whose message waits."""
        return self._unsettled.pop()

    def order(self) -> Attempt:
        """A plain publish that the history knows."""
        return self._orders.pop()

    def committed(self) -> Attempt:
        """A transaction that its client was answered ok."""
        return self._committed.pop()

    def rolled_back(self) -> Attempt:
        """One that its client rolled back."""
        return self._rolled_back.pop()

    def event(self, at: int) -> Any:
        """The event at a position."""
        return self.shared[at].event

    def filler(self) -> Delivered:
        """An event that says nothing new."""
        return Delivered(self.run.numbers["plain"], 0)
