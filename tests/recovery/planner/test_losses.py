"""Lost events by name, also where the beginning of a transaction stands in what cannot be read."""

from __future__ import annotations

from recovery.planner.losses import Located, losses
from tests.support.logs import message
from txobserver.configuration import delete_queue_step, queue_step
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    Event,
    Forget,
    GenerationStart,
    GlobalDecision,
    GlobalForget,
    Publish,
    Purge,
    Settle,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.ids import Position, generated_id
from txobserver.xid import Xid

X, T, U = Xid(1, b"g", b"b"), generated_id(2, 1), generated_id(2, 2)
R, S = generated_id(2, 8), generated_id(2, 9)


def told(*events: Event, lost_from: int = 1, names: dict[int, str] | None = None) -> list[tuple[str, str, str]]:
    """Kind, name and words of what is lost with the events from that one on."""
    located = [
        Located(Position(2, number), event, number >= lost_from, ("c",)) for number, event in enumerate(events, 1)
    ]
    return [(loss.kind, loss.name, loss.what) for loss in losses(located, names or {1: "in", 2: "out"})]


def put(tx: int, *queues: int) -> TxEnqueue:
    return TxEnqueue(tx, R, queues, message("m"))


def test_a_transaction_is_lost_with_its_decision() -> None:
    work = (TxOpen(T), put(T, 2), put(T, 1, 2), TxDequeue(T, 1, [(5, R), (6, S)], 1), TxPrepare(T, 3, []))
    lost = [("transaction", "2-1", "puts in 1, out 2, takes in 2")]
    assert told(*work, TxDecision(T, True)) == told(*work, TxDecision(T, True), lost_from=6) == lost
    assert told(*work, TxDecision(T, True), lost_from=7) == []
    assert told(*work, TxDecision(T, False)) == told(*work) == [], "rolled back, or never decided"


def test_a_token_names_it() -> None:
    events = (TxOpen(T), TxToken(T, b"order"), put(T, 1), TxPrepare(T, 1, []), DtxDecision(T, True, False, 0))
    assert told(*events) == [("transaction", "2-1 (token b'order')", "puts in 1")]


def test_what_of_it_cannot_be_read_is_counted() -> None:
    assert told(put(T, 2), TxPrepare(T, 3, []), TxDecision(T, True)) == [
        ("transaction", "2-1", "puts out 1, and 2 events that cannot be read")
    ]
    assert told(TxDecision(T, True)) == [("transaction", "2-1", "")]


def test_branches() -> None:
    opened, prepare = (DtxOpen(T, X), put(T, 2)), DtxPrepare(T, 1, [], 0)
    commit, by_hand = DtxDecision(T, True, False, 0), DtxDecision(T, False, True, 0)
    assert told(*opened, prepare, lost_from=3) == [("prepared branch", "1:g:b", "puts out 1")]
    assert told(*opened, prepare, lost_from=4) == []
    assert told(*opened, prepare, commit, lost_from=3) == [("transaction", "1:g:b", "puts out 1")]
    [(kind, name, what)] = told(*opened, prepare, commit, lost_from=4)
    assert (kind, name, what) == ("decision on a branch", "1:g:b", "commit; the branch would be in doubt again")
    assert told(*opened, prepare, by_hand, lost_from=4)[0][2].startswith("rollback by an operator;")
    assert told(*opened, prepare, by_hand, lost_from=3) == [], "prepared and rolled back: nothing is lost"


def test_what_is_outside_of_transactions() -> None:
    declared = queue_step("new", False, {})
    events = (
        GenerationStart(2, "c", ["c"]),
        Configure(7, declared.operation, "new", declared.arguments),
        Publish(R, (1, 7), message("m")),
        Settle(1, [(5, R), (6, S)], 1),
        Settle(9, [(6, S)], 1),
        Delivered(1, 6),
        Purge(2, 99, []),
        GlobalDecision(1, b"g", False, 0),
        Forget(X),
        GlobalForget(1, b"g"),
        delete_queue_step("new"),
    )
    assert told(*events) == [
        ("configuration", "new", "queue.declare"),
        ("message", "2-8", "to in, new"),
        ("settlement", "2-8 and 1 more", "of in: would come again"),
        ("settlement", "2-9", "of queue 9: would come again"),
        ("purge", "out", "its messages would be there again"),
        ("decision on a global transaction", "1:g", "rollback"),
        ("forgotten outcome", "1:g:b", "its outcome would be remembered again"),
        ("forgotten outcome", "1:g", "its outcome would be remembered again"),
        ("configuration", "new", "queue.delete"),
    ]
    assert told(*events, lost_from=99) == []
