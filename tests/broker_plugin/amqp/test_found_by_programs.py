"""What ``make amqp-programs`` has found: places where RabbitMQ 3.10 answered otherwise."""

from __future__ import annotations

import struct

import pytest
from pamqp import body, header
from pamqp.commands import Basic, Queue

from broker_plugin.amqp.protocol.codec import BODY, METHOD
from tests.broker_plugin.amqp.conversation import raw
from tests.broker_plugin.amqp.peer import Peer
from tests.broker_plugin.embedded.harness import Harness


def test_a_body_that_is_longer_than_its_header_says() -> None:
    """505, as for any frame that is not the one that must come."""
    peer = Peer().open()
    peer.send(1, Basic.Publish(0, "", "q"), header.ContentHeader(0, 3, Basic.Properties()), body.ContentBody(b"never"))
    (answer,) = peer.frames()
    assert "reply_code=505" in answer
    assert "expected content body, got non content body frame instead" in answer


def test_an_unknown_frame_is_named_on_an_open_channel_too() -> None:
    peer = Peer().open()
    peer.connection.receive(raw(BODY + 6, 1, b"\xff"))
    (answer,) = peer.frames()
    assert "type 9, all octets = <<255>>: unknown_frame" in answer


@pytest.mark.parametrize("method", ["Bind", "Unbind"])
def test_a_missing_exchange_is_told_before_a_locked_queue(method: str) -> None:
    """A queue of another connection is judged only where there is an exchange that it could be bound to."""
    harness = Harness()
    owner, other = Peer(harness).open(), Peer(harness).open()
    owner.send(1, Queue.Declare(queue="q", exclusive=True))
    owner.settle()
    other.send(1, getattr(Queue, method)(queue="q", exchange="nosuch", routing_key="k"))
    other.settle()
    (answer,) = other.frames()
    assert answer == "1 Queue.UnbindOk" if method == "Unbind" else "reply_code=404" in answer


def test_a_locked_queue_is_bound_to_nothing_by_others() -> None:
    harness = Harness()
    owner, other = Peer(harness).open(), Peer(harness).open()
    owner.send(1, Queue.Declare(queue="q", exclusive=True))
    owner.settle()
    other.send(1, Queue.Bind(queue="q", exchange="amq.direct", routing_key="k"))
    other.settle()
    assert "reply_code=405" in other.frames()[0]


def test_wrong_arguments_of_a_binding_are_told_before_a_locked_queue() -> None:
    """406, though the queue is another connection's."""
    harness = Harness()
    owner, other = Peer(harness).open(), Peer(harness).open()
    owner.send(1, Queue.Declare(queue="q", exclusive=True))
    owner.settle()
    other.send(1, Queue.Bind(queue="q", exchange="amq.headers", routing_key="k", arguments={"x-match": "most"}))
    other.settle()
    assert "reply_code=406" in other.frames()[0]


def test_a_binding_that_is_not_there_is_unbound_from_a_locked_queue() -> None:
    """Nothing is done to the queue, so the broker does not ask whose it is."""
    harness = Harness()
    owner, other = Peer(harness).open(), Peer(harness).open()
    bind = Queue.Bind(queue="q", exchange="amq.direct", routing_key="k")
    owner.send(1, Queue.Declare(queue="q", exclusive=True), bind)
    owner.settle()
    other.send(1, *(Queue.Unbind(queue="q", exchange="amq.direct", routing_key=key) for key in ("other", "k")))
    other.settle()
    first, second = other.frames()
    assert first == "1 Queue.UnbindOk"
    assert "reply_code=405" in second


def test_a_consumer_tag_in_use_is_told_before_a_missing_queue() -> None:
    peer = Peer().open()
    peer.send(1, Queue.Declare(queue="q"), Basic.Consume(queue="q", consumer_tag="t"))
    peer.send(1, Basic.Consume(queue="nosuch", consumer_tag="t"))
    peer.settle()
    assert "reply_code=530" in peer.frames()[-1]


@pytest.mark.parametrize(("first", "again"), [("classic", None), (None, "classic"), ("classic", "quorum")])
def test_a_classic_queue_is_declared_with_its_type_or_without_one(first: str | None, again: str | None) -> None:
    peer = Peer().open()
    for kind in (first, again):
        peer.send(1, Queue.Declare(queue="q", durable=True, arguments={"x-queue-type": kind} if kind else {}))
        peer.settle()
    declared, answer = peer.frames()
    assert "Queue.DeclareOk" in declared
    if again == "quorum":
        assert "received 'quorum' but current is 'classic'" in answer
    else:
        assert "Queue.DeclareOk" in answer


@pytest.mark.parametrize("method", [Basic.Reject, Basic.Nack])
def test_a_delivery_tag_has_no_sign(method: type[Basic.Reject] | type[Basic.Nack]) -> None:
    peer = Peer().open()
    peer.connection.receive(raw(METHOD, 1, struct.pack(">IQB", method.index, 1 << 63, 0)))
    assert f"unknown delivery tag {1 << 63}" in peer.frames()[0]
