"""Durable queues: what may be handed out, and when."""

from __future__ import annotations

from broker_plugin.embedded.operations.queue_operations import QueueState
from tests.broker_plugin.embedded.harness import Client, Harness, got, queue_of
from txobserver.events import Delivered, Removal, Settle


class TestVisibility:
    """PROTOCOL, "A transaction", 4: nothing is seen before the commit point."""

    def test_not_counted_before_the_commit_point(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"m")
        harness.turn()
        states: list[QueueState] = []
        harness.broker.operations.queues.declare_passive(harness.client().channel, "q", states.append)
        answers = harness.client().ask_get("q")
        harness.turn()
        assert states[0].messages == 0 and answers == [None]
        harness.settle()
        assert harness.client().count("q") == 1

    def test_not_delivered_before_the_commit_point(self, harness: Harness, client: Client) -> None:
        consumer = harness.client()
        consumer.channel.consume("q", "c", False, False, {})
        client.publish("q", b"m")
        harness.turn()
        assert consumer.deliveries == []
        harness.ledger.commit()
        harness.turn()
        assert consumer.bodies == [b"m"]

    def test_the_mark_comes_with_the_message_when_a_consumer_waits(self, harness: Harness, client: Client) -> None:
        client.channel.consume("q", "c", False, False, {})
        client.publish("q", b"1", b"2")
        harness.turn()
        harness.ledger.commit()
        assert [type(event) for event in harness.ledger.log[-3:]][-1] is Delivered
        harness.turn()
        assert client.bodies == [b"1", b"2"]
        assert not harness.ledger.busy, "one round was enough"

    def test_nothing_is_handed_out_beyond_the_mark(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        harness.settle()
        client.channel.consume("q", "c", False, False, {})
        harness.turn()
        assert client.deliveries == [], "the watermark has been asked for, but not told"
        harness.ledger.commit()
        harness.turn()
        assert client.bodies == [b"1", b"2"]

    def test_no_more_is_marked_than_consumers_can_take(self, harness: Harness, client: Client) -> None:
        client.channel.qos(1, False)
        client.channel.consume("q", "c", False, False, {})
        for _ in range(3):
            client.publish("q", b"a", b"b")
            harness.ledger.flush()
        harness.settle()
        watermarks = [event.offset for event in harness.ledger.log if isinstance(event, Delivered)]
        assert len(watermarks) == 1 and client.bodies == [b"a"]

    def test_consumer_comes_while_messages_are_on_their_way(self, harness: Harness, client: Client) -> None:
        """P3: three messages are on their way when a consumer comes that can take one. The watermark of the fourth
        covered all of them: the next primary delivered as redelivered what no consumer could have been sent."""
        client.publish("q", b"a", b"b", b"c")
        harness.turn()
        harness.ledger.flush()
        consumer = harness.client()
        consumer.channel.qos(1, False)
        consumer.channel.consume("q", "c", False, False, {})
        harness.turn()
        client.publish("q", b"d")
        harness.turn()
        harness.settle()
        assert consumer.bodies == [b"a"]
        harness.take_over()
        reader = harness.client()
        flags = [(got(a).message.body, got(a).redelivered) for a in [reader.get("q") for _ in range(4)]]
        assert flags == [(b"a", True), (b"b", False), (b"c", False), (b"d", False)]

    def test_room_that_is_left_beside_what_is_on_its_way_is_used(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"a")
        harness.turn()
        harness.ledger.flush()
        consumer = harness.client()
        consumer.channel.qos(2, False)
        consumer.channel.consume("q", "c", False, False, {})
        harness.turn()
        client.publish("q", b"b", b"c")
        harness.turn()
        harness.ledger.commit()
        assert len([event for event in harness.ledger.log if isinstance(event, Delivered)]) == 1, "no second round"
        harness.turn()
        assert consumer.bodies == [b"a", b"b"]

    def test_a_mark_is_asked_for_once(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        harness.settle()
        client.channel.consume("q", "c", False, False, {})
        for _ in range(3):
            queue_of(harness).wake()
            harness.turn()
        harness.settle()
        assert len([event for event in harness.ledger.log if isinstance(event, Delivered)]) == 1

    def test_get_waits_for_the_mark(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1")
        harness.settle()
        answers = client.ask_get("q")
        harness.turn()
        assert answers == []
        harness.ledger.commit()
        harness.turn()
        assert [got(answer).message.body for answer in answers] == [b"1"]

    def test_a_channel_finds_what_it_published_itself(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"mine")
        answers = client.ask_get("q")
        harness.turn()
        assert answers == [], "the publish has no outcome yet"
        harness.settle()
        assert [got(answer).message.body for answer in answers] == [b"mine"]


class TestRedelivery:
    """P3: what may have been handed out is redelivered, what no consumer could have been sent is not."""

    def test_after_a_take_over(self, harness: Harness, client: Client) -> None:
        client.channel.qos(2, False)
        client.channel.consume("q", "c", False, False, {})
        client.publish("q", b"1", b"2", b"3")
        harness.settle()
        assert client.bodies == [b"1", b"2"]
        harness.take_over()
        reader = harness.client()
        flags = [(got(a).message.body, got(a).redelivered) for a in [reader.get("q") for _ in range(3)]]
        assert flags == [(b"1", True), (b"2", True), (b"3", False)]

    def test_given_back_messages_stand_at_their_old_places(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2", b"3")
        tags = [got(client.get("q")).delivery_tag for _ in range(2)]
        client.channel.reject(tags[1], False, True)
        client.channel.reject(tags[0], False, True)
        flags = [(got(a).message.body, got(a).redelivered) for a in [client.get("q") for _ in range(3)]]
        assert flags == [(b"1", True), (b"2", True), (b"3", False)]

    def test_what_was_settled_but_not_committed_comes_again(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1")
        answer = got(client.get("q"))
        client.channel.ack(answer.delivery_tag, False)
        harness.turn()
        assert harness.ledger.busy
        harness.take_over()
        again = got(harness.client().get("q"))
        assert again.message.body == b"1" and again.redelivered

    def test_no_ack_is_marked_before_it_is_handed_out(self, harness: Harness, client: Client) -> None:
        client.channel.consume("q", "c", True, False, {})
        client.publish("q", b"1")
        harness.turn()
        harness.ledger.commit()
        harness.turn()
        assert client.bodies == [b"1"]
        harness.take_over()
        again = got(harness.client().get("q"))
        assert again.redelivered, "it had been sent to a consumer"


class TestSettling:
    """Settlements of one turn share one event."""

    def test_one_event_for_a_turn(self, harness: Harness, client: Client) -> None:
        client.channel.consume("q", "c", False, False, {})
        client.publish("q", *[b"%d" % n for n in range(50)])
        harness.settle()
        before = len(harness.ledger.log)
        for delivery in client.deliveries:
            client.channel.ack(delivery.tag, False)
        harness.settle()
        settles = [event for event in harness.ledger.log[before:] if isinstance(event, Settle)]
        assert len(settles) == 1 and len(settles[0].entries) == 50
        assert client.count("q") == 0

    def test_a_message_removed_while_ready_is_not_handed_out(self, harness: Harness, client: Client) -> None:
        client.publish("q", b"1", b"2")
        harness.settle()
        first = harness.ledger.contents.messages.ids(queue_of(harness).number)[0]
        harness.ledger.settle(queue_of(harness).number, [first], Removal.EXPIRED)
        harness.settle()
        assert client.count("q") == 1
        assert client.drain("q") == [b"2"]
