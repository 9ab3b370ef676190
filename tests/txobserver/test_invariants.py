"""Each kind of event that cannot be is found, by its promise; and the switch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.invariants import unchecked
from txobserver import invariants
from txobserver.configuration import DECLARE_QUEUE, DELETE_QUEUE
from txobserver.event_invariants import check_event, check_events, check_frame
from txobserver.events import (
    Configure,
    Delivered,
    DtxDecision,
    DtxOpen,
    DtxPrepare,
    GenerationStart,
    GlobalDecision,
    Message,
    Publish,
    Purge,
    Settle,
    Terms,
    TxDecision,
    TxDequeue,
    TxEnqueue,
    TxOpen,
    TxPrepare,
    TxToken,
)
from txobserver.frames import encode_frame
from txobserver.ids import generated_id
from txobserver.invariants import CHECKS, Checks, DeepChecks, InvariantBroken, checking, differ, never_falls, rises
from txobserver.xid import Xid

pytestmark = pytest.mark.plain

X = generated_id(1, 1)
LATER = generated_id(2, 1)
TEXT = Message("", "q", b"\x00\x00", b"x")

EVENTS: list[tuple[str, Any]] = [
    ("P10", GenerationStart(2, "a", [])),
    ("P10", GenerationStart(1, "", [])),
    ("P9", GenerationStart(1, "a", ["b", "b"])),
    ("P7", Configure(1, "queue.paint", "q", b"")),
    ("P7", Configure(0, DECLARE_QUEUE, "q", b"")),
    ("P7", Configure(99, DECLARE_QUEUE, "q", b"")),
    ("P7", Configure(1, DECLARE_QUEUE, "", b"")),
    ("P2", Configure(1, DECLARE_QUEUE, "q", b"", Terms())),
    ("P2", Configure(1, DELETE_QUEUE, "q", b"", Terms(unused=True))),
    ("P3", Publish(0, (1,), TEXT)),
    ("P3", Publish(LATER, (1,), TEXT)),
    ("P5", Publish(X, (), TEXT)),
    ("P3", Publish(X, (1, 1), TEXT)),
    ("P5", Publish(X, (0,), TEXT)),
    ("P5", Publish(X, (99,), TEXT)),
    ("P3", Settle(1, [], 1)),
    ("P2", Settle(1, [(5, X)], 9)),
    ("P3", Settle(1, [(5, X), (5, X)], 1)),
    ("P5", Settle(1, [(1 << 60, X)], 1)),
    ("P5", Settle(1, [(5, LATER)], 1)),
    ("P3", Settle(1, [(5, 0)], 1)),
    ("P3", Delivered(0, 5)),
    ("P3", Delivered(1, 1 << 60)),
    ("P2", Purge(0, 5, [])),
    ("P3", Purge(1, 5, [4, 4])),
    ("P3", Purge(1, 5, [3, 4], [X])),
    ("P5", Purge(1, 5, [1 << 60])),
    ("P6", TxOpen(0)),
    ("P6", TxOpen(LATER)),
    ("P3", TxEnqueue(X, 0, (1,), TEXT)),
    ("P3", TxEnqueue(X, LATER, (1,), TEXT)),
    ("P3", TxDequeue(X, 1, [], 1)),
    ("P1", TxPrepare(X, 0, ["a"])),
    ("P1", TxPrepare(X, 1 << 30, ["a"])),
    ("P11", TxPrepare(X, 1, [])),
    ("P11", TxPrepare(X, 1, ["a", "a"])),
    ("P12", DtxPrepare(X, 1, ["a"], -1)),
    ("P6", TxDecision(LATER, True)),
    ("P6", DtxDecision(X, True, False, -1)),
    ("P6", DtxOpen(X, Xid(-1, b"g", b""))),
    ("P6", DtxOpen(X, Xid(1, b"g", b"b" * 65))),
    ("P6", GlobalDecision(1, b"", True, 1)),
    ("P6", TxToken(X, b"")),
    ("P7", TEXT),
]


@pytest.mark.parametrize(
    ("promise", "event"), EVENTS, ids=lambda each: each if isinstance(each, str) else repr(each)[:40]
)
def test_an_event_that_cannot_be_is_found(promise: str, event: Any) -> None:
    with pytest.raises(InvariantBroken) as found, checking("a test"):
        check_event(10, 1, event)
    assert found.value.promise == promise and str(found.value).endswith("(a test)")


def test_a_frame_that_cannot_be_is_found() -> None:
    whole = encode_frame(1, 10, [TxOpen(X)], 5)
    check_frame(whole)
    check_events(whole)
    bent = [
        ("P7", replace(whole, count=0)),
        ("P7", replace(whole, first=0)),
        ("P10", replace(whole, generation=0)),
        ("P12", replace(whole, time_ms=-1)),
        ("P7", replace(whole, first=11)),
        ("P11", replace(whole, data=b"x" + whole.data[1:])),
        ("P11", replace(whole, data=whole.data[:-1])),
        ("P11", replace(whole, data=whole.data[:20] + b"?" + whole.data[21:])),
        ("P11", replace(whole, data=whole.data[:-1] + b"\xa5\xa5")),
    ]
    for promise, frame in bent:
        with pytest.raises(InvariantBroken) as found, checking(""):
            check_frame(frame)
        assert found.value.promise == promise


def test_a_deep_look_comes_after_the_same_number_of_transitions() -> None:
    pace = DeepChecks(3)
    assert [pace.deep() for _ in range(7)] == [False, False, True, False, False, True, False]


def test_orders_and_doubles() -> None:
    assert rises([]) and rises([1, 2]) and not rises([1, 1])
    assert never_falls([1, 1]) and not never_falls([2, 1])
    assert differ([1, 2]) and not differ([1, 1])


def test_the_switch() -> None:
    assert CHECKS.on, "tests check invariants"
    with unchecked():
        assert not CHECKS.on
    assert CHECKS.on and not Checks().on, "off, unless it is switched on"


def test_without_assertions_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = Checks()
    monkeypatch.setattr(invariants, "assertions_are_kept", lambda: False)
    with pytest.raises(RuntimeError, match="python -O"):
        checks.switch_on()
    assert not checks.on
