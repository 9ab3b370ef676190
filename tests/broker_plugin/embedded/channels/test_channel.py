"""Channels: confirms, fairness, prefetch, returns, and the end of being primary."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.embedded.channels.confirms import Confirms
from broker_plugin.embedded.errors import AmqpError
from broker_plugin.embedded.queues.turn import Turn
from tests.broker_plugin.embedded.harness import Client, Harness, properties


class TestConfirms:
    """A confirm means durable wherever it counts."""

    def test_only_after_the_commit_point(self, harness: Harness, client: Client) -> None:
        client.channel.mode.select_confirms()
        client.publish("q", b"1", b"2", b"3")
        harness.turn()
        assert client.confirms == []
        harness.ledger.commit()
        harness.turn()
        assert client.confirms == [(3, True, True)]

    def test_unroutable_at_once(self, harness: Harness, client: Client) -> None:
        client.channel.mode.select_confirms()
        client.publish("q", b"1")
        client.publish("nobody", b"2")
        harness.turn()
        assert client.confirms == [(2, False, True)]
        harness.settle()
        assert client.confirms == [(2, False, True), (1, False, True)]

    def test_returned_before_confirmed(self, harness: Harness, client: Client) -> None:
        client.channel.mode.select_confirms()
        client.publish("nobody", b"2", mandatory=True)
        assert client.returns == [b"2"] and client.confirms == []

    def test_refused(self, harness: Harness, client: Client) -> None:
        client.channel.mode.select_confirms()
        client.publish("q", b"1")
        harness.ledger.refuse = "too few nodes are ready"
        client.publish("q", b"2")
        harness.settle()
        assert client.confirms == [(2, False, False), (1, False, True)]

    def test_refused_without_confirms_closes_the_channel(self, harness: Harness, client: Client) -> None:
        harness.ledger.refuse = "too few nodes are ready"
        client.publish("q", b"1")
        assert [error.reply_text for error in client.errors] == ["PRECONDITION_FAILED - too few nodes are ready"]

    @given(st.lists(st.integers(1, 5), max_size=6), st.data())
    def test_every_number_is_answered_once(self, groups: list[int], data: st.DataObject) -> None:
        answers: list[tuple[int, bool, bool]] = []
        confirms = Confirms(Turn(lambda: None), lambda *answer: answers.append(answer))
        outstanding: set[int] = set()
        expected: dict[int, bool] = {}
        known: dict[int, bool] = {}
        for size in [*groups, 0]:
            outstanding |= {confirms.begin() for _ in range(size)}
            chosen = data.draw(st.permutations(sorted(outstanding)))
            for tag in chosen[: data.draw(st.integers(0, len(chosen)))] if size else chosen:
                outstanding.remove(tag)
                expected[tag] = data.draw(st.booleans())
                confirms.settle(tag, expected[tag])
            confirms.flush()
            for tag, multiple, accepted in answers:
                for each in range(1, tag + 1) if multiple else [tag]:
                    if each not in known:
                        assert each not in outstanding
                        known[each] = accepted
            answers.clear()
            assert known == expected


class TestConsumers:
    """Fair round robin among those that can take more."""

    def test_round_robin(self, harness: Harness, client: Client) -> None:
        consumers = [harness.client() for _ in range(3)]
        for consumer in consumers:
            consumer.channel.consume("q", "c", False, False, {})
        client.publish("q", *[b"%d" % n for n in range(9)])
        harness.settle()
        assert [consumer.bodies for consumer in consumers] == [
            [b"0", b"3", b"6"],
            [b"1", b"4", b"7"],
            [b"2", b"5", b"8"],
        ]

    def test_a_full_consumer_is_passed_over(self, harness: Harness, client: Client) -> None:
        slow, fast = harness.client(), harness.client()
        slow.channel.qos(1, False)
        for consumer in (slow, fast):
            consumer.channel.consume("q", "c", False, False, {})
        client.publish("q", b"1", b"2", b"3", b"4")
        harness.settle()
        assert slow.bodies == [b"1"] and fast.bodies == [b"2", b"3", b"4"]
        slow.channel.ack(1, False)
        client.publish("q", b"5", b"6")
        harness.settle()
        assert len(slow.bodies) == 2 and len(fast.bodies) == 4

    def test_a_client_that_does_not_read_gets_nothing(self, harness: Harness, client: Client) -> None:
        consumer = harness.client()
        consumer.channel.consume("q", "c", True, False, {})
        consumer.channel.session.set_flowing(False)
        client.publish("q", b"1")
        harness.settle()
        assert consumer.deliveries == []
        consumer.channel.session.set_flowing(True)
        harness.settle()
        assert consumer.bodies == [b"1"]

    def test_a_getter_whose_channel_closed_takes_nothing(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1")
        harness.settle()
        leaver = harness.client()
        answers = leaver.ask_get("q")
        leaver.channel.close()
        harness.settle()
        got = client.get("q")
        assert answers == [] and got is not None and not got.redelivered

    @pytest.mark.parametrize("durable", [False, True])
    def test_a_getter_whose_queue_is_deleted_is_told_so(self, harness: Harness, durable: bool) -> None:
        """404, as if the queue had been deleted first: an empty queue would be one to which more may come."""
        getter, deleter = harness.client(), harness.client()
        getter.declare("q", durable)
        counts: list[int] = []
        delete = partial(harness.broker.operations.deletions.delete, deleter.channel, "q", False, False, counts.append)
        if durable:
            delete()
        answers = getter.ask_get("q")
        if not durable:
            delete()
        harness.settle()
        assert counts == [0] and answers == []
        assert [error.reply_text for error in getter.errors] == ["NOT_FOUND - no queue 'q' in vhost '/'"]

    def test_prefetch_of_the_channel_wakes_every_queue(self, harness: Harness, client: Client) -> None:
        client.declare("r")
        client.channel.qos(1, True)
        client.channel.consume("q", "c", False, False, {})
        client.channel.consume("r", "d", False, False, {})
        client.publish("q", b"q1")
        client.publish("r", b"r1")
        harness.settle()
        assert len(client.bodies) == 1
        client.channel.ack(1, False)
        harness.settle()
        assert sorted(client.bodies) == [b"q1", b"r1"]

    @pytest.mark.parametrize("prefetch", [0, 1])
    def test_a_limit_for_each_consumer_ends_that_of_the_channel(
        self, harness: Harness, client: Client, prefetch: int
    ) -> None:
        """As in RabbitMQ: consumers that are there go on without a limit, and only later ones have the new one."""
        client.channel.qos(1, True)
        client.channel.consume("q", "c", False, False, {})
        client.publish("q", b"1", b"2", b"3")
        harness.settle()
        assert client.bodies == [b"1"]
        client.channel.qos(prefetch, False)
        harness.settle()
        assert client.bodies == [b"1", b"2", b"3"]

    def test_a_prefetch_limit_below_what_is_held_already(self, harness: Harness, client: Client) -> None:
        """The consumer that holds too much gets nothing, and takes nothing away from the others."""
        full, other = harness.client(), harness.client()
        client.publish("q", b"1", b"2")
        full.channel.consume("q", "c", False, False, {})
        harness.settle()
        full.channel.qos(1, True)
        harness.settle()
        client.publish("q", b"3")
        harness.settle()
        assert full.bodies == [b"1", b"2"]
        other.channel.qos(1, False)
        other.channel.consume("q", "c", False, False, {})
        harness.settle()
        assert other.bodies == [b"3"]


class TestFlight:
    """What a client has sent and the ledger has not taken is counted, so that it can be held back."""

    def test_in_flight_bytes(self, harness: Harness) -> None:
        connection = harness.connect()
        client = harness.client(connection)
        client.declare("q")
        session = client.channel.session
        client.publish("q", b"x" * 1000)
        assert session.in_flight > 1000
        client.channel.publish("", "q", False, properties({"large": "x" * 1000}), b"")
        assert session.in_flight > 2000
        session.relief_at = 500
        harness.settle()
        assert session.in_flight == 0 and connection.reliefs == 1


class TestInactive:
    """No longer the primary: close everything, answer nothing, forget everything."""

    def test_clients_are_closed_with_320(self, harness: Harness) -> None:
        connection = harness.connect()
        client = harness.client(connection)
        client.declare("q")
        harness.broker.on_inactive("the lease is lost")
        (told,) = connection.forced
        assert told.reply_text.startswith("CONNECTION_FORCED - the lease is lost; unanswered=not-done")
        with pytest.raises(AmqpError) as refused:
            harness.broker.connect(connection)
        assert refused.value.code == 320

    def test_local_queues_are_forgotten_and_durable_ones_are_not(self, harness: Harness) -> None:
        client = harness.client()
        client.declare("durable")
        client.declare("local", durable=False)
        client.publish("durable", b"1")
        harness.settle()
        harness.take_over()
        assert set(harness.broker.topology.queues) == {"durable"}
        assert harness.client().drain("durable") == [b"1"]

    def test_late_turns_of_the_old_generation_do_nothing(self, harness: Harness) -> None:
        client = harness.client()
        client.declare("q")
        client.channel.consume("q", "c", False, False, {})
        client.publish("q", b"1")
        harness.ledger.commit()
        old = harness.ledger
        harness.broker.on_inactive("the lease is lost")
        harness.turn()
        assert client.deliveries == [] and not old.busy
