"""TxBuffer and TransactionObserver, one rule a test."""

from __future__ import annotations

from typing import Any

import pytest

from txobserver.events import (
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Message,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxEvent,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.ids import LAST_SEQUENCE, MAX_OPEN_BYTES, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_EVENTS, offset_of
from txobserver.observer import TransactionObserverFactory
from txobserver.table import IllegalTransition
from txobserver.tx_buffer import ABORTED, COMMITTED, OPEN, PREPARED, DtxBuffer, TxBuffer, opened_by
from txobserver.work_limits import OpenWork, WorkLimits
from txobserver.xid import Xid

MESSAGE = Message("", "k", b"", b"x")
X = Xid(1, b"g", b"b")


def buffer() -> TxBuffer:
    built = TxBuffer(7, 1)
    built.add(2, TxEnqueue(7, 100, (1, 2), MESSAGE))
    built.add(4, TxDequeue(7, 3, [(9, 9)], 1))
    return built


def branch() -> DtxBuffer:
    built = DtxBuffer(7, 1, X)
    built.add(2, TxEnqueue(7, 100, (1, 2), MESSAGE))
    built.add(6, DtxPrepare(7, 1, ["a"], 8))
    return built


def since(built: TxBuffer, sequence: int) -> list[tuple[int, TxEvent]]:
    return [each for run in built.between(sequence, LAST_SEQUENCE) for each in run]


def test_states() -> None:
    built = buffer()
    assert built.state == OPEN and not built.complete
    built.add(5, TxPrepare(7, 2, ["a"]))
    assert built.state == PREPARED and built.complete
    built.add(6, TxDecision(7, True))
    assert built.state == COMMITTED and built.queues() == {1, 2, 3}
    assert [offset for offset, _ in built.placed()] == [offset_of(6, 0), offset_of(6, 1)]


def test_a_missing_event_makes_it_incomplete() -> None:
    built = buffer()
    built.add(5, TxPrepare(7, 3, ["a"]))
    assert not built.complete


@pytest.mark.parametrize("event", [TxDecision(7, True), TxOpen(7)])
def test_what_cannot_come_while_open(event: TxEvent) -> None:
    with pytest.raises(IllegalTransition):
        buffer().add(5, event)


@pytest.mark.parametrize("event", [TxEnqueue(7, 1, (1,), MESSAGE), TxPrepare(7, 2, []), TxDequeue(7, 1, [], 1)])
def test_a_closed_tx_queue_takes_nothing(event: TxEvent) -> None:
    built = buffer()
    built.add(5, TxPrepare(7, 2, ["a"]))
    with pytest.raises(IllegalTransition):
        built.add(6, event)


def test_an_open_one_can_be_aborted() -> None:
    built = buffer()
    built.add(5, TxDecision(7, False))
    assert built.state == ABORTED


@pytest.mark.parametrize(
    ("last", "state", "events"), [(6, COMMITTED, 2), (5, PREPARED, 2), (4, OPEN, 2), (3, OPEN, 1), (1, OPEN, 0)]
)
def test_truncate(last: int, state: str, events: int) -> None:
    built = buffer()
    built.add(5, TxPrepare(7, 2, ["a"]))
    built.add(6, TxDecision(7, True))
    assert built.truncate(last)
    assert built.state == state and len(built.events) == events
    decided, count = (6 if last >= 6 else None), (2 if last >= 5 else 0)
    assert (built.decided, built.count) == (decided, count), "what is read of it afterwards is as if it had not come"


@pytest.mark.parametrize(("last", "stays", "state"), [(7, True, COMMITTED), (6, True, PREPARED), (5, False, OPEN)])
def test_truncate_a_branch(last: int, stays: bool, state: str) -> None:
    built = branch()
    built.add(7, DtxDecision(7, True, False, 9))
    assert built.truncate(last) and built.name == X
    assert (built.stays, built.state) == (stays, state)
    if not stays:
        built.add(6, TxPrepare(7, 1, ["a"]))
        assert not built.stays, "one phase now"


@pytest.mark.parametrize(("last", "name"), [(4, b"token"), (3, b"token"), (2, None)])
def test_truncate_a_token(last: int, name: bytes | None) -> None:
    built = TxBuffer(7, 1)
    built.add(2, TxEnqueue(7, 100, (1, 2), MESSAGE))
    built.add(3, TxToken(7, b"token"))
    built.add(4, TxEnqueue(7, 101, (1, 2), MESSAGE))
    assert built.truncate(last) and built.name == name
    assert [TxToken(7, b"token")] * (name is not None) == [e for _, e in since(built, 0) if isinstance(e, TxToken)]


def test_what_is_prepared_takes_no_token() -> None:
    built = buffer()
    built.add(5, TxPrepare(7, 2, ["a"]))
    with pytest.raises(IllegalTransition):
        built.add(6, TxToken(7, b"token"))
    assert built.name is None


@pytest.mark.parametrize("event", [TxToken(7, b"token"), DtxOpen(7, X)])
def test_what_a_branch_does_not_take(event: TxEvent) -> None:
    with pytest.raises(IllegalTransition):
        DtxBuffer(7, 1, X).add(2, event)


@pytest.mark.parametrize("event", [DtxPrepare(7, 2, [], 1), DtxOpen(7, X)])
def test_what_a_plain_transaction_does_not_take(event: TxEvent) -> None:
    with pytest.raises(IllegalTransition):
        buffer().add(5, event)


def test_a_branch_s_since_gives_what_rebuilds_it() -> None:
    events = since(branch(), 0)
    again = opened_by(events[0][1], events[0][0])
    for sequence, event in events[1:]:
        again.add(sequence, event)
    assert since(again, 0) == events and again.stays and again.name == X


def test_truncate_before_its_opening_leaves_nothing() -> None:
    assert not buffer().truncate(0)


def test_since_gives_what_rebuilds_it() -> None:
    built = buffer()
    built.add(5, TxPrepare(7, 2, ["a"]))
    again = TxBuffer(7, 1)
    for sequence, event in since(built, 0)[1:]:
        again.add(sequence, event)
    assert again.events == built.events and again.state == PREPARED
    assert [sequence for sequence, _ in since(built, 2)] == [4, 5]


class Sink:
    def __init__(self) -> None:
        self.events: list[TxEvent] = []
        self.ended: list[tuple[str, int]] = []

    def tx_event(self, event: TxEvent) -> None:
        self.events.append(event)

    def tx_commit(self, tx: int, count: int, done: object) -> None:
        self.ended.append(("commit", count))

    def tx_rollback(self, tx: int) -> None:
        self.ended.append(("rollback", tx))

    def in_use(self, name: object) -> bool:
        return False


def test_the_observer_opens_its_tx_queue_with_the_first_event() -> None:
    sink = Sink()
    factory = TransactionObserverFactory(3, sink, lambda: 1)
    observer = factory.begin()
    assert sink.events == []
    observer.enqueue([1], MESSAGE)
    assert [type(event) for event in sink.events] == [TxOpen, TxEnqueue]
    observer.commit(lambda error: None)
    assert sink.ended == [("commit", 1)]
    with pytest.raises(ValueError, match="has ended"):
        observer.enqueue([1], MESSAGE)
    with pytest.raises(ValueError, match="has ended"):
        observer.name(b"token")


def test_a_token_is_open_until_its_transaction_ends() -> None:
    factory = TransactionObserverFactory(3, Sink(), lambda: 1)
    observer = factory.begin(b"token")
    observer.enqueue([1], MESSAGE)
    assert factory.is_open(b"token") and not factory.is_open(b"another")
    factory.ended(b"token")
    assert not factory.is_open(b"token")


def test_what_is_acknowledged_counts_no_bytes() -> None:
    factory = TransactionObserverFactory(3, Sink(), lambda: 1)
    factory.begin().dequeue(1, [(9, 9)])
    assert factory.open_bytes == 0


def test_an_empty_transaction_costs_nothing() -> None:
    sink, answers = Sink(), []
    TransactionObserverFactory(3, sink, lambda: 1).begin().commit(answers.append)
    assert answers == [None] and sink.events == [] and sink.ended == []


def test_transaction_ids_differ_between_generations() -> None:
    first = TransactionObserverFactory(3, Sink(), lambda: 1)
    second = TransactionObserverFactory(4, Sink(), lambda: 1)
    assert len({first.begin().tx, first.begin().tx, second.begin().tx, second.begin().tx}) == 4


class TestSize:
    """What nodes hold of open transactions is bounded; a transaction that goes beyond it is rolled back at once, and
    its client told why."""

    def factory(self) -> tuple[TransactionObserverFactory, Sink]:
        sink = Sink()
        return TransactionObserverFactory(1, sink, iter(range(1, 1 << 30)).__next__), sink

    @pytest.mark.parametrize("headers", [False, True])
    def test_of_one_transaction(self, headers: bool) -> None:
        """Headers count as bodies do: a client can fill a node's memory with either."""
        factory, sink = self.factory()
        large = b"x" * (MAX_TRANSACTION_BYTES // 4)
        observer, body = factory.begin(), Message("", "k", large if headers else b"", b"" if headers else large)
        for _ in range(7):
            observer.enqueue((1,), body)
        assert [type(event) for event in sink.events] == [TxOpen, *[TxEnqueue] * 4]
        assert sink.ended == [("rollback", observer.tx)], "at once"
        answers: list[str | None] = []
        observer.commit(answers.append)
        assert "more than the 268435456 bytes" in str(answers)
        assert factory.open_bytes == 0 and len(sink.ended) == 1

    def test_of_all_transactions_together(self) -> None:
        factory, sink = self.factory()
        body = Message("", "k", b"", b"x" * (MAX_TRANSACTION_BYTES // 2))
        observers = [factory.begin() for _ in range(MAX_OPEN_BYTES // len(body.body) + 1)]
        for observer in observers:
            observer.enqueue((1,), body)
        answers: list[str | None] = []
        observers[-1].commit(answers.append)
        assert "all open transactions" in str(answers) and sink.ended == []
        observers[0].rollback()
        another = factory.begin()
        another.enqueue((1,), body)
        another.commit(answers.append)
        assert sink.ended == [("rollback", observers[0].tx), ("commit", 1)], "there is room again"

    def test_of_one_client(self) -> None:
        """Its transactions and its branches together; another client's are not held against it."""
        sink, client = Sink(), OpenWork()
        limits = WorkLimits(bytes=60, client_bytes=100, open_bytes=180)
        factory = TransactionObserverFactory(1, sink, lambda: 1, limits)
        body = Message("", "k", b"", b"x" * 50)
        first = factory.begin(client=client)
        second = factory.begin_branch(Xid(1, b"g", b"b"), sink, client)  # type: ignore[arg-type]
        first.enqueue((1,), body)
        second.enqueue((1,), body)
        assert (client.open_bytes, client.open_events) == (factory.open_bytes, factory.open_events) == (100, 2)
        answers: list[str | None] = []
        third = factory.begin(client=client)
        third.enqueue((1,), Message("", "k", b"", b"x"))
        third.commit(answers.append)
        assert "of this connection would have more than the 100 bytes" in str(answers)
        other = factory.begin()
        other.enqueue((1,), body)
        other.commit(answers.append)
        first.rollback()
        second.rollback(answers.append)
        assert (client.open_bytes, client.open_events, factory.open_bytes, factory.open_events) == (0, 0, 0, 0)

    def test_limits_are_those_that_were_given(self) -> None:
        sink, answers = Sink(), list[str | None]()
        factory = TransactionObserverFactory(1, sink, lambda: 1, WorkLimits(events=2, bytes=10, open_bytes=12))
        for sizes in ([1, 1, 1], [11], [7], [6]):
            observer = factory.begin()
            for size in sizes:
                observer.enqueue((1,), Message("", "k", b"", b"x" * size))
            if sizes != [7]:
                observer.commit(answers.append)
        said = ["more than the 2 events", "more than the 10 bytes", "would have more than 12 bytes"]
        assert len(answers) == 3 and all(text in str(answer) for text, answer in zip(said, answers, strict=True))

    def test_an_aborted_transaction_is_counted_no_more_and_once(self) -> None:
        client = OpenWork()
        factory = TransactionObserverFactory(1, Sink(), lambda: 1, WorkLimits(bytes=10))
        observer = factory.begin(client=client)
        observer.enqueue((1,), Message("", "k", b"", b"x" * 9))
        observer.enqueue((1,), Message("", "k", b"", b"x" * 9))
        assert (client.open_bytes, client.open_events, factory.open_events) == (0, 0, 0)
        observer.rollback()
        assert (client.open_bytes, client.open_events, factory.open_events) == (0, 0, 0)

    def test_of_events(self) -> None:
        factory, sink = self.factory()
        observer = factory.begin()
        for _ in range(MAX_TRANSACTION_EVENTS + 1):
            observer.dequeue(1, [])
        answers: list[str | None] = []
        observer.commit(answers.append)
        assert "more than the 1048576 events" in str(answers)
        assert sink.ended == [("rollback", observer.tx)]


class TestSince:
    """What a joiner is sent of an open transaction makes the same buffer there."""

    def named(self) -> TxBuffer:
        built = buffer()
        built.add(5, TxToken(7, b"token"))
        built.add(8, TxPrepare(7, 2, ["a", "b"]))
        return built

    @pytest.mark.plain
    @pytest.mark.parametrize("make", [buffer, branch, "named"])
    def test_all_of_it_leads_to_the_same(self, make: Any) -> None:
        built = self.named() if make == "named" else make()
        (first, opening), *rest = since(built, 0)
        again = opened_by(opening, first)
        for sequence, event in rest:
            again.add(sequence, event)
        assert type(again) is type(built) and vars(again) == vars(built)

    @pytest.mark.parametrize(
        ("sequence", "sent"),
        [(0, {1, 2, 4, 5, 8}), (1, {2, 4, 5, 8}), (4, {5, 8}), (5, {8}), (7, {8}), (8, set()), (9, set())],
    )
    def test_only_what_stands_behind_that_sequence(self, sequence: int, sent: set[int]) -> None:
        assert {at for at, _ in since(self.named(), sequence)} == sent
