"""A breach of each kind, planted into the logs of a run or what its clients say; each tells what must be found."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import msgspec

from python_tests.harness.history import FAILED, OK, Sighting
from tests.recovery.pipeline.audit import branch_plants
from tests.recovery.pipeline.audit.cluster_run import ClusterRun
from tests.recovery.pipeline.audit.ground import Found, Ground
from tests.recovery.pipeline.audit.stored_logs import Stored
from txobserver.events import (
    Publish,
    Settle,
    TxDecision,
)
from txobserver.ids import offset_of

Plant = Callable[[Ground], set[Found]]


def _removed_from_one_copy(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    ground.run.stored.change(tx.enqueues[0], None, ground.run.late)
    return {("partial", tx.number)}


def _committed_on_one_node(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    ground.run.stored.change(tx.decision, ground.filler(), ground.run.late, ground.run.tail)
    return {("half-committed", tx.number)}


def _conflicting_decisions(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    ground.run.stored.change(tx.decision, TxDecision(tx.number, False), ground.run.tail)
    return {("two-decisions", tx.number)}


def _enqueue_missing(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    ground.run.stored.change(tx.enqueues[1], ground.filler())
    return {("partial", tx.number)}


def _out_of_turn(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    prepare, enqueue = ground.event(tx.prepare), ground.event(tx.enqueues[1])
    ground.run.stored.change(tx.enqueues[1], prepare)
    ground.run.stored.change(tx.prepare, enqueue)
    return {("out-of-turn", tx.number)}


def _decided_twice(ground: Ground) -> set[Found]:
    tx = ground.transaction()
    later = ground.mark_behind(tx.decision)
    ground.run.stored.change(later, TxDecision(tx.number, False))
    return {("two-decisions", tx.number)}


def _dequeued_twice(ground: Ground) -> set[Found]:
    first, second = sorted((ground.transaction(), ground.transaction()), key=lambda tx: tx.decision)
    taken = ground.event(first.dequeue).entries
    ground.run.stored.change(second.dequeue, msgspec.structs.replace(ground.event(second.dequeue), entries=taken))
    return {("dequeued-twice", taken[0][1])}


def _enqueued_twice(ground: Ground) -> set[Found]:
    message, other = ground.unsettled(), ground.unsettled()
    ground.run.stored.change(other.position, message.event)
    return {("enqueued-twice", message.event.rid)}


def _never_enqueued(ground: Ground) -> set[Found]:
    publish, _ = ground.settled()
    ground.run.stored.change(publish.position, ground.filler())
    return {("never-enqueued", publish.event.rid)}


def _wrong_place(ground: Ground) -> set[Found]:
    _, settle = ground.settled()
    (place, rid), *_ = settle.event.entries
    ground.run.stored.change(settle.position, msgspec.structs.replace(settle.event, entries=[(place - 1, rid)]))
    return {("wrong-place", rid)}


def _phantom(ground: Ground) -> set[Found]:
    """Its message is taken, and it was not committed."""
    tx = ground.transaction()
    ground.run.stored.change(tx.decision, TxDecision(tx.number, False))
    enqueue = ground.event(tx.enqueues[0])
    (queue,) = enqueue.queues
    later = ground.mark_behind(tx.decision)
    ground.run.stored.change(later, Settle(queue, [(offset_of(tx.decision), enqueue.rid)], 1))
    return {("phantom", enqueue.rid)}


def _content_differs(ground: Ground) -> set[Found]:
    message = ground.unsettled()
    other = msgspec.structs.replace(message.event.message, body=b"otherwise")
    ground.run.stored.change(message.position, msgspec.structs.replace(message.event, message=other), ground.run.late)
    return {("differs", "plain")}


def _reordered_on_one_node(ground: Ground) -> set[Found]:
    feeds = [at for at, stored in ground.shared.items() if ground._puts_into(stored, "feed")][-2:]
    first, second = (ground.event(at) for at in feeds)
    ground.run.stored.change(feeds[0], second, ground.run.tail)
    ground.run.stored.change(feeds[1], first, ground.run.tail)
    return {("differs", "feed")}


def _hole(ground: Ground) -> set[Found]:
    at = ground.mark()
    ground.run.stored.change(at, None)
    return {("hole", at)}


def _undone(ground: Ground) -> set[Found]:
    """The node that was cut off had handed out what it held alone."""
    log = ground.run.stored.logs[ground.run.tail]
    last = log[max(log)]
    publish = next(
        s for at, s in sorted(log.items()) if isinstance(s.event, Publish) and s.event.message.body == b"unheard"
    )
    settle = Settle(publish.event.queues[0], [(offset_of(publish.position), publish.event.rid)], 1)
    log[last.position + 1] = Stored(last.generation, last.position + 1, last.time_ms, settle)
    return {("undone", publish.position)}


def _lost(ground: Ground) -> set[Found]:
    attempt = ground.run.history.begin("loser")
    ground.run.history.publishing(attempt, "billing")
    ground.run.history.answer(attempt, OK)
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
    ground.run.history.sightings.append(Sighting(queue, message, False, 1.0))
    return {("phantom", message)}


def _from_nowhere(ground: Ground) -> set[Found]:
    attempt = ground.order()
    ground.run.history.attempts.remove(attempt)
    return {("from-nowhere", *attempt.messages)}


def _out_of_order(ground: Ground) -> set[Found]:
    later, earlier = ground.order(), ground.order()
    earlier.number, later.number = later.number, earlier.number
    return {("out-of-order", *earlier.messages)}


def _twice_under_two_ids(ground: Ground) -> set[Found]:
    attempt, other = ground.order(), ground.order()
    ground.run.history.attempts.remove(other)
    (message,), (gone,) = attempt.messages, other.messages
    at = next(
        p for p, s in ground.shared.items() if isinstance(s.event, Publish) and s.event.message.body == gone.encode()
    )
    publish = ground.event(at)
    body = msgspec.structs.replace(publish.message, body=message.encode())
    ground.run.stored.change(at, msgspec.structs.replace(publish, message=body))
    return {("enqueued-twice", message)}


PLANTS: tuple[Plant, ...] = (
    _removed_from_one_copy, _committed_on_one_node, _conflicting_decisions, _enqueue_missing, _out_of_turn,
    _decided_twice, _dequeued_twice, _enqueued_twice, _never_enqueued, _wrong_place, _phantom, _content_differs,
    _reordered_on_one_node, _hole, _undone, _lost, _halved, _committed_after_all, _told_otherwise, _seen_phantom,
    _from_nowhere, _out_of_order, _twice_under_two_ids, *branch_plants.PLANTS,
)  # fmt: skip

HOLES = (_removed_from_one_copy, _hole)
"""Those with which a log cannot be read"""


def plant(run: ClusterRun, left_out: Collection[Plant] = ()) -> set[Found]:
    """All of them, none touching what another one touched."""
    ground = Ground(run)
    return set().union(*(each(ground) for each in PLANTS if each not in left_out))


def subject(finding: dict[str, Any]) -> Found:
    """What a finding is about, as the plants say it."""
    name = finding["name"]
    by = {"hole": "position", "undone": "position", "from-nowhere": "message", "out-of-order": "message"}.get(name)
    if name == "phantom" and finding["message"]:
        by = "message"
    about = [by] if by else ["attempt", "message", "replication_id", "transaction", "globally", "queue", "position"]
    return name, next(finding[each] for each in about if finding[each] is not None)
