"""What a broker counts of messages: each thing once, and never less than before."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.message_counters import COUNTED, MessageCounters
from tests.broker_plugin.embedded.harness import Client, Harness, got
from txobserver.events import Removal


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def client(harness: Harness) -> Client:
    client = harness.client()
    client.declare("q")
    return client


def counted(harness: Harness) -> dict[str, int]:
    """What is not 0, but for channels."""
    shown = harness.broker.counters.shown()
    return {name: value for name, value in shown.items() if value and not name.startswith("channels")}


def test_all_that_is_counted_is_shown() -> None:
    assert vars_of(MessageCounters()) == set(COUNTED)


def vars_of(counters: MessageCounters) -> set[str]:
    return {name for name in dir(counters) if not name.startswith("_") and isinstance(getattr(counters, name), int)}


def test_publishes(harness: Harness, client: Client) -> None:
    client.publish("q", b"1", b"2")
    client.publish("nowhere", b"3")
    client.publish("nowhere", b"4", mandatory=True)
    harness.settle()
    assert counted(harness) == {"received": 4, "routed": 2, "unroutable_dropped": 1, "unroutable_returned": 1}


def test_confirms_count_when_they_are_given(harness: Harness, client: Client) -> None:
    client.channel.mode.select_confirms()
    client.publish("q", b"1", b"2")
    client.publish("nowhere", b"3")
    assert counted(harness)["confirmed"] == 1
    harness.settle()
    harness.ledger.refuse = "too few nodes are ready"
    client.publish("q", b"4")
    harness.settle()
    found = counted(harness)
    assert (found["received_confirm"], found["confirmed"]) == (4, 3)


def test_gets(harness: Harness, client: Client) -> None:
    client.publish("q", b"1", b"2", b"3")
    assert client.get("q", no_ack=True) and client.get("q", no_ack=True)
    tag = got(client.get("q")).delivery_tag
    assert client.get("q") is None
    client.channel.reject(tag, False, True)
    assert got(client.get("q")).redelivered
    found = counted(harness)
    shown = [found[name] for name in ("delivered_get_auto", "delivered_get_manual", "get_empty", "redelivered")]
    assert shown == [2, 2, 1, 1] and "acknowledged" not in found


@pytest.mark.parametrize("multiple", [False, True])
def test_deliveries_and_acknowledgements(harness: Harness, client: Client, multiple: bool) -> None:
    client.channel.consume("q", "c", False, False, {})
    client.publish("q", b"1", b"2", b"3")
    harness.settle()
    if multiple:
        client.channel.ack(3, True)
    else:
        for tag in (3, 1, 2):
            client.channel.ack(tag, False)
    harness.settle()
    found = counted(harness)
    assert (found["delivered_consume_manual"], found["acknowledged"]) == (3, 3)
    client.channel.consume("q", "d", True, False, {})
    client.channel.cancel("c")
    client.publish("q", b"4")
    harness.settle()
    assert counted(harness)["delivered_consume_auto"] == 1 and counted(harness)["acknowledged"] == 3


@pytest.mark.parametrize("reason", [None, Removal.REJECTED])
def test_what_is_not_acknowledged_is_not_counted_so(harness: Harness, client: Client, reason: Removal | None) -> None:
    client.publish("q", b"1", b"2")
    client.get("q")
    client.get("q")
    client.channel.reject(2, True, reason is None)
    harness.settle()
    assert "acknowledged" not in counted(harness)


def test_a_transaction_counts_when_it_has_committed(harness: Harness, client: Client) -> None:
    client.publish("q", b"1", b"2")
    for _ in range(2):
        client.get("q")
    client.channel.mode.select_tx()
    client.publish("q", b"3")
    client.publish("nowhere", b"4", mandatory=True)
    client.publish("nowhere", b"5")
    client.channel.ack(2, True)
    harness.settle()
    before = counted(harness)
    assert before["received"] == 5 and before["routed"] == 2 and "acknowledged" not in before
    client.channel.rollback()
    harness.settle()
    client.publish("q", b"6")
    client.publish("nowhere", b"7", mandatory=True)
    client.publish("nowhere", b"8")
    client.channel.ack(2, True)
    client.ask_commit()
    harness.settle()
    found = counted(harness)
    assert {name: found[name] - before.get(name, 0) for name in found} == {
        "received": 3, "routed": 1, "unroutable_dropped": 1, "unroutable_returned": 1, "acknowledged": 2,
        "delivered_get_manual": 0, "transactions_committed": 1, "transactions_rolled_back": 1,
    }  # fmt: skip


def test_a_transaction_that_fails_commits_nothing(harness: Harness, client: Client) -> None:
    client.channel.mode.select_tx()
    harness.ledger.refuse = "too few nodes are ready"
    client.publish("q", b"1")
    client.ask_commit()
    harness.settle()
    found = counted(harness)
    assert found["transactions_failed"] == 1 and "routed" not in found and "transactions_committed" not in found


def test_nothing_falls_when_channels_end_or_the_primary_changes(harness: Harness, client: Client) -> None:
    client.publish("q", b"1", b"2")
    client.get("q")
    harness.settle()
    other = harness.client()
    other.channel.close()
    before = harness.broker.counters.shown()
    client.channel.close()
    harness.settle()
    harness.client()
    harness.take_over()
    after = harness.broker.counters.shown()
    assert all(after[name] >= before[name] for name in COUNTED) and before["received"] == 2
    assert after["channels_opened"] == after["channels_closed"] == 3, "each once, however it has ended"
