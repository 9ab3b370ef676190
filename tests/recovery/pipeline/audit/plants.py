"""A breach of each kind, planted into the logs of a night or what its clients say; each tells what must be found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import msgspec

from python_tests.harness.history import FAILED, OK, ROLLED_BACK, Attempt, Sighting
from tests.recovery.pipeline.audit import branch_plants
from tests.recovery.pipeline.audit.night import Night, Stored
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
from txobserver.ids import place_of

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
    """What of a night can be broken: each asks for something that no other has used. Only what stands in more than one
    log is given out, since an event that one log alone holds cannot differ."""

    def __init__(self, night: Night) -> None:
        self.night = night
        everywhere = set.intersection(*(set(log) for log in night.logs.values()))
        self.shared = {at: stored for at, stored in night.logs[night.late].items() if at in everywhere}
        self._transactions = self._plain_transactions()
        self._marks = [at for at, stored in self.shared.items() if isinstance(stored.event, Delivered)]
        settled = self._settlements()
        publishes = [(at, s) for at, s in self.shared.items() if self._puts_into(s, "plain")]
        self._settled = [(s, settled[s.event.rid]) for _, s in publishes if s.event.rid in settled]
        self._unsettled = [s for _, s in publishes if s.event.rid not in settled]
        history = night.history.attempts
        known = {
            s.event.message.body.decode() for s in self.shared.values() if isinstance(s.event, Publish | TxEnqueue)
        }
        self._orders = [a for a in history if a.plain and set(a.messages) <= known]
        self._committed = [a for a in history if not a.plain and a.outcome == OK and set(a.messages) <= known]
        self._rolled_back = [
            a for a in history if not a.plain and a.outcome == ROLLED_BACK and a.on_purpose and set(a.messages) <= known
        ]

    def _puts_into(self, stored: Stored, queue: str) -> bool:
        return isinstance(stored.event, Publish) and stored.event.queues == (self.night.numbers[queue],)

    def _settlements(self) -> dict[int, Stored]:
        """Replication id -> where a message of ``plain`` is settled, in a log that all hold."""
        return {
            rid: stored
            for stored in self.shared.values()
            if isinstance(stored.event, Settle) and stored.event.queue == self.night.numbers["plain"]
            for _, rid in stored.event.entries
        }

    def _plain_transactions(self) -> list[_Transaction]:
        parts: dict[int, list[tuple[int, Any]]] = {}
        for at, stored in sorted(self.shared.items()):
            if isinstance(stored.event, TxOpen | TxEnqueue | TxDequeue | TxPrepare | TxDecision):
                parts.setdefault(stored.event.tx, []).append((at, stored.event))
        found = []
        feed, taken = self.night.numbers["feed"], self._taken_later()
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
        logs = self.night.logs.values()
        return {rid for log in logs for s in log.values() if isinstance(s.event, Settle) for _, rid in s.event.entries}

    def transaction(self) -> _Transaction:
        """A committed transaction, the messages of which wait in their queues."""
        return self._transactions.pop()

    def mark(self) -> int:
        """The position of an event that matters to nobody."""
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
        return Delivered(self.night.numbers["plain"], 0)


Plant = Callable[[Ground], set[Found]]


def _removed_from_one_copy(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    ground.night.change(tx.enqueues[0], None, ground.night.late)
    return {("partial", tx.number)}


def _committed_on_one_node(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    ground.night.change(tx.decision, ground.filler(), ground.night.late, ground.night.tail)
    return {("half-committed", tx.number)}


def _conflicting_decisions(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    ground.night.change(tx.decision, TxDecision(tx.number, False), ground.night.tail)
    return {("two-decisions", tx.number)}


def _enqueue_missing(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    ground.night.change(tx.enqueues[1], ground.filler())
    return {("partial", tx.number)}


def _out_of_turn(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    prepare, enqueue = ground.event(tx.prepare), ground.event(tx.enqueues[1])
    ground.night.change(tx.enqueues[1], prepare)
    ground.night.change(tx.prepare, enqueue)
    return {("out-of-turn", tx.number)}


def _decided_twice(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    later = ground.mark_behind(tx.decision)
    ground.night.change(later, TxDecision(tx.number, False))
    return {("two-decisions", tx.number)}


def _dequeued_twice(ground: Ground) -> set[Found]:
    first, second = sorted((ground.transaction(), ground.transaction()), key=lambda tx: tx.decision)
    taken = ground.event(first.dequeue).entries
    ground.night.change(second.dequeue, msgspec.structs.replace(ground.event(second.dequeue), entries=taken))
    return {("dequeued-twice", taken[0][1])}


def _enqueued_twice(ground: Ground) -> set[Found]:
    message, other = ground.unsettled(), ground.unsettled()
    ground.night.change(other.position, message.event)
    return {("enqueued-twice", message.event.rid)}


def _never_enqueued(ground: Ground) -> set[Found]:
    publish, _ = ground.settled()
    ground.night.change(publish.position, ground.filler())
    return {("never-enqueued", publish.event.rid)}


def _wrong_place(ground: Ground) -> set[Found]:
    _, settle = ground.settled()
    (place, rid), *_ = settle.event.entries
    ground.night.change(settle.position, msgspec.structs.replace(settle.event, entries=[(place - 1, rid)]))
    return {("wrong-place", rid)}


def _phantom(ground: Ground) -> set[Found]:
    """Its message is taken, and it was not committed."""
    tx = ground.transaction()
    ground.night.change(tx.decision, TxDecision(tx.number, False))
    enqueue = ground.event(tx.enqueues[0])
    (queue,) = enqueue.queues
    later = ground.mark_behind(tx.decision)
    ground.night.change(later, Settle(queue, [(place_of(tx.decision), enqueue.rid)], 1))
    return {("phantom", enqueue.rid)}


def _content_differs(ground: Ground) -> set[Found]:
    message = ground.unsettled()
    other = msgspec.structs.replace(message.event.message, body=b"otherwise")
    ground.night.change(message.position, msgspec.structs.replace(message.event, message=other), ground.night.late)
    return {("differs", "plain")}


def _reordered_on_one_node(ground: Ground) -> set[Found]:
    feeds = [at for at, stored in ground.shared.items() if ground._puts_into(stored, "feed")][-2:]
    first, second = (ground.event(at) for at in feeds)
    ground.night.change(feeds[0], second, ground.night.tail)
    ground.night.change(feeds[1], first, ground.night.tail)
    return {("differs", "feed")}


def _hole(ground: Ground) -> set[Found]:
    at = ground.mark()
    ground.night.change(at, None)
    return {("hole", at)}


def _undone(ground: Ground) -> set[Found]:
    """The node that was cut off had handed out what it held alone."""
    log = ground.night.logs[ground.night.tail]
    last = log[max(log)]
    publish = next(
        s for at, s in sorted(log.items()) if isinstance(s.event, Publish) and s.event.message.body == b"unheard"
    )
    settle = Settle(publish.event.queues[0], [(place_of(publish.position), publish.event.rid)], 1)
    log[last.position + 1] = Stored(last.generation, last.position + 1, last.time_ms, settle)
    return {("undone", publish.position)}


def _lost(ground: Ground) -> set[Found]:
    attempt = ground.night.history.begin("loser")
    ground.night.history.publishing(attempt, "billing")
    ground.night.history.answer(attempt, OK)
    return {("lost", attempt.id)}


def _halved(ground: Ground) -> set[Found]:
    attempt = ground.committed()
    attempt.messages[f"{attempt.id}/more"] = "stock"
    return {("halved", attempt.id)}


def _committed_after_all(ground: Ground) -> set[Found]:
    attempt = ground.committed()
    attempt.outcome = FAILED
    return {("committed-after-all", attempt.id)}


def _told_otherwise(ground: Ground) -> set[Found]:
    attempt = ground.rolled_back()
    attempt.outcome = OK
    return {("told-otherwise", attempt.id)}


def _seen_phantom(ground: Ground) -> set[Found]:
    attempt = ground.rolled_back()
    message, queue = next(iter(attempt.messages.items()))
    ground.night.history.sightings.append(Sighting(queue, message, False, 1.0))
    return {("phantom", message)}


def _from_nowhere(ground: Ground) -> set[Found]:
    attempt = ground.order()
    ground.night.history.attempts.remove(attempt)
    return {("from-nowhere", *attempt.messages)}


def _out_of_order(ground: Ground) -> set[Found]:
    later, earlier = ground.order(), ground.order()
    earlier.number, later.number = later.number, earlier.number
    return {("out-of-order", *earlier.messages)}


def _twice_under_two_ids(ground: Ground) -> set[Found]:
    attempt, other = ground.order(), ground.order()
    ground.night.history.attempts.remove(other)
    (message,), (gone,) = attempt.messages, other.messages
    at = next(
        p for p, s in ground.shared.items() if isinstance(s.event, Publish) and s.event.message.body == gone.encode()
    )
    publish = ground.event(at)
    body = msgspec.structs.replace(publish.message, body=message.encode())
    ground.night.change(at, msgspec.structs.replace(publish, message=body))
    return {("enqueued-twice", message)}


PLANTS: tuple[Plant, ...] = (
    _removed_from_one_copy, _committed_on_one_node, _conflicting_decisions, _enqueue_missing, _out_of_turn,
    _decided_twice, _dequeued_twice, _enqueued_twice, _never_enqueued, _wrong_place, _phantom, _content_differs,
    _reordered_on_one_node, _hole, _undone, _lost, _halved, _committed_after_all, _told_otherwise, _seen_phantom,
    _from_nowhere, _out_of_order, _twice_under_two_ids, *branch_plants.PLANTS,
)  # fmt: skip

HOLES = (_removed_from_one_copy, _hole)
"""Those with which a log cannot be read"""


def plant(night: Night, left_out: Collection[Plant] = ()) -> set[Found]:
    """All of them, none touching what another one touched."""
    ground = Ground(night)
    return set().union(*(each(ground) for each in PLANTS if each not in left_out))


def subject(finding: dict[str, Any]) -> Found:
    """What a finding is about, as the plants say it."""
    name = finding["name"]
    by = {"hole": "position", "undone": "position", "from-nowhere": "message", "out-of-order": "message"}.get(name)
    if name == "phantom" and finding["message"]:
        by = "message"
    about = [by] if by else ["attempt", "message", "replication_id", "transaction", "globally", "queue", "position"]
    return name, next(finding[each] for each in about if finding[each] is not None)
