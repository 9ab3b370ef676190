"""A decision, or another great event, that is applied in parts is one step for every reader (``ha.apply.applier``)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ha.apply.applied import Applied
from ha.apply.checkpointing import Checkpointing
from ha.apply.replica import Replica
from ha.effects import Effect, WriteCheckpoint
from ha.settings import Settings
from tests.support.messages import TEXT
from tests.support.operations import lines_of
from txobserver.configuration import queue_step
from txobserver.events import (
    Configure,
    Event,
    GenerationStart,
    Message,
    Publish,
    Removal,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
)
from txobserver.ids import offset_of
from txobserver.ports.store import MemoryBase, Meta


def numbered(config_id: int, step: Configure) -> Configure:
    return Configure(config_id, step.operation, step.name, step.arguments)


BEFORE: list[Event] = [
    GenerationStart(1, "a", ["a"]),
    *(numbered(at, queue_step(name, False, {})) for at, name in ((1, "q"), (2, "r"))),
    *(Publish(rid, (1,), TEXT) for rid in range(100, 110)),
]
LEFT = [(offset_of(4 + at), 100 + at) for at in range(10)]


class Told(Applied):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def step_begins(self) -> None:
        self.said.append("begins")

    def step_ends(self) -> None:
        self.said.append("ends")

    def enqueued(self, queue: int, offset: int, rid: int, message: Message) -> None:
        self.said.append(f"{rid} in {queue}")

    def removed(self, queue: int, entries: Sequence[tuple[int, int]], reason: Removal) -> None:
        self.said.extend(f"{rid} out" for _, rid in entries)


def replica_with(*events: Event) -> Replica:
    replica = Replica(MemoryBase(), Meta(), {})
    for event in (*BEFORE, *events):
        replica.append(1, event)
    replica.durable = replica.tail.sequence
    return replica


def transaction(tx: int = 7) -> list[Event]:
    """It takes ten messages out of q, in one event, and puts five into r and q."""
    enqueues = [TxEnqueue(tx, 200 + number, (2, 1) if number == 2 else (2,), TEXT) for number in range(4)]
    body: list[Event] = [TxDequeue(tx, 1, list(LEFT), int(Removal.ACKED)), *enqueues]
    return [TxOpen(tx), *body, TxPrepare(tx, len(body), ["a"]), TxDecision(tx, True)]


def summaries(replica: Replica) -> dict[int, tuple[int, int]]:
    contents = replica.contents
    alone = {queue: contents.queues.summary(queue) for queue in (1, 2)}
    assert contents.queues.summaries() == alone
    return {queue: (each.count, each.digest) for queue, each in alone.items()}


@pytest.mark.plain
@pytest.mark.parametrize("most", [1, 2, 3, 7, 14])
def test_no_reader_sees_half_of_it(most: int) -> None:
    """``half_a_decision_is_counted``: until the last part is done the replica is before the decision, and so are its
    counts and digests; then it is behind it, as a replica is that applied it in one go."""
    replica, whole, told = replica_with(*transaction()), replica_with(*transaction()), Told()
    decision = replica.tail.sequence
    replica.apply(decision - 1)
    whole.apply(decision - 1)
    before, at = summaries(replica), replica.applied
    whole.apply(decision)
    turns = 0
    while replica.due(decision):
        assert (summaries(replica), replica.applied) == (before, at)
        spent = replica.apply(decision, told, most)
        turns += 1
        assert spent <= most
        assert not replica.in_parts or (replica.begun == decision and 7 in replica.buffers)
    assert turns >= 15 // most and told.said[0] == "begins" and told.said[-1] == "ends"
    assert len(told.said) == 2 + 15, "each message once"
    assert (summaries(replica), replica.applied) == (summaries(whole), whole.applied) and not replica.buffers
    assert replica.contents.messages.ids(1) == whole.contents.messages.ids(1)
    assert replica.contents.messages.ids(2) == whole.contents.messages.ids(2)


@pytest.mark.plain
def test_what_a_turn_has_room_for_is_applied_in_one_go() -> None:
    replica, told = replica_with(*transaction()), Told()
    assert replica.apply(replica.tail.sequence - 1, told) == len(BEFORE) + 1
    assert replica.apply(replica.tail.sequence, told, 15) == 15
    assert "begins" not in told.said and not replica.due(replica.tail.sequence)
    spent = replica_with(*transaction())
    spent.apply(len(BEFORE), most=len(BEFORE))
    assert spent.apply(spent.tail.sequence, told, 15) == 15 and not spent.in_parts, "the next turn has room for it"
    assert spent.apply(spent.tail.sequence, told, 15) == 15 and spent.applied == spent.tail


def test_nothing_behind_it_is_applied_before_it_is_whole() -> None:
    replica = replica_with(*transaction(), Publish(300, (1,), TEXT))
    last = replica.tail.sequence
    replica.apply(last - 2)
    before = summaries(replica)
    while replica.due(last):
        replica.apply(last, most=4)
        assert replica.in_parts == (replica.applied.sequence < last - 1)
        assert not replica.in_parts or summaries(replica) == before
    assert replica.applied.sequence == last and summaries(replica)[1][0] == 2


def test_what_has_begun_is_finished_whatever_the_commit_point_is_told_to_be() -> None:
    """``a_step_down_in_the_middle_of_a_decision``: who follows another primary then knows of no commit point yet."""
    replica = replica_with(*transaction())
    decision = replica.tail.sequence
    replica.apply(decision - 1)
    replica.apply(decision, most=6)
    assert replica.in_parts and replica.due(0)
    with pytest.raises(AssertionError, match="never cut"):
        replica.truncate(decision - 1)
    while replica.due(0):
        replica.apply(0, most=6)
    assert replica.applied.sequence == decision


def test_a_checkpoint_waits_for_its_end_and_goes_before_the_next() -> None:
    """``a_checkpoint_in_the_middle_of_a_decision``: a crash behind it would leave half of the transaction for ever."""
    replica = replica_with(*transaction(), *(TxOpen(8), TxEnqueue(8, 400, (1, 2, 2), TEXT), TxPrepare(8, 1, ["a"])))
    replica.append(1, TxDecision(8, True))
    replica.durable = last = replica.tail.sequence
    effects: list[Effect] = []
    checkpointing = Checkpointing(replica, Settings(checkpoint_every=1.0), effects.append)
    replica.apply(last, most=len(BEFORE) + 1)
    replica.apply(last, most=5)
    assert replica.in_parts
    with pytest.raises(AssertionError, match="whole, or nothing of it"):
        replica.checkpoint()
    checkpointing.tick(10.0)
    assert not effects
    for _ in range(20):
        replica.apply(last, most=5)
    assert not replica.in_parts and not replica.due(last) and replica.applied.sequence == last - 4
    checkpointing.tick(10.02)
    assert [type(each) for each in effects] == [WriteCheckpoint] and replica.due(last)
    replica.apply(last, most=5)
    assert replica.applied.sequence == last


def test_a_copy_that_overwrites_the_queues_ends_it() -> None:
    replica = replica_with(*transaction())
    replica.apply(replica.tail.sequence - 1)
    replica.apply(replica.tail.sequence, most=5)
    replica.begin_resync()
    assert not replica.in_parts and summaries(replica)[1][0] == 5, "what is there is told as it is"


@pytest.mark.plain
@pytest.mark.parametrize("event", [Settle(1, list(LEFT), int(Removal.ACKED)), Publish(200, (1, 2) * 5, TEXT)])
def test_a_settlement_of_many_and_a_message_to_many_queues_are_applied_in_parts(event: Event) -> None:
    """``a_settlement_of_ten_thousand_in_one_turn``, ``a_message_to_ten_thousand_queues_in_one_turn``"""
    replica, whole, told = replica_with(event), replica_with(event), Told()
    last = replica.tail.sequence
    replica.apply(last - 1)
    whole.apply(last)
    before, at = summaries(replica), replica.applied
    turns = 0
    while replica.due(last):
        assert (summaries(replica), replica.applied) == (before, at)
        assert replica.apply(last, told, 3) <= 3
        turns += 1
    assert turns == 4 and len(told.said) == 12 and told.said[0] == "begins" and told.said[-1] == "ends"
    assert (summaries(replica), replica.applied) == (summaries(whole), whole.applied)


def waiting(replica: Replica) -> int:
    return replica.contents.leftovers.waiting


@pytest.mark.parametrize("most", [4, 1000])
@pytest.mark.parametrize("commit", [True, False])
def test_what_it_held_is_let_go_of_when_it_has_ended(commit: bool, most: int) -> None:
    """``a_great_transaction_is_let_go_of_in_one_go``: 25 to 80 ms for 300,000 messages, at each node."""
    replica = replica_with(*transaction()[:-1], TxDecision(7, commit))
    events = replica.buffers[7].events
    last = replica.tail.sequence
    replica.apply(last - 1)
    while replica.due(last):
        assert len(events) == 5 and not waiting(replica)
        replica.apply(last, most=most)
    assert waiting(replica) == 5 + 10, "five events, and what the one that takes ten messages out holds"
    assert len(events) == 5 and replica.contents.leftovers.go_on(3) == 3 and len(events) == 2


def test_a_checkpoint_tells_runs_of_events_and_makes_nothing_of_each() -> None:
    """``a_checkpoint_lists_an_open_transaction_again``: 50 ms for 300,000 events. Those that end while it is written
    are in it all the same."""
    replica = replica_with(*transaction()[:-1])
    events, base = replica.buffers[7].events, MemoryBase()
    replica.apply(replica.tail.sequence)
    first = replica.checkpoint()
    assert [tx for tx, _ in first.tx_events] == [7, 7, 7]
    opening, run, closing = (events for _, events in first.tx_events)
    assert [type(event) for _, event in opening + closing] == [TxOpen, TxPrepare]
    assert len(run) == 5 and all(ours is theirs for ours, theirs in zip(run, events, strict=True))
    replica.append(1, TxDecision(7, True))
    replica.apply(replica.tail.sequence)
    assert replica.contents.leftovers.go_on() and not events and len(run) == 5
    base.write(first)
    assert [len(each) for _, each in base.load().transactions.items()] == [7]
    replica.checkpoint_written()
    assert replica.contents.leftovers.go_on() and not run
    assert replica.checkpoint().tx_events == []


@pytest.mark.plain
def test_a_checkpoint_in_a_great_transaction_costs_what_has_come_since() -> None:
    """``a_checkpoint_looks_at_an_open_transaction_again``"""

    def cost(count: int) -> int:
        replica = replica_with(TxOpen(7), *(TxEnqueue(7, 1000 + number, (2,), TEXT) for number in range(count)))
        replica.apply(replica.tail.sequence)
        replica.checkpoint()
        replica.checkpoint_written()
        replica.append(1, TxEnqueue(7, 999, (2,), TEXT))
        replica.apply(replica.tail.sequence)
        return lines_of(replica.checkpoint)

    assert cost(2000) <= cost(20) + 60, "a search by halves looks at some more"
