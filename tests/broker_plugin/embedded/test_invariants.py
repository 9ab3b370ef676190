"""Each kind of invariant of the embedded broker fails on a state that is broken on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker_plugin.embedded.invariants import QUEUES, check_serving
from broker_plugin.embedded.queues.durable_queue import DurableQueue
from broker_plugin.embedded.topology.topology import Route
from tests.broker_plugin.embedded.harness import Harness, queue_of
from tests.support.invariants import unchecked
from txobserver.events import Removal
from txobserver.invariants import DEEP_EVERY, DeepChecks, InvariantBroken, checking

pytestmark = pytest.mark.plain

Break = Callable[[Harness, DurableQueue, Any], Any]


def put(target: Any, **values: Any) -> None:
    for name, value in values.items():
        setattr(target, name, value)


BROKEN: dict[str, tuple[str, Break]] = {
    "a queue that counts too much": ("P7", lambda h, q, c: put(q, total=q.total + 1)),
    "more out than there is": ("P3", lambda h, q, c: q._out.update(dict.fromkeys(range(99), 1))),
    "a watermark that fell": ("P3", lambda h, q, c: put(q, watermark=-1)),
    "asked for less than is given": ("P3", lambda h, q, c: put(q, _asked=-1)),
    "handed out behind the watermark": ("P3", lambda h, q, c: put(q, watermark=q._old_watermark)),
    "a window that counts nothing": ("P12", lambda h, q, c: put(q._supply, window_bytes=-1)),
    "a window counted otherwise": ("P12", lambda h, q, c: put(q._supply, window_bytes=q._supply.window_bytes + 1)),
    "a window out of order": ("P8", lambda h, q, c: q._supply.window.reverse()),
    "a window behind its cursor": ("P8", lambda h, q, c: put(q._supply, _cursor=0)),
    "a window of what is out": ("P3", lambda h, q, c: q._out.update({q._supply.window[0][0]: 1})),
    "given back and out": ("P3", lambda h, q, c: q._supply.given_back.entries.append((next(iter(q._out)), 1))),
    "more on the way than was announced": ("P3", lambda h, q, c: put(q, _coming=q._announced + 1)),
    "less than nothing on the way": ("P3", lambda h, q, c: put(q, _coming=-1)),
    "settled and not out": ("P3", lambda h, q, c: q._settled.update({Removal.ACKED: [(1, 1)]})),
    "held less than never": ("P12", lambda h, q, c: put(q, _held=-1)),
    "all windows": ("P12", lambda h, q, c: put(q._supply._windows, held=-1)),
    "a queue that is gone": ("P4", lambda h, q, c: put(q, deleted=True)),
    "a queue of another number": ("P2", lambda h, q, c: put(q, number=0)),
    "a queue that is not served": ("P7", lambda h, q, c: h.broker.numbered.clear()),
    "a client below zero": ("P12", lambda h, q, c: put(c.channel.session, in_flight=-1)),
    "publishes below zero": ("P12", lambda h, q, c: put(c.channel, _publishing=-1)),
    "a delivery that never was": ("P3", lambda h, q, c: put(c.channel, last_tag=0)),
    "held below zero": ("P12", lambda h, q, c: put(c.channel, held=-1)),
    "held by two": (
        "P3",
        lambda h, q, c: put(h.client().channel, unacked=c.channel.unacked, last_tag=9, held=2),
    ),
    "a channel that has ended": ("P3", lambda h, q, c: put(c.channel, closed=True)),
    "a consumer of another tag": ("P5", lambda h, q, c: put(next(iter(c.channel.consumers.values())), tag="other")),
    "a held message that is not out": ("P3", lambda h, q, c: q._out.clear()),
    "confirmed and waiting": (
        "P11",
        lambda h, q, c: (c.channel.mode.confirms._open.update({1: None}), c.channel.mode.confirms._accepted.append(1)),
    ),
    "confirmed twice": ("P11", lambda h, q, c: c.channel.mode.confirms._accepted.extend([1, 1])),
    "no default exchange": ("P12", lambda h, q, c: h.broker.topology.exchanges.pop("")),
    "a binding from nowhere": ("P5", lambda h, q, c: h.broker.topology._from.update({"x": {1: 1}})),
    "a route to nowhere": ("P5", lambda h, q, c: h.broker.topology.routes.update({("", "z"): Route((99,), ())})),
    "an exchange of another name": ("P5", lambda h, q, c: put(h.broker.topology.exchanges["amq.direct"], name="z")),
    "a waiting operation that is none": ("P12", lambda h, q, c: h.broker.locks._waiting.update({"q": [1]})),
    "a branch under another name": ("P6", lambda h, q, c: h.broker.branches._known.update({1: Nothing()})),
    "memory counted otherwise": ("P12", lambda h, q, c: put(h.broker.memory, held=1)),
    "memory below zero": ("P12", lambda h, q, c: h.broker.memory.shared.hold(4, -1)),
    "queues counted otherwise": ("P12", lambda h, q, c: h.broker.memory.shared.hold(3, 1)),
    "a local queue counted otherwise": ("P12", lambda h, q, c: (c.declare("l", False), put(local_of(h), bytes=7))),
    "a unit of work counted otherwise": ("P12", lambda h, q, c: put(in_transaction(h), waiting_bytes=7)),
    "served from nothing": ("P2", lambda h, q, c: put(h.broker, _content=None)),
    "served while not the primary": ("P10", lambda h, q, c: put(h.broker, _ledger=None)),
}


def local_of(harness: Harness) -> Any:
    return harness.broker.topology.queues["l"]


def in_transaction(harness: Harness) -> Any:
    client = harness.client()
    client.channel.mode.select_tx()
    return client.channel.mode.work


class Nothing:
    """No branch."""

    xid = 0
    state = "active"


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_broker_is_found(kind: str) -> None:
    promise, do = BROKEN[kind]
    harness = Harness()
    client = harness.client()
    client.declare("q")
    client.channel.mode.select_confirms()
    client.publish("q", b"1", b"2", b"3", b"4", b"5", b"6")
    client.channel.qos(2, False)
    client.channel.consume("q", "c", False, False, {})
    harness.settle()
    queue = queue_of(harness)
    assert len(queue._out) == 2 and len(queue._supply.window) == 4
    check_serving(harness.broker, list(harness.broker._sessions), True)
    do(harness, queue, client)
    with pytest.raises(InvariantBroken) as found, checking("a test"):
        check_serving(harness.broker, list(harness.broker._sessions), True)
    assert found.value.promise == promise


def test_a_broker_is_looked_at_after_each_turn_and_all_of_it_once_in_a_while() -> None:
    """Where that is on. A queue beyond those that were declared last is looked at by a walk through everything."""
    harness = Harness()
    client = harness.client()
    for number in range(QUEUES + 1):
        client.declare(f"q{number}")
    harness.settle()
    checks: Any = harness.broker._checks
    newest, oldest = (harness.broker.topology.queues[f"q{number}"] for number in (QUEUES, 0))
    newest.total += 1
    with unchecked():
        harness.broker.end_of_turn()
    with pytest.raises(InvariantBroken, match="P7"):
        harness.broker.end_of_turn()
    newest.total -= 1
    oldest.total += 1
    checks._deep_checks = DeepChecks()
    for _ in range(DEEP_EVERY - 1):
        harness.broker.end_of_turn()
    with pytest.raises(InvariantBroken, match="P7"):
        harness.broker.end_of_turn()
