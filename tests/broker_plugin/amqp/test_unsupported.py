"""What RabbitMQ acts on and this broker does not, as a client meets it: in messages, methods, arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pamqp import commands, frame, header
from pamqp.commands import Basic, Channel, Confirm, Exchange, Queue, Tx

from tests.broker_plugin.amqp.conftest import Served
from tests.broker_plugin.amqp.peer import Peer
from tests.broker_plugin.embedded.harness import Harness

ACTED_ON = {
    "property 'expiration'": {"expiration": "60000"},
    "header 'CC'": {"headers": {"CC": ["other"]}},
    "header 'BCC'": {"headers": {"BCC": ["other"]}},
}
PASSED = [
    {"headers": {"CC": []}},
    {"headers": {"cc": ["other"], "x-delay": 5, "x-unheard": {"CC": ["q"]}}},
    {"priority": 255},
    {"reply_to": "somewhere", "delivery_mode": 1},
]


def opened(harness: Harness | None = None) -> Peer:
    """A client with a queue "q"."""
    peer = Peer(harness).open()
    peer.send(1, Queue.Declare(queue="q", durable=True))
    peer.settle()
    peer.frames()
    return peer


def send(peer: Peer, exchange: str = "", key: str = "q", pieces: bool = False, **properties: Any) -> list[str]:
    """Publish; what the client is sent. ``pieces``: the header comes by itself."""
    values = (Basic.Publish(0, exchange, key), header.ContentHeader(0, 0, Basic.Properties(**properties)))
    for part in values if pieces else [values]:
        peer.send(1, *(part if isinstance(part, tuple) else (part,)))
    peer.settle()
    return peer.frames()


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("what", ACTED_ON)
def test_a_message_that_asks_for_more_than_there_is_is_refused(what: str, pieces: bool) -> None:
    peer = opened()
    for _ in range(2):  # also when it is the same again
        (closed,) = send(peer, pieces=pieces, **ACTED_ON[what])
        assert "Channel.Close" in closed and "reply_code=406" in closed
        assert f"unsupported {what} for exchange '' in vhost '/'" in closed.replace("\\", "")
        peer.send(1, Channel.CloseOk())
        peer.send(1, Channel.Open())
        peer.frames()
    assert peer.harness.client().count("q") == 0


def test_a_transaction_with_such_a_message_is_rolled_back() -> None:
    peer = opened()
    peer.send(1, Tx.Select())
    send(peer)
    assert "reply_code=406" in send(peer, expiration="5")[0]
    assert peer.harness.client().count("q") == 0


@pytest.mark.parametrize("properties", PASSED, ids=str)
def test_what_rabbitmq_does_not_act_on_is_accepted(properties: dict[str, Any]) -> None:
    assert send(opened(), **properties) == []


def test_no_consumer_waits_for_a_direct_reply() -> None:
    (closed,) = send(opened(), reply_to="amq.rabbitmq.reply-to")
    assert "reply_code=406" in closed and "fast reply consumer does not exist" in closed


def test_with_warnings_they_are_accepted_and_each_exchange_told_once() -> None:
    told: list[tuple[str, str, str]] = []
    peer = opened(Harness(warned=lambda *met: told.append(met)))
    for _ in range(3):
        for exchange in ("", "amq.fanout"):
            for properties in ACTED_ON.values():
                assert send(peer, exchange, **properties) == []
    assert told == [("exchange", exchange, what) for exchange in ("", "amq.fanout") for what in ACTED_ON]


def test_what_is_malformed_is_refused_also_where_the_rest_is_only_warned_of() -> None:
    peer = opened(Harness(warned=lambda *met: None))
    assert "invalid expiration 'soon'" in send(peer, expiration="soon")[0].replace("\\", "")


class TestSecrets:
    """connection.update-secret."""

    @staticmethod
    def update(secret: Any) -> list[str]:
        peer = opened()
        peer.send(0, commands.Connection.UpdateSecret(secret, "it was time"))
        return peer.frames()

    def test_the_right_one_is_accepted(self) -> None:
        assert self.update("guest") == ["0 Connection.UpdateSecretOk"]

    @pytest.mark.parametrize("secret", ["wrong", "", "guest\0", "ü"])
    def test_a_wrong_one_ends_the_connection(self, secret: str) -> None:
        (answer,) = self.update(secret)
        assert "Connection.Close" in answer and "reply_code=530" in answer and "New secret was refused" in answer

    def test_one_that_is_no_text_is_a_wrong_one(self) -> None:
        peer = opened()
        method = frame.marshal(commands.Connection.UpdateSecret("##", "why"), 0)
        peer.connection.receive(method.replace(b"##", b"\xff\xfe"))
        assert "reply_code=530" in peer.frames()[0]


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (Basic.Qos(100, 1), "NOT_IMPLEMENTED - prefetch_size!=0 (100)"),
        (Basic.Publish(0, "", "q", False, True), "NOT_IMPLEMENTED - immediate=true"),
        (Basic.Recover(False), "NOT_IMPLEMENTED - requeue=false"),
        (Channel.Flow(False), "NOT_IMPLEMENTED - active=false"),
    ],
    ids=str,
)
def test_a_method_that_cannot_do_what_it_asks_for_is_not_implemented(method: Any, text: str) -> None:
    peer = opened()
    peer.send(1, method)
    (answer,) = peer.frames()
    assert "reply_code=540" in answer and text in answer


def test_exchanges_bound_to_exchanges_and_alternate_exchanges_work() -> None:
    """They are no matter of this page: RabbitMQ acts on them, and so does this broker."""
    peer = opened()
    peer.send(
        1,
        Confirm.Select(),
        Exchange.Declare(exchange="to", exchange_type="fanout", durable=True),
        Exchange.Declare(
            exchange="from", exchange_type="direct", durable=True, arguments={"alternate-exchange": "amq.fanout"}
        ),
        Exchange.Bind(destination="to", source="from", routing_key="known"),
        Queue.Bind(queue="q", exchange="to"),
        Queue.Bind(queue="q", exchange="amq.fanout"),
    )
    peer.settle()
    peer.frames()
    for key in ("known", "unknown"):
        send(peer, "from", key)
    peer.send(1, Queue.Purge(queue="q"))
    peer.settle()
    assert "2" in peer.frames()[-1]


@pytest.fixture
def channel(served: Served) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.port))
    yield connection.channel()
    connection.close()


def test_pika_is_told_which_argument_it_was(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare("q", durable=True, arguments={"x-message-ttl": 1000})
    assert caught.value.reply_code == 406
    assert caught.value.reply_text.startswith("PRECONDITION_FAILED - unsupported arg 'x-message-ttl' for queue 'q'")
