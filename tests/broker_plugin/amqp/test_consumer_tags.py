"""A consumer tag may be used again as soon as its consumer has gone, in whatever way that went."""

from __future__ import annotations

import pytest
from pamqp.commands import Basic, Channel, Queue

from tests.broker_plugin.amqp.peer import Peer, publish


def two_consumers(durable: bool) -> Peer:
    """Channel 1 consumes from "old" with the tag "t", channel 2 from "new" with the tag "other"."""
    peer = Peer().open()
    peer.send(2, Channel.Open())
    peer.send(1, Queue.Declare(queue="old", durable=durable), Queue.Declare(queue="new", durable=True))
    peer.settle()
    peer.send(1, Basic.Consume(queue="old", consumer_tag="t", no_ack=True))
    peer.send(2, Basic.Consume(queue="new", consumer_tag="other", no_ack=True))
    peer.settle()
    peer.frames()
    return peer


def told(peer: Peer, channel: int) -> list[str]:
    """What one channel has been sent, without contents."""
    peer.settle()
    return [each for each in peer.frames() if each.startswith((f"{channel} Basic", f"{channel} Queue"))]


@pytest.mark.parametrize("durable", [True, False])
def test_consumer_tag_reused_behind_a_delete(durable: bool) -> None:
    """``consumer_tag_reused_behind_a_delete``: the end of the old consumer was taken for that of the new one, to which
    nothing could be delivered then, nor to any other consumer of its queue."""
    peer = two_consumers(durable)
    peer.send(1, Queue.Delete(queue="old"), Basic.Consume(queue="new", consumer_tag="t", no_ack=True))
    assert told(peer, 1) == [
        "1 Queue.DeleteOk message_count=0",
        "1 Basic.Cancel consumer_tag='t' nowait=True",
        "1 Basic.ConsumeOk consumer_tag='t'",
    ], "the client can tell which of the two has ended"
    for each in range(6):
        peer.connection.receive(publish("new", b"%d" % each, channel=2))
    peer.settle()
    shown = peer.frames()
    tags = [each.split("consumer_tag=")[1].split(" ")[0] for each in shown if "Basic.Deliver" in each]
    assert sorted(tags) == ["'other'"] * 3 + ["'t'"] * 3
    assert sorted(each for each in shown if "body" in each) == sorted(
        f"{1 if tag == repr('t') else 2} body b'{number}'" for number, tag in enumerate(tags)
    )


def test_a_tag_is_cancelled_and_reused_behind_a_delete() -> None:
    """The client is told once that its consumer went with its queue, and not again of the next one."""
    peer = two_consumers(True)
    peer.send(
        1,
        Queue.Delete(queue="old"),
        Basic.Cancel("t"),
        Basic.Consume(queue="new", consumer_tag="t"),
        Basic.Cancel("t"),
        Basic.Consume(queue="new", consumer_tag="t"),
    )
    assert told(peer, 1) == [
        "1 Queue.DeleteOk message_count=0",
        "1 Basic.Cancel consumer_tag='t' nowait=True",
        "1 Basic.CancelOk consumer_tag='t'",
        "1 Basic.ConsumeOk consumer_tag='t'",
        "1 Basic.CancelOk consumer_tag='t'",
        "1 Basic.ConsumeOk consumer_tag='t'",
    ]


def test_a_tag_is_reused_when_another_channel_has_deleted_the_queue() -> None:
    peer = two_consumers(True)
    peer.send(2, Queue.Delete(queue="old"))
    peer.harness.broker.end_of_turn()
    peer.harness.ledger.commit()
    peer.send(1, Basic.Consume(queue="new", consumer_tag="t"))
    assert told(peer, 1) == ["1 Basic.Cancel consumer_tag='t' nowait=True", "1 Basic.ConsumeOk consumer_tag='t'"]
    peer.connection.receive(publish("new", b"m", channel=2) * 2)
    peer.settle()
    assert len([each for each in peer.frames() if "Basic.Deliver" in each]) == 2


def test_a_closed_channel_is_not_told_of_its_consumers_any_more() -> None:
    """Its number may be another channel's by then."""
    peer = two_consumers(True)
    peer.send(2, Queue.Delete(queue="old"))
    peer.harness.broker.end_of_turn()
    peer.harness.ledger.commit()
    peer.send(1, Channel.Close(200, "", 0, 0))
    peer.settle()
    assert [each for each in peer.frames() if each.startswith("1 ")] == ["1 Channel.CloseOk"]
