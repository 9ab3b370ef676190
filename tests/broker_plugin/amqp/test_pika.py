"""What pika sees."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.broker_plugin.amqp.conftest import Served

PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connect(served: Served, **more: Any) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", served.port, **more))


@pytest.fixture
def connection(served: Served) -> Iterator[pika.BlockingConnection]:
    connection = connect(served)
    yield connection
    if connection.is_open:
        connection.close()


def test_publish_and_get(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"hello", pika.BasicProperties(delivery_mode=2, headers={"a": 1, "b": [True]}))
    method, properties, body = channel.basic_get("q")
    assert body == b"hello" and properties.headers == {"a": 1, "b": [True]} and not method.redelivered
    channel.basic_ack(method.delivery_tag)
    assert channel.basic_get("q") == (None, None, None)


def test_transaction_over_three_queues(connection: pika.BlockingConnection) -> None:
    channel, other = connection.channel(), connection.channel()
    for name in "abc":
        channel.queue_declare(name, durable=True)
    channel.tx_select()
    for name in "abc":
        channel.basic_publish("", name, b"x" * 300_000, PERSISTENT)
    assert other.queue_declare("a", passive=True).method.message_count == 0
    channel.tx_commit()
    assert [other.queue_declare(name, passive=True).method.message_count for name in "abc"] == [1, 1, 1]
    method, _, body = channel.basic_get("a")
    assert body == b"x" * 300_000
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_ack(method.delivery_tag)
    channel.tx_commit()
    channel.close()
    assert other.basic_get("a") == (None, None, None)


def test_failed_commit(served: Served, connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.tx_select()
    channel.basic_publish("", "q", b"m", PERSISTENT)
    served.ledger.refuse = "fewer than 2 nodes are ready"
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        channel.tx_commit()
    assert (closed.value.reply_code, closed.value.reply_text) == (
        406,
        "PRECONDITION_FAILED - fewer than 2 nodes are ready",
    )
    served.ledger.refuse = None
    assert connection.channel().basic_get("q") == (None, None, None)


def test_confirmed_publishes(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    for number in range(100):
        channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
    assert channel.queue_declare("q", passive=True).method.message_count == 100
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("", "nobody", b"m", mandatory=True)


def test_refused_publish(served: Served, connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("q", durable=True)
    served.ledger.refuse = "fewer than 2 nodes are ready"
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", "q", b"m")


def test_consume_with_prefetch(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    for number in range(1000):
        channel.basic_publish("", "q", b"%d" % number, PERSISTENT)
    channel.basic_qos(prefetch_count=20)
    found = []
    for method, _, body in channel.consume("q"):
        found.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(found) == 1000:
            break
    channel.cancel()
    assert found == list(range(1000))
    assert channel.queue_declare("q", passive=True).method.message_count == 0


def test_requeue_is_redelivered(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    channel.basic_publish("", "q", b"m", PERSISTENT)
    method, _, _ = channel.basic_get("q")
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, _ = channel.basic_get("q")
    assert method.redelivered


def test_consumer_is_told_that_its_queue_is_gone(connection: pika.BlockingConnection) -> None:
    channel, other = connection.channel(), connection.channel()
    channel.queue_declare("q", durable=True)
    cancelled: list[Any] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume("q", lambda *_: None)
    other.queue_delete("q")
    connection.process_data_events(0)
    while not cancelled:
        connection.process_data_events(0.1)
    assert len(cancelled) == 1


def test_wrong_password(served: Served) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(served, credentials=pika.PlainCredentials("guest", "wrong"), connection_attempts=1)


def test_unknown_vhost(served: Served) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="vhost elsewhere not found"):
        connect(served, virtual_host="elsewhere")


def test_large_and_small_bodies(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    bodies = [b"", b"x", b"y" * 131064, b"z" * 131065, b"w" * 3_000_000]
    for body in bodies:
        channel.basic_publish("", "q", body, PERSISTENT)
    assert [channel.basic_get("q", auto_ack=True)[2] for _ in bodies] == bodies


def test_no_longer_the_primary(served: Served, connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    served.call(served.broker.on_inactive, "the lease is lost")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        while True:
            channel.queue_declare("q", passive=True)


def test_many_clients_at_once(served: Served) -> None:
    """Each moves messages from one queue to another in transactions; all arrive once and in order."""
    clients, messages = 4, 60
    with_setup = connect(served)
    channel = with_setup.channel()
    for number in range(clients):
        channel.queue_declare(f"in-{number}", durable=True)
        for sequence in range(messages):
            channel.basic_publish("", f"in-{number}", b"%d %d" % (number, sequence), PERSISTENT)
    channel.queue_declare("out", durable=True)

    def move(number: int) -> None:
        connection = connect(served)
        channel = connection.channel()
        channel.tx_select()
        for _ in range(messages // 3):
            for _ in range(3):
                method, _, body = channel.basic_get(f"in-{number}")
                channel.basic_publish("", "out", body, PERSISTENT)
                channel.basic_ack(method.delivery_tag)
            channel.tx_commit()
        connection.close()

    threads = [threading.Thread(target=move, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    moved = []
    while (body := channel.basic_get("out", auto_ack=True)[2]) is not None:
        moved.append(tuple(map(int, body.split())))
    assert sorted(moved) == [(number, each) for number in range(clients) for each in range(messages)]
    for number in range(clients):
        assert [each for client, each in moved if client == number] == list(range(messages))
    assert [channel.queue_declare(f"in-{n}", passive=True).method.message_count for n in range(clients)] == [
        0
    ] * clients
    with_setup.close()


def test_a_consumer_that_asks_for_places(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", durable=True)
    for body in (b"1", b"2"):
        channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2, headers={"a": 1}))
    seen: list[tuple[bytes, int]] = []
    for _ in range(2):  # a place stays when a message comes again
        for method, properties, body in channel.consume("q", arguments={"x-txha-place": True}):
            assert properties.headers["a"] == 1
            seen.append((body, properties.headers["x-txha-place"]))
            if method.delivery_tag % 2 == 0:
                break
        channel.basic_nack(0, multiple=True)
        channel.cancel()
    assert seen[:2] == seen[2:] and seen[0][1] < seen[1][1]
    _, properties, _ = channel.basic_get("q")
    assert properties.headers == {"a": 1}


def test_places_of_a_queue_that_is_not_durable(connection: pika.BlockingConnection) -> None:
    channel = connection.channel()
    channel.queue_declare("q", exclusive=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no offset that stays"):
        channel.basic_consume("q", print, arguments={"x-txha-place": True})
