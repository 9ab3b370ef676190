"""What ``make amqp-programs`` has found: places where RabbitMQ 3.10 answered otherwise."""

from __future__ import annotations

from pamqp import body, header
from pamqp.commands import Basic

from broker_plugin.amqp.codec import BODY
from tests.amqp.conversation import raw
from tests.amqp.peer import Peer


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
